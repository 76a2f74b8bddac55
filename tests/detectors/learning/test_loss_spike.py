import numpy as np

from seismograd.detectors.learning.loss_spike import LossSpike


def falling(count=300, seed=0):
    return 2.0 * np.exp(-np.arange(count) / 60) + 0.5 + np.random.default_rng(seed).normal(0, 0.02, count)


def test_one_is_info_and_tells_its_step(lab):
    losses = falling()
    losses[200] += 3.0
    (finding,) = lab.run(LossSpike(), lab.scalars(losses))
    assert finding.severity == "info"
    assert finding.step == 200
    assert "outlier" in finding.recommendations[0]


def test_repeated_and_lasting_ones_are_a_warning(lab):
    losses = falling(600)
    for at in (200, 300, 400):
        losses[at : at + 5] += 3.0
    norms = np.where(losses > 2.9, 30.0, 1.0)
    findings = lab.run(LossSpike(), lab.scalars(losses, grad__norm=norms))
    assert [finding.severity.value for finding in findings] == ["info", "info", "warning"]
    assert findings[-1].evidence["gradient"] == 30.0


def test_new_data_that_are_learned_are_no_warning(lab):
    losses = falling(600)
    for at in (200, 300, 400):
        losses[at : at + 5] += 3.0
    assert {f.severity.value for f in lab.run(LossSpike(), lab.scalars(losses))} == {"info"}
    for times, worst in ((7.9, "info"), (8.1, "warning")):
        norms = np.where(losses > 2.9, times, 1.0)
        findings = lab.run(LossSpike(), lab.scalars(losses, grad__norm=norms))
        assert findings[-1].severity == worst
    assert "data" in findings[0].recommendations[0] or "batches" in findings[0].recommendations[1]


def test_silent_in_noise_and_when_converged(lab):
    assert lab.run(LossSpike(), lab.scalars(falling())) == []
    converged = np.geomspace(2.0, 1e-8, 400)
    converged[300:] *= 10.0 ** np.random.default_rng(0).uniform(-2, 3, 100)
    assert lab.run(LossSpike(), lab.scalars(converged)) == []
    heavy = np.random.default_rng(1).lognormal(0, 1.0, 500)
    assert all(finding.severity == "info" for finding in lab.run(LossSpike(), lab.scalars(heavy)))


def test_silent_after_a_restart_of_the_schedule(lab):
    losses = falling()
    losses[200:210] += 3.0
    rates = [1e-4] * 200 + [1e-2] * 100
    assert lab.run(LossSpike(), lab.scalars(losses, lr__0=rates)) == []


def test_on_its_limit(lab):
    base = [1.0, 1.1] * 50  # spread 0.074, highest 1.1 over a median of 1.1
    low, high = [*base, 1.1 + 0.7, 1.0], [*base, 1.1 + 0.8, 1.0]
    assert lab.run(LossSpike(), lab.scalars(low)) == []
    assert len(lab.run(LossSpike(), lab.scalars(high))) == 1
