import math

import numpy as np

from seismograd.detectors.learning.lr_too_high import LrTooHigh


def readings(lab, losses, ratio, lr=3.0):
    return [lab.reading(at, loss=loss, lr=lr, update_ratio=ratio) for at, loss in enumerate(losses)]


def test_fires_and_names_a_better_rate(lab):
    findings = lab.run(LrTooHigh(), readings(lab, [2.3] + [30.0] * 20, [2.1, 1.0, 1.0, 1.0]))
    assert findings[0].severity == "critical"
    assert findings[0].message.startswith("lr 3 moved `layers.0.weight` by 2.1 times its own size")
    assert findings[0].evidence["suggested_lr"] == 0.03


def test_fires_at_once_when_the_loss_is_gone(lab):
    assert lab.run(LrTooHigh(), readings(lab, [2.3, 500.0, math.nan], 5.0))[0].step == 2


def test_fires_when_the_loss_does_not_come_down(lab):
    findings = lab.run(LrTooHigh(), readings(lab, [2.3] * 60, 1.0))
    assert findings[0].severity == "warning"
    assert findings[0].step == 39


def test_silent_when_the_loss_likes_it(lab):
    assert lab.run(LrTooHigh(), readings(lab, np.linspace(2.3, 0.1, 60), 1.0)) == []


def test_silent_on_weights_that_start_at_zero(lab):
    first = lab.reading(0, update_ratio=math.nan)
    assert lab.run(LrTooHigh(), [first, *readings(lab, [2.3] * 60, 1.0)]) == []


def test_silent_when_few_layers_move(lab):
    assert lab.run(LrTooHigh(), readings(lab, [2.3] * 60, [0.01, 0.01, 0.01, 3.0])) == []


def test_one_group_with_a_rate_of_its_own(lab):
    """The message names the rate of the group that holds the parameter."""

    def thrown(ratio, after):
        own = {"lr": [1e-3, 5.0], "update_lr": [1e-3, 1e-3, 1e-3, 5.0]}
        return [
            lab.reading(
                at, loss=2.3 if not at else after, update_ratio=[0.01, 0.01, 0.01, ratio if at < 3 else 0.8], **own
            )
            for at in range(60)
        ]

    (finding, *_) = lab.run(LrTooHigh(), thrown(49.0, 9.0))
    assert finding.message.startswith("lr 5 moved `layers.3.weight`")
    assert lab.run(LrTooHigh(), thrown(4.0, 9.0)) == []
    assert lab.run(LrTooHigh(), thrown(49.0, 2.3)) == []


def test_on_its_limit(lab):
    assert lab.run(LrTooHigh(), readings(lab, [2.3] + [30.0] * 20, 0.5)) == []
    assert lab.run(LrTooHigh(), readings(lab, [2.3] + [30.0] * 20, 0.51))


def test_the_advice_follows_from_the_update_that_began_it():
    """The updates of a run that has diverged are astronomic, and say nothing about a better rate."""
    import math

    import numpy as np

    from seismograd.detectors.learning.lr_too_high import LrTooHigh
    from seismograd.judge import judge_all
    from seismograd.records import Reading, TensorStats

    def reading(step, loss, ratio):
        table = {"update": TensorStats(("a", "b"), {"ratio": np.array([ratio, ratio])})} if ratio else {}
        weights = TensorStats(("a", "b"), {"gain": np.array([1.0, 1.0]), "norm": np.ones(2), "size": np.full(2, 100.0)})
        return Reading(step, {"loss": loss, "lr/0": 3.0}, {"parameter": weights, **table})

    losses = [(4.0, None), (50.0, 2.0), (1e13, 1e6), (math.inf, 1e9)]
    [finding] = judge_all([reading(step, loss, ratio) for step, (loss, ratio) in enumerate(losses)], [LrTooHigh()])
    assert finding.evidence["ratio"] == 2.0
    assert 0.01 <= finding.evidence["suggested_lr"] <= 0.1


def test_updates_that_kill_a_layer_which_lived(lab):
    from seismograd.records import Reading

    def look(step, fired, **more):
        layer = {"name": "act", "after": "fc1", "units": 64, "fired": fired, "blocks": True, "last": False}
        layer |= {"dead": 64 - fired, "never": 0} | more
        return Reading(step, facts={"activations": {"layers": [layer]}})

    def story(ratio=0.3, decay=0.0, first=64, left=0, fall=0.0, **more):
        for step in range(20):
            loss, dead = 2.3 - fall * step, step >= 8
            yield lab.reading(step, loss=loss, lr=3.0, update_ratio=0.0 if dead else ratio, update_decay=decay)
            yield look(step, left if dead else first, **more)

    finding, *_ = lab.run(LrTooHigh(), story())
    assert (finding.severity, finding.step) == ("critical", 12)
    assert "All 64 units behind `fc1` have been dead since" in finding.message
    assert lab.run(LrTooHigh(), story(ratio=0.04)) == []
    assert lab.run(LrTooHigh(killed=0.01), story(ratio=0.04))
    assert lab.run(LrTooHigh(), story(decay=1.0)) == []
    assert lab.run(LrTooHigh(), story(first=0)) == [], "it never lived"
    assert lab.run(LrTooHigh(), story(blocks=False)) == []
    assert lab.run(LrTooHigh(), story(last=True)) == []
    assert "61 of the 64 units" in lab.run(LrTooHigh(), story(left=3))[0].message
    assert lab.run(LrTooHigh(), story(left=3, fall=0.05)) == [], "it learns with those that are left"
    assert lab.run(LrTooHigh(), story(left=12)) == []
