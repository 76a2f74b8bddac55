from seismograd.detectors.loop.missing_zero_grad import MissingZeroGrad


def test_fires_when_gradients_are_never_cleared(order):
    findings = order.run(MissingZeroGrad(), *order.turns(6, uncleared=True, left=3.0, clears=0))
    assert (findings[0].step, findings[0].severity) == (3, "critical")
    assert findings[0].where.line == 7
    assert findings[0].evidence["order"] == ["zero_grad", "forward", "backward", "step"]


def test_says_that_another_optimizer_is_cleared_and_which_one_is_not(order):
    readings = [order.reading(at, order.turn(uncleared=True, strange=1, optimizer=1), several=True) for at in range(4)]
    (finding,) = order.run(MissingZeroGrad(), *readings)
    assert "on another optimizer" in finding.message
    assert finding.evidence["series"] == 1


def test_silent_when_they_are_cleared_now_and_then_only_half_seen_or_of_different_optimizers(order):
    often = [order.reading(at, order.turn(uncleared=at % 4 != 0)) for at in range(40)]
    assert order.run(MissingZeroGrad(), *often) == []
    assert order.run(MissingZeroGrad(), *order.turns(9, uncleared=True, whole=False)) == []
    two = [order.reading(at, order.turn(uncleared=at % 3 > 0), order.turn(optimizer=1)) for at in range(40)]
    assert order.run(MissingZeroGrad(), *two) == []


def test_on_its_limit(order):
    assert order.run(MissingZeroGrad(), *order.turns(3, uncleared=True)) == []
    assert order.run(MissingZeroGrad(in_a_row=3), *order.turns(3, uncleared=True))
