import pytest

from seismograd.detectors.loop.missing_step import MissingStep


def found(order, over=False, **told):
    return order.run(MissingStep(), order.reading(9, waiting=[order.waiting(**told)], over=over))


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"clearer": "module", "rounds": 32, "backwards": 33},
        {"clearer": None, "rounds": 0, "backwards": 256},
        {"schedules": 8, "rounds": 0, "clearer": None},
        {"rounds": 300, "others": True},
        {"steps": 100, "rounds": 64},
        {"steps": 1, "rounds": 0, "clearer": None, "backwards": 256},
        {"rounds": 3, "backwards": 4, "over": True},
        {"rounds": 0, "clearer": None, "backwards": 8, "over": True},
        {"others": True, "over": True},
    ],
)
def test_fires(order, told):
    (finding,) = found(order, **told)
    assert finding.severity == "critical"
    assert finding.where.code == "backward()"


@pytest.mark.parametrize(
    "told",
    [
        {"moved": True},
        {"moved": None},
        {"attacks": True},
        {"tried": True},
        {"samples": 1},
        {"training": False},
        {"clearer": "module"},
        {"clearer": None, "rounds": 0, "backwards": 255},
        {"rounds": 100, "others": True},
        {"rounds": 7},
        {"steps": 100},
        {"steps": 1, "rounds": 0, "clearer": None, "backwards": 255},
        {"steps": 100, "rounds": 99, "clearer": "module"},
        {"steps": 100, "rounds": 99, "others": True},
        {"steps": 100, "rounds": 99, "training": False},
        {"rounds": 2, "backwards": 3, "over": True},
        {"others": True, "clearer": "module", "over": True},
    ],
)
def test_silent(order, told):
    assert found(order, **told) == []


def test_one_that_accumulates_for_long_may_go_on_for_longer(order):
    for before, said in ((16, 1), (17, 0)):
        waiting = [order.waiting(steps=3, rounds=0, clearer=None, backwards=256)]
        reading = order.reading(9, turns=[order.turn(backwards=before)], waiting=waiting)
        assert len(order.run(MissingStep(), reading)) == said


def test_limits_can_be_set(order):
    reading = order.reading(9, waiting=[order.waiting(rounds=4)])
    assert order.run(MissingStep(rounds=4), reading)


def now_and_then(order, thrown, *, several=False, **told):
    turns = [order.turn(thrown=each) for each in thrown]
    waiting = [order.waiting(steps=len(turns), **told)]
    return order.run(MissingStep(), order.reading(9, turns=turns, waiting=waiting, several=several))


def test_one_that_steps_now_and_then(order):
    (finding,) = now_and_then(order, [0, 6, 3, 40], rounds=31)
    assert finding.severity == "warning"
    assert "4 steps, and 80 batches" in finding.message
    assert now_and_then(order, [0, 6, 3, 20], rounds=31) == []  # not long enough
    assert now_and_then(order, [0, 6, 3, 40], rounds=31, several=True) == []
    assert now_and_then(order, [7] * 12, rounds=7) == []  # meant to accumulate: that is another finding
    assert now_and_then(order, [0, 2] * 40, rounds=31) == []  # most are used
