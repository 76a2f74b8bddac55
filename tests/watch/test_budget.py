"""Where the budget is used up the loop sleeps between readings, and what it says stays right."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from seismograd import governor


@pytest.fixture
def poor(monkeypatch):
    """No grace, and so little budget that only one step of 64 is read."""
    monkeypatch.setattr(governor, "GRACE", 0.0)


def test_steps_are_counted_and_readings_belong_to_their_steps(poor, watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, losses = watching(model, optimizer, budget=1e-9), []
    for _ in range(400):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    run.watch.close()
    assert run.watch.report()["run"]["steps"] == 400
    assert 6 <= len(run.readings) <= 20
    assert run.watch.report()["run"]["overhead"]["steps_read"] < 0.1
    for reading in run.readings:
        assert reading.scalars["loss"] == pytest.approx(losses[reading.step]), "the loss of that very step"


@pytest.mark.parametrize("steps", [97, 400])
@pytest.mark.parametrize("batches", [1, 3])
def test_steps_with_a_closure_are_counted_too(poor, watching, model, data, batches, steps):  # noqa: PLR0917
    """What Lightning does: the last batch of a step goes through in the optimizer's closure."""
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, losses = watching(model, optimizer, budget=1e-9), []

    def backward():
        loss = F.cross_entropy(model(x), y)
        (loss / batches).backward()
        losses[-1].append(loss.item())
        return loss

    def closure():
        if batches == 1:
            optimizer.zero_grad()
        return backward()

    for _ in range(steps):
        losses.append([])
        for _ in range(batches - 1):
            backward()
        optimizer.step(closure)
        if batches > 1:
            optimizer.zero_grad()
    run.watch.close()
    assert run.watch.report()["run"]["steps"] == steps
    assert steps // 64 <= len(run.readings) <= 20
    for reading in run.readings:
        own = losses[reading.step]
        if "pre-step" not in reading.marks and reading.scalars["loss"] != pytest.approx(own[-1]):
            assert reading.scalars["loss"] == pytest.approx(sum(own) / len(own)), "the loss of that very step"


def test_a_loop_that_breaks_while_nobody_looks_is_found_at_the_next_look(poor, watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer, budget=1e-9)
    for step in range(300):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (loss * (math.nan if step == 101 else 1)).backward()
        optimizer.step()
    assert run.watch.status == "critical"
    assert 101 <= run.watch.findings[0].step <= 101 + governor.LONGEST_WAIT


def test_what_is_said_by_hand_is_heard_at_any_time(poor, watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer, budget=1e-9)
    for step in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        run.watch.log("mine", step)
    run.watch.validate(0.5)
    assert run.series("val_loss") == [0.5]
    assert run.readings[-1].step == 99
    assert run.series("mine")


def test_accumulation_and_two_optimizers_stay_right(poor, watching, model, data):
    x, y = data
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.1)
    run = watching(model, [first, second], budget=1e-9)
    for _ in range(200):
        model.zero_grad()
        for _ in range(2):
            F.cross_entropy(model(x), y).backward()
        first.step()
        second.step()
    run.watch.close()
    assert run.watch.report()["run"]["steps"] == 200
    assert len(run.series("grad/norm/0")) == len(run.series("grad/norm/1")) > 0
