from seismograd.detectors.loop.accumulation_mismatch import AccumulationMismatch


def test_fires_on_gradients_thrown_away(order):
    findings = order.run(AccumulationMismatch(), *order.turns(4, thrown=3))
    assert (findings[0].step, findings[0].severity) == (2, "warning")
    assert findings[0].evidence["batches"] == 4


def test_two_steps_are_enough_where_many_are_thrown_away(order):
    assert len(order.run(AccumulationMismatch(), *order.turns(2, thrown=15))) == 1
    assert order.run(AccumulationMismatch(), *order.turns(2, thrown=7)) == []


def test_silent_on_attacks_sam_hand_made_gradients_and_changing_numbers(order):
    for told in ({"moved": True}, {"handmade": True}, {"one_line": False}, {"thrown": 0}):
        assert order.run(AccumulationMismatch(), *order.turns(9, **{"thrown": 3} | told)) == []
    assert (
        order.run(AccumulationMismatch(), *[order.reading(at, order.turn(thrown=1 + at % 2)) for at in range(9)]) == []
    )


def test_several_optimizers_need_more(order):
    readings = [order.reading(at, order.turn(thrown=3), several=True) for at in range(5)]
    assert len(order.run(AccumulationMismatch(), *readings)) == 1


def test_fires_on_a_loss_that_is_not_divided(order):
    findings = order.run(AccumulationMismatch(), *order.turns(5, kept=4, fresh=4))
    assert (findings[0].step, findings[0].severity) == (3, "warning")
    (finding,) = order.run(AccumulationMismatch(), *order.turns(4, kept=4, fresh=4, kind="AdamW"))
    assert finding.severity == "info"
    (finding,) = order.run(AccumulationMismatch(), *order.turns(4, kept=4, fresh=4, kind="AdamW", clips=["right"]))
    assert finding.severity == "warning"


def test_silent_on_divided_losses_several_losses_of_a_batch_and_tasks(order):
    for told in ({"mean": False}, {"fresh": 1}, {"alike": False}, {"one_line": False}, {"handmade": True}):
        assert order.run(AccumulationMismatch(), *order.turns(9, **{"kept": 4, "fresh": 4} | told)) == []


def test_fires_on_a_loss_that_is_divided_twice(order):
    told = {"kept": 4, "fresh": 4, "mean": False, "divisors": [4, 4]}
    findings = order.run(AccumulationMismatch(), *order.turns(5, **told))
    assert (findings[0].step, findings[0].severity) == (3, "warning")
    assert findings[0].evidence["divided_by"] == 16
    for other in ({"divisors": [4]}, {"divisors": [4, 2]}, {"fresh": 1}, {"kept": 3, "fresh": 3}):
        assert order.run(AccumulationMismatch(), *order.turns(9, **told | other)) == []
    halves = {"kept": 2, "fresh": 2, "mean": False, "divisors": [2, 2]}
    assert order.run(AccumulationMismatch(), *order.turns(9, **halves)) == []


def test_on_its_limit(order):
    assert order.run(AccumulationMismatch(), *order.turns(2, thrown=3)) == []
    assert order.run(AccumulationMismatch(in_a_row=2), *order.turns(2, thrown=3))
    assert order.run(AccumulationMismatch(), *order.turns(3, kept=4, fresh=4)) == []
    assert order.run(AccumulationMismatch(steady=3), *order.turns(3, kept=4, fresh=4))
    twice = {"kept": 2, "fresh": 2, "mean": False, "divisors": [2, 2]}
    assert order.run(AccumulationMismatch(twice=2), *order.turns(9, **twice))
