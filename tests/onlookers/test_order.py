"""The order of things, as it is told of real loops."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.onlookers.loop.order import Order
from seismograd.sinks import Memory

X, Y = torch.randn(64, 4), torch.randint(0, 2, (64,))


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Order,))
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def watched(iteration, *, steps=5, optimizer=None):
    """What is told of a loop: `iteration(model, optimizer, x, y)` is its body."""
    model = net()
    optimizer = (optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.01)))(model.parameters())
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory], ignore=["blind-probe"]):
        for at in range(steps):
            iteration(model, optimizer, X[at * 8 : at * 8 + 8], Y[at * 8 : at * 8 + 8])
    return [reading.facts["order"] for reading in memory.readings if "order" in reading.facts]


def turns(facts):
    return [turn for told in facts for turn in told["turns"]]


def backward(model, x, y):
    F.cross_entropy(model(x), y).backward()


def test_a_plain_loop():
    def iteration(model, optimizer, x, y):
        optimizer.zero_grad()
        backward(model, x, y)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    told = turns(watched(iteration))
    assert len(told) == 5
    assert told[-1]["order"] == ["zero_grad", "forward", "backward", "clip", "step"]
    assert told[-1]["clips"] == ["right"]
    assert not any(turn["uncleared"] or turn["empty"] or turn["thrown"] or turn["handmade"] for turn in told)
    assert told[0]["places"]["step"]["code"] == "optimizer.step()"


@pytest.mark.parametrize("how", ["optimizer", "in place", "model", "none", "data", "by hand"])
def test_every_way_to_clear_is_seen(how):
    def iteration(model, optimizer, x, y):
        backward(model, x, y)
        optimizer.step()
        if how == "optimizer":
            optimizer.zero_grad()
        elif how == "in place":
            optimizer.zero_grad(set_to_none=False)
        elif how == "model":
            model.zero_grad()
        else:
            for parameter in model.parameters():
                if how == "none":
                    parameter.grad = None
                elif how == "data":
                    parameter.grad.data.zero_()
                else:
                    parameter.grad *= 0.0

    assert [turn["uncleared"] for turn in turns(watched(iteration))] == [False] * 5


def test_gradients_that_nobody_clears():
    def iteration(model, optimizer, x, y):
        backward(model, x, y)
        optimizer.step()

    told = turns(watched(iteration))
    assert [turn["uncleared"] for turn in told] == [False] + [True] * 4
    assert told[-1]["left"] > 0


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_lost(to_none):
    def iteration(model, optimizer, x, y):
        backward(model, x, y)
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()

    assert all(turn["empty"] for turn in turns(watched(iteration)))


def test_a_closure():
    def iteration(model, optimizer, x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    told = turns(watched(iteration, optimizer=lambda parameters: torch.optim.LBFGS(parameters, max_iter=3)))
    assert told
    assert not any(turn["uncleared"] or turn["empty"] or turn["thrown"] for turn in told)


def test_an_optimizer_that_waits():
    def iteration(model, optimizer, x, y):
        optimizer.zero_grad()
        backward(model, x, y)

    facts = watched(iteration)
    (wait,) = facts[-1]["waiting"]
    assert facts[-1]["over"]
    assert (wait["steps"], wait["backwards"], wait["rounds"], wait["moved"]) == (0, 5, 4, False)


def test_weights_that_move_by_other_means_are_seen():
    def iteration(model, optimizer, x, y):
        optimizer.zero_grad()
        backward(model, x, y)
        for parameter in model.parameters():
            parameter.data -= 0.1 * parameter.grad

    assert watched(iteration)[-1]["waiting"][0]["moved"]


def test_accumulation_and_what_is_thrown_away():
    at = 0

    def iteration(model, optimizer, x, y, clears=False):
        nonlocal at
        at += 1
        if clears:
            optimizer.zero_grad()
        backward(model, x, y)
        if at % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()

    (_, told, *_) = turns(watched(iteration, steps=8))
    assert (told["kept"], told["fresh"], told["thrown"], told["mean"], told["one_line"]) == (2, 2, 0, True, True)
    at = 0
    (_, told, *_) = turns(watched(lambda *args: iteration(*args, clears=True), steps=8))
    assert (told["kept"], told["thrown"], told["moved"]) == (1, 1, False)


def test_many_batches_are_accumulated():
    at = 0

    def iteration(model, optimizer, x, y):
        nonlocal at
        at += 1
        backward(model, x, y)
        if at % 16 == 0:
            optimizer.step()
            optimizer.zero_grad()

    told = turns(watched(iteration, steps=96))[1:]
    assert len(told) == 5
    assert all((turn["kept"], turn["mean"], turn["alike"], turn["one_line"]) == (16, True, True, True) for turn in told)


@pytest.mark.parametrize(
    ("loss_of", "divisors"),
    [
        (lambda out, y: 0.5 * F.cross_entropy(out, y), [3, 3]),
        (lambda out, y: F.cross_entropy(out, y) + F.mse_loss(out, out.detach()) + out.pow(2).mean(), []),
        (lambda out, y: F.cross_entropy(out, y, reduction="sum"), []),
        (lambda out, y: F.cross_entropy(out, y, reduction="none").sum(), []),
    ],
    ids=["a mean", "three terms", "a sum over the batch", "a sum by hand"],
)
def test_what_a_loss_is_divided_by(loss_of, divisors):
    """A sum may be divided by the number of its terms, and again by that of the batches."""
    at = 0

    def iteration(model, optimizer, x, y):
        nonlocal at
        at += 1
        (loss_of(model(x), y) / 3 / 3).backward()
        if at % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()

    assert [turn["divisors"] for turn in turns(watched(iteration, steps=9))] == [divisors] * 3


@pytest.mark.parametrize(("views", "fresh"), [(False, 4), (True, 1)])
def test_batches_that_are_all_fetched_before_they_are_used(views, fresh):
    """As a Trainer fetches them; several views of one batch are no batches of their own."""
    model, memory = net(), Memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    with sg.watch(model, optimizer, sinks=[memory], ignore=["blind-probe"]):
        batches = iter(loader)
        for _ in range(4):
            held = [(x + 0.1 * i, y) for x, y in [next(batches)] for i in range(4)] if views else []
            for x, y in held or [next(batches) for _ in range(4)]:
                backward(model, x, y)
            optimizer.step()
            optimizer.zero_grad()
    told = turns([reading.facts["order"] for reading in memory.readings if "order" in reading.facts])
    assert [(turn["kept"], turn["fresh"]) for turn in told[1:]] == [(4, fresh)] * 3


def test_clipping_in_wrong_places():
    def late(model, optimizer, x, y):
        optimizer.zero_grad()
        backward(model, x, y)
        optimizer.step()
        clip_grad_norm_(model.parameters(), 1.0)

    def nothing(model, optimizer, x, y):
        optimizer.zero_grad()
        backward(model, x, y)
        clip_grad_norm_([], 1.0)
        optimizer.step()

    scaler = torch.amp.GradScaler("cpu")

    def scaled(model, optimizer, x, y):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    assert [turn["clips"] for turn in turns(watched(late))] == [[], *[["late"]] * 4]
    assert [turn["clips"] for turn in turns(watched(nothing))] == [["nothing"]] * 5
    told = turns(watched(scaled))
    assert [turn["clips"] for turn in told] == [["scaled"]] * 5
    assert told[0]["scale"] == 65536.0


def test_a_step_that_the_scaler_skips_is_no_missing_one():
    scaler = torch.amp.GradScaler("cpu", init_scale=1e30)

    def iteration(model, optimizer, x, y):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y) * 1e15).backward()
        scaler.step(optimizer)
        scaler.update()

    facts = watched(iteration)
    assert all(wait["tried"] and wait["backwards"] == 1 for told in facts for wait in told["waiting"])


class Unhashable(torch.optim.lr_scheduler.StepLR):
    __hash__ = None

    def __eq__(self, other):
        return self is other


@pytest.mark.parametrize("kind", [torch.optim.lr_scheduler.StepLR, Unhashable])
def test_the_line_that_made_a_scheduler(kind):
    model, memory = net(), Memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[memory]):
        schedule = kind(optimizer, 2)
        for _ in range(2):
            backward(model, X[:8], Y[:8])
            optimizer.step()
            schedule.step()
    told = memory.readings[-1].facts["order"]["schedules"][0]
    assert told["made"]["code"] == "schedule = kind(optimizer, 2)"


def test_schedulers():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    memory = Memory()
    loader = DataLoader(TensorDataset(X, Y), batch_size=16)
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                backward(model, x, y)
                optimizer.step()
                schedule.step()
    facts = [reading.facts["order"] for reading in memory.readings if "order" in reading.facts]
    told = facts[-1]["schedules"][0]
    assert told["made"] is None  # before the watch
    assert (facts[-1]["epoch"], facts[-1]["epochs"]) == (4, 2)
    assert (told["kind"], told["count"], told["each_step"], told["ahead"]) == ("StepLR", 8, 8, 0)
    assert told["settings"] == {"step_size": 2.0, "gamma": 0.1}
    assert not any(turn["scheduled_early"] for turn in turns(facts))


def test_nothing_is_kept_alive():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]):
        for _ in range(3):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), Y[:8])
            loss.backward()
            optimizer.step()
        gradient = weakref.ref(model[0].weight.grad)
        batch = weakref.ref(x)
        optimizer.zero_grad()
        del x, loss
        gc.collect()
        F.cross_entropy(model(X), Y).backward()
        assert gradient() is None
        F.cross_entropy(model(X), Y).backward()
        assert batch() is None
