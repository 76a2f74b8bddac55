import pytest

from seismograd.detectors.loop.scheduler_order import SchedulerOrder


def found(order, step=39, epoch=None, epochs=1, over=False, **told):
    reading = order.reading(
        step, order.turn(), schedules=[order.schedule(**told)], epoch=epoch, epochs=epochs, over=over
    )
    return order.run(SchedulerOrder(), reading)


def test_fires_when_it_comes_before_the_step(order):
    findings = order.run(SchedulerOrder(), *order.turns(5, scheduled_early=True))
    assert (findings[0].step, findings[0].severity) == (2, "warning")
    assert order.run(SchedulerOrder(in_a_row=2), *order.turns(2, scheduled_early=True))
    assert order.run(SchedulerOrder(), *order.turns(2, scheduled_early=True)) == []


def test_fires_when_it_stepped_once_before_everything(order):
    assert "skipped" in found(order, ahead=1)[0].message
    assert found(order, ahead=3) == []  # a resumed run, brought forward


@pytest.mark.parametrize(("framework", "line"), [(True, 3), (False, 9)])
def test_names_the_line_that_made_it_where_a_framework_steps(order, framework, line):
    fit, own = {"file": "train.py", "line": 9, "code": "fit()"}, {"file": "train.py", "line": 8, "code": "step()"}
    places = {"scheduler": fit, "step": fit, "backward": own} | ({"framework": fit} if framework else {})
    made = {"file": "train.py", "line": 3, "code": "StepLR(...)"}
    reading = order.reading(39, order.turn(places=places), schedules=[order.schedule(ahead=1, made=made)])
    assert order.run(SchedulerOrder(), reading)[0].where.line == line


FALLEN = {"lr": 1e-4}


@pytest.mark.parametrize(
    "told",
    [
        {"epoch": 100, **FALLEN},
        {"epoch": 100, "kind": "ExponentialLR", "settings": {"gamma": 0.9}, **FALLEN},
        {"epoch": 100, "kind": "MultiStepLR", "settings": {"last_milestone": 30.0, "gamma": 0.1}, **FALLEN},
        {
            "epoch": 200,
            "epochs": 2,
            "kind": "MultiStepLR",
            "settings": {"last_milestone": 90.0, "gamma": 0.1},
            **FALLEN,
        },
        {"epoch": 100, "kind": "CosineAnnealingLR", "settings": {"T_max": 30.0}},
        {"epoch": 100, "kind": "ReduceLROnPlateau", "settings": {"patience": 5.0}, **FALLEN},
        {"kind": "ExponentialLR", "settings": {"gamma": 0.8}, "count": 200, "fell": 30, "lr": 1e-9},
        {"epoch": 16, "epochs": 13, "count": 200, "fell": 40, "lr": 1e-19},  # one pass is too short for it
    ],
)
def test_fires_on_epochs_counted_as_batches(order, told):
    assert "with every batch" in found(order, **told)[0].message


@pytest.mark.parametrize(
    "told",
    [
        {"epoch": 100},  # has not fallen yet
        {"epoch": 20, **FALLEN},
        {"epoch": 16, "epochs": 6, "count": 100, "fell": 40, "lr": 1e-9},  # it may be the end of the run
        {"epoch": 100, "each_step": 0, **FALLEN},
        {"epoch": 5000, "settings": {"step_size": 1000.0, "gamma": 0.1}, **FALLEN},
        {"epoch": 200, "kind": "MultiStepLR", "settings": {"last_milestone": 90.0, "gamma": 0.1}, **FALLEN},
        {"epoch": 100, "kind": "CosineAnnealingLR", "settings": {"T_max": 1000.0}},
        {"epoch": 100, "kind": "LambdaLR", "settings": {}, **FALLEN},
        {"kind": "ExponentialLR", "settings": {"gamma": 0.8}, "count": 100, "fell": 30, "lr": 1e-9},
        {"kind": "CosineAnnealingLR", "settings": {"T_max": 30.0}, "count": 200, "fell": 30, "lr": 1e-9},
    ],
)
def test_silent_on_schedules_for_batches(order, told):
    assert found(order, **told) == []


def test_fires_on_batches_counted_as_epochs(order):
    cycle = {"kind": "OneCycleLR", "settings": {"total_steps": 320.0}, "each_step": 0, "epoch": 32}
    assert "once for each pass" in found(order, step=63, count=2, **cycle)[0].message
    assert found(order, step=63, count=2, **cycle | {"settings": {"total_steps": 10.0}}) == []
    cosine = cycle | {"kind": "CosineAnnealingLR", "settings": {"T_max": 320.0}}
    assert found(order, step=63, count=2, **cosine) == []
    assert found(order, step=319, count=10, over=True, **cosine)
    assert found(order, step=319, count=10, over=True, **cosine | {"settings": {"T_max": 10.0}}) == []
