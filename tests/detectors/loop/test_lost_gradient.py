from seismograd.detectors.loop.lost_gradient import LostGradient


def test_fires_when_every_step_is_empty(order):
    findings = order.run(LostGradient(), *order.turns(5, empty=True, order=["backward", "zero_grad", "step"]))
    assert (findings[0].step, findings[0].severity) == (2, "critical")
    assert "`backward()`, `zero_grad()`, `step()`" in findings[0].recommendations[0]
    assert findings[0].where.code == "zero_grad()"


def test_silent_when_a_batch_is_thrown_away_now_and_then(order):
    assert order.run(LostGradient(), *[order.reading(at, order.turn(empty=at % 3 > 0)) for at in range(40)]) == []


def test_on_its_limit(order):
    assert order.run(LostGradient(), *order.turns(2, empty=True)) == []
    assert order.run(LostGradient(in_a_row=2), *order.turns(2, empty=True))
