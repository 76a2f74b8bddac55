import numpy as np

from seismograd.detectors.learning.weight_decay_dominates import WeightDecayDominates


def readings(lab, losses, *, share=0.95, sizes=None, step=0.01, gradient=1e3):
    sizes = np.geomspace(5.0, 0.01, len(losses)) if sizes is None else sizes
    made = []
    for at, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
        reading = lab.reading(
            20 * at,
            loss=loss,
            update_norm=step * size,
            update_ratio=step,
            update_decay=share * step * size,
            update_gradient=gradient,
        )
        reading.scalars["weight_decay/0"] = 0.5
        made.append(reading)
    return made


def test_fires_when_weights_shrink_and_nothing_is_learned(lab):
    findings = lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20))
    assert findings[0].severity == "warning"
    assert findings[0].evidence["weight_decay"] == 0.5
    assert "0.005" in findings[0].recommendations[0]


def test_fires_when_what_was_learned_is_lost(lab):
    losses = [2.3, 1.5, 1.0, 0.8, 0.8, *np.linspace(0.8, 2.2, 25)]
    assert lab.run(WeightDecayDominates(), readings(lab, losses))


def test_silent_when_converged_and_without_decay(lab):
    assert lab.run(WeightDecayDominates(), readings(lab, np.geomspace(2.3, 0.01, 20))) == []
    assert lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20, share=0.0)) == []
    assert lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20, sizes=[5.0] * 20)) == []


def test_on_its_limit(lab):
    assert lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20, share=0.69)) == []
    assert lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20, share=0.71))


def test_momentum_hides_neither_side(lab):
    """The update is that of many steps, ten times what decay and gradient make in one."""
    assert lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20, share=0.09, gradient=1e-4))
    assert lab.run(WeightDecayDominates(), readings(lab, [2.3] * 20, share=0.09, gradient=10.0)) == []


def test_a_decay_that_takes_a_part_of_the_weights_at_each_step(lab):
    learned = [2.4, 2.0, 1.6, 1.6, 1.6, *[1.7] * 15]
    assert lab.run(WeightDecayDominates(), readings(lab, learned, share=1.0, step=0.029)) == []
    (first, *_) = lab.run(WeightDecayDominates(), readings(lab, learned, share=1.0, step=0.031))
    assert "takes 3.1 % of the weights at each step" in first.message
    assert lab.run(WeightDecayDominates(), readings(lab, np.geomspace(2.3, 0.01, 20), share=1.0, step=0.1)) == []
