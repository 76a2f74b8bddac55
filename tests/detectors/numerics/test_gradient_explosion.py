import numpy as np
import pytest

from seismograd.detectors.numerics.gradient_explosion import GradientExplosion


def test_fires_on_exactly_the_two_bad_steps(lab):
    norms = [1.0, 0.9, 1.1, 0.8, 1.0, 0.9, 1.0, 1e9, 1e9, *[0.9] * 11]
    findings = lab.run(GradientExplosion(), lab.scalars([1.0] * 20, grad__norm=norms))
    assert [finding.step for finding in findings] == [7, 8]
    assert all(finding.severity == "critical" for finding in findings)
    assert "clip_grad_norm_(parameters, 2)" in findings[0].recommendations[0]


def test_fires_when_it_stays_high(lab):
    findings = lab.run(GradientExplosion(), lab.scalars(grad__norm=[1.0] * 50 + [300.0] * 8))
    assert [finding.step for finding in findings] == [54, 55, 56, 57]


def test_fires_on_growth_together_with_the_loss(lab):
    readings = lab.scalars(2.0 * 1.5 ** np.arange(20), grad__norm=2.0 ** np.arange(20))
    assert lab.run(GradientExplosion(), readings)


def test_leaving_a_saddle_lowers_the_loss(lab):
    readings = lab.scalars(2.0 - 0.05 * np.arange(20), grad__norm=1e-4 * 2.0 ** np.arange(20))
    assert lab.run(GradientExplosion(), readings) == []


def test_a_saddle_that_was_left_between_two_readings_is_no_explosion(lab):
    """A log of every fiftieth step: the plateau has a gradient of next to nothing, the descent the usual one."""
    norms = [1e-3] * 8 + [0.3] * 60
    falls = [2.3] * 8 + list(np.linspace(2.0, 0.5, 60))
    assert lab.run(GradientExplosion(), lab.scalars(falls, grad__norm=norms)) == []
    stays = [2.3] * 8 + [2.3] * 60
    assert lab.run(GradientExplosion(), lab.scalars(stays, grad__norm=norms))


def test_one_outlier_batch_is_info_at_most(lab):
    assert lab.run(GradientExplosion(), lab.scalars(grad__norm=[1.0] * 50 + [50.0] + [1.0] * 50)) == []
    (finding,) = lab.run(GradientExplosion(), lab.scalars(grad__norm=[1.0] * 50 + [5e3] + [1.0] * 50))
    assert finding.severity == "info"


def test_a_converged_run_may_bounce(lab):
    norms = [*np.geomspace(1.0, 1e-8, 500), *[1e-8] * 100, 1e-4, 1e-4, 1e-4]
    assert lab.run(GradientExplosion(), lab.scalars(grad__norm=norms)) == []


@pytest.mark.parametrize(("norm", "fires"), [(9.9e2, False), (1.01e3, True)])
def test_on_its_limit(lab, norm, fires):
    findings = lab.run(GradientExplosion(), lab.scalars(grad__norm=[1.0] * 50 + [norm]))
    assert bool(findings) is fires


def test_across_depth(lab):
    steep = 10.0 ** -np.arange(6.0)
    (finding, *_) = lab.run(GradientExplosion(), [lab.reading(0, 6, gradient_norm=steep)])
    assert finding.where.parameter == "layers.0.weight"
    assert finding.severity == "warning"
    even = lab.reading(0, 6, gradient_norm=2.0 ** -np.arange(6.0))
    assert lab.run(GradientExplosion(), [even]) == []


def test_a_gradient_that_rises_with_its_loss_is_left_to_the_loss():
    """A first reward: targets of another size."""
    from seismograd.detectors.numerics.gradient_explosion import GradientExplosion
    from seismograd.judge import judge_all
    from seismograd.records import Reading

    def run(later_loss):
        calm = [Reading(step, {"loss": 0.01, "grad/norm": 0.1}) for step in range(30)]
        after = [Reading(step, {"loss": later_loss, "grad/norm": 20.0}) for step in range(30, 60)]
        return [finding.id for finding in judge_all(calm + after, [GradientExplosion()])]

    assert run(400.0) == []
    assert run(0.01) == ["gradient-explosion"]
