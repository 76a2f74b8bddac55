import numpy as np

from seismograd.detectors.numerics.gradient_vanishing import GradientVanishing
from seismograd.records import Reading


def readings(lab, gradients, losses, layers=6, **measures):
    return [
        lab.reading(10 * at, layers, loss=loss, gradient_norm=gradients, **measures) for at, loss in enumerate(losses)
    ]


def test_fires_when_early_layers_starve(lab):
    starved = 10.0 ** np.arange(-6.0, 0.0)
    findings = lab.run(GradientVanishing(), readings(lab, starved, [2.3] * 12))
    assert findings[0].severity == "critical"
    assert findings[0].where.parameter == "layers.0.weight"
    assert findings[0].evidence["ratio"] < 1e-4


def test_silent_while_the_loss_comes_down(lab):
    starved = 10.0 ** np.arange(-6.0, 0.0)
    assert lab.run(GradientVanishing(), readings(lab, starved, np.linspace(2.3, 0.5, 12))) == []


def test_fires_when_nothing_passes_the_last_layer(lab):
    findings = lab.run(GradientVanishing(), readings(lab, [0, 0, 0, 0, 0, 0.1], [2.3] * 12))
    assert "exactly zero" in findings[0].message


def test_fires_when_only_biases_get_a_gradient(lab):
    """Dead units everywhere: the last bias alone goes on, and may even lower the loss."""
    findings = lab.run(GradientVanishing(), readings(lab, 0.0, np.linspace(2.6, 2.3, 12), layers=3))
    assert findings[0].severity == "critical"
    assert findings[0].evidence["zero"] == findings[0].evidence["of"] == 3
    nothing = readings(lab, 0.0, [0.0] * 12, layers=3)
    assert lab.run(GradientVanishing(), nothing) == [], "a loss of zero has no gradient"
    for reading in (none := readings(lab, 0.0, [2.3] * 12, layers=3)):
        reading.tensors["gradient"].columns["norm"][:] = 0.0
    assert all("biases" not in finding.message for finding in lab.run(GradientVanishing(), none))


def test_silent_on_branches_that_start_at_zero(lab):
    assert lab.run(GradientVanishing(), readings(lab, [0, 0.1, 0, 0.1, 0, 0.1], [2.3] * 12)) == []


def test_fires_on_a_flat_spot_but_not_when_converged(lab):
    tiny = {"layers": 3, "gradients": [1e-9] * 3, "parameter_gain": 0.75}
    flat = readings(lab, losses=[0.5] * 12, **tiny)
    for reading in flat:
        reading.tensors["gradient"].columns["norm"][1::2] = 0.0
    assert "flat spot" in lab.run(GradientVanishing(), flat)[0].message
    assert lab.run(GradientVanishing(), flat)[0].severity == "info", "these weights may be trained: a minimum"
    for reading in flat:  # a fan-in of 64, as torch initialises it
        reading.tensors["parameter"].columns["std"][::2] = 0.5774 / 8
        reading.tensors["parameter"].columns["gain"][::2] = 0.5774
    assert lab.run(GradientVanishing(), flat)[0].severity == "critical", "random weights are at no minimum"
    falling = [2.0, 1.5, 1.0, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    converged = readings(lab, losses=falling, **tiny)
    for reading in converged:
        reading.tensors["gradient"].columns["norm"][1::2] = 0.0
    assert lab.run(GradientVanishing(), converged) == []


def test_on_its_limit(lab):
    def ladder(ratio):
        return np.geomspace(ratio, 1.0, 5)

    above = readings(lab, ladder(1.05e-4), [2.3] * 12, layers=5)
    below = readings(lab, ladder(0.95e-4), [2.3] * 12, layers=5)
    assert lab.run(GradientVanishing(), above) == []
    assert lab.run(GradientVanishing(), below)
    assert lab.run(GradientVanishing(), below[:4]) == [], "four readings are not five"


def recurrent(lab, losses, gain, uses=40):
    yield Reading(0, facts={"uses": {"loops": {"layers.0.weight": uses}}})
    for step, loss in enumerate(losses):
        reading = lab.reading(step, 3, loss=loss)
        reading.tensors["parameter"].columns["gain"][0] = gain
        yield reading if step % 10 == 0 else Reading(step, {"loss": loss})


def test_fires_on_a_cell_that_passes_nothing_back(lab):
    flat = 1.39 + np.random.default_rng(0).normal(0, 0.03, 130)
    (finding, *_) = lab.run(GradientVanishing(), recurrent(lab, flat, 0.15))
    assert (finding.severity, finding.step) == ("warning", 100)
    assert finding.where.parameter == "layers.0.weight"
    assert lab.run(GradientVanishing(), recurrent(lab, flat - np.linspace(0, 0.3, 130), 0.15)) == []
    assert lab.run(GradientVanishing(), recurrent(lab, flat, 0.95)) == []
    assert lab.run(GradientVanishing(), recurrent(lab, flat, 0.15, uses=4)) == []
    assert lab.run(GradientVanishing(), recurrent(lab, 1.39 + 10 * (flat - 1.39), 0.15)) == [], "too noisy to know"


def test_silent_where_only_queries_and_keys_get_little(lab):
    """Attention of fresh weights is even: queries and keys get almost nothing, the values of the same layer do."""
    layer = [1e-6, 1e-6, 1e-2]
    deep = [*layer, *(2 * each for each in layer), *(4 * each for each in layer), 0.2, 0.3, 0.5]
    assert lab.run(GradientVanishing(), readings(lab, deep, [0.69] * 12, layers=12)) == []
