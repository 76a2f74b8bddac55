"""What the onlooker of modes tells of real loops."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.onlookers.loop.modes import Modes
from seismograd.sinks import Memory


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Modes,))
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 2))


X, Y = torch.randn(64, 3), torch.randint(0, 2, (64,))


def train(model, steps=8, *, each=None, optimizer=None, before=None):
    """The facts of each step, `each` being called after it."""
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for step in range(steps):
            if before is not None:
                before(step)
            optimizer.zero_grad()
            F.cross_entropy(model(X[:32]), Y[:32]).backward()
            optimizer.step()
            if each is not None:
                each(step)
    told = [reading.facts["modes"] for reading in memory.readings if "modes" in reading.facts]
    json.dumps(told, allow_nan=False)
    return told


def every(told, kind):
    return [facts[kind] for facts in told if kind in facts]


def test_a_plain_loop_has_nothing_to_tell():
    assert train(net()) == []


def test_steps_in_evaluation_mode_are_counted_with_those_before():
    model = net()
    quiet = every(train(model, each=lambda step: model.eval() if step == 4 else None), "quiet")
    assert [one["steps"] for one in quiet] == [1, 2, 3]
    assert {one["steps_before"] for one in quiet} == {5}
    assert (quiet[0]["dropout"], quiet[0]["norms"]) == (["3"], ["1"])
    assert quiet[0]["code"].strip() == "F.cross_entropy(model(X[:32]), Y[:32]).backward()"


def test_parts_in_evaluation_mode_on_purpose_are_none():
    model = net()
    model[1].eval()
    model[3].eval()
    assert every(train(model), "quiet") == []
    model = net().eval()
    model[1].requires_grad_(False)
    assert every(train(model), "quiet")[0]["norms"] == []


def test_a_step_with_one_call_in_training_mode_is_none():
    model = net()

    def attack(step):
        model.eval()
        F.cross_entropy(model(X[32:]), Y[32:]).backward()
        model.train()

    assert every(train(model, before=attack), "quiet") == []


@pytest.mark.parametrize("graph", [False, True])
def test_evaluations_are_told_as_one(graph):
    model = net()
    val = DataLoader(TensorDataset(X[32:], Y[32:]), batch_size=8)

    def evaluate(step):
        if step == 3:
            with torch.set_grad_enabled(graph):
                for x, y in val:
                    F.cross_entropy(model(x), y).item()

    ((block,),) = every(train(model, each=evaluate), "evaluations")
    assert {key: block[key] for key in ("calls", "live", "off", "losses", "strange", "loaded", "known")} == {
        "calls": 4, "live": 4, "off": 0, "losses": 4, "strange": 4, "loaded": 4, "known": 0,
    }  # fmt: skip
    assert block["with_graph"] == 4 * graph
    assert block["classes"]
    assert block["code"].strip() == "F.cross_entropy(model(x), y).item()"


def test_an_evaluation_with_a_loss_module_and_a_graph_is_one():
    """The recorder may keep what the loss was given, and so the graph."""
    model, loss_fn = net(), nn.CrossEntropyLoss()

    def evaluate(step):
        for at in (32, 48):
            loss_fn(model(X[at : at + 16]), Y[at : at + 16])

    blocks = every(train(model, 4, each=evaluate), "evaluations")
    assert [(block["calls"], block["losses"]) for (block,) in blocks] == [(2, 2)] * 4


def test_rows_that_were_trained_on_are_known():
    model = net()
    rows = iter((X[32:], X[:32], X[16:48], X[32:], X[32:].clone(), torch.randn(4, 3)))

    @torch.no_grad()
    def evaluate(step):
        model(next(rows))

    blocks = [block for (block,) in every(train(model, 6, each=evaluate), "evaluations")]
    assert [(block["strange"], block["known"]) for block in blocks] == [(1, 0), (0, 1), (0, 1), (1, 0), (0, 0), (0, 0)]


def test_the_same_input_twice_and_norms_made_anew_are_told():
    model = net()

    @torch.no_grad()
    def evaluate(step):
        if step == 1:
            model(X)
            model(X)
        if step == 3:
            model[1].momentum = None
            model(X)

    first, second = (block for (block,) in every(train(model, each=evaluate), "evaluations"))
    assert (first["repeats"], second["repeats"]) == (True, False)
    assert (first["resets"], second["resets"]) == (False, True)


def test_two_outputs_of_which_one_is_used():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.spare = net(), nn.Linear(3, 1)

        def forward(self, x):
            return {"spare": self.spare(x), "out": self.body(x)}

    model, memory = Two(), Memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X)["out"], Y).backward()
            optimizer.step()
    assert [reading for reading in memory.readings if "modes" in reading.facts] == []


def test_frozen_norms_that_move_are_measured():
    model = net()
    model[:2].requires_grad_(False)
    (moved,), *_ = every(train(model), "moved")
    assert (moved["steps"], moved["norms"], moved["weights"], moved["fresh"]) == (5, ["1"], 0.0, True)
    assert moved["shift"] > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model[1].eval(),
        lambda model: model[1].requires_grad_(True),
        lambda model: model[0].requires_grad_(True),
        lambda model: setattr(model[1], "momentum", 0.0),
    ],
)
def test_other_norms_are_not(change):
    model = net()
    model[:2].requires_grad_(False)
    change(model)
    assert every(train(model), "moved") == []


def test_a_frozen_part_that_is_moved_by_hand_is_seen():
    model = net()
    model[:2].requires_grad_(False)
    (moved,), *_ = every(train(model, each=lambda step: model[0].weight.data.mul_(0.99)), "moved")
    assert moved["weights"] > 0


class Functional(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layer, self.options = nn.Linear(3, 2), options

    def forward(self, x):
        return F.dropout(self.layer(x), 0.1, **self.options)


def evaluating(model):
    @torch.no_grad()
    def evaluate(step):
        model.eval()
        model(X)
        model.train()

    return evaluate


def test_functional_dropout_in_evaluation_mode_is_heard_and_torch_put_back():
    original, model = F.dropout, Functional()
    functional = every(train(model, each=evaluating(model)), "functional")
    assert functional[0][0]["what"] == "F.dropout"
    assert functional[0][0]["code"].strip() == "return F.dropout(self.layer(x), 0.1, **self.options)"
    assert len(functional) == 3
    assert F.dropout is original


@pytest.mark.parametrize("options", [{"training": True}, {"training": False}])
def test_dropout_that_is_told_the_mode_is_left_alone(options):
    model = Functional(**options)
    assert every(train(model, each=evaluating(model)), "functional") == []


def test_torch_is_put_back_after_an_error():
    original, model = F.dropout, Functional()

    @torch.no_grad()
    def evaluate(step):
        model.eval()
        with pytest.raises(RuntimeError):
            model(torch.randn(2, 7))
        model.train()

    train(model, each=evaluate)
    assert F.dropout is original


def test_nothing_is_kept_alive():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]):
        for _ in range(3):
            x = torch.randn(8, 3)
            optimizer.zero_grad()
            F.cross_entropy(model(x), torch.zeros(8, dtype=torch.long)).backward()
            optimizer.step()
            with torch.no_grad():
                held_out = torch.randn(8, 3)
                out = model(held_out)
        references = [weakref.ref(x), weakref.ref(held_out), weakref.ref(out)]
        del x, held_out, out
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        model(X)
        gc.collect()
        assert [reference() for reference in references] == [None, None, None]
    gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert gone() is None


def test_training_is_the_same_with_and_without(monkeypatch):
    def run():
        model = net()
        torch.manual_seed(1)
        train(model, each=evaluating(model))
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    with_it = run()
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", ())
    assert torch.equal(with_it, run())


def test_an_evaluation_is_heard_while_steps_are_only_counted(monkeypatch):
    monkeypatch.setattr("seismograd.governor.GRACE", 0.0)
    monkeypatch.setattr("seismograd.governor.LONGEST_WAIT", 10_000)
    model = net()

    @torch.no_grad()
    def evaluate(step):
        if step == 150:
            for at in (32, 48):
                F.cross_entropy(model(X[at : at + 16]), Y[at : at + 16])

    ((block,),) = every(train(model, 200, each=evaluate), "evaluations")
    assert (block["calls"], block["losses"], block["strange"]) == (2, 2, 2)
