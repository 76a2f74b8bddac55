"""What the onlooker of batches tells of real loops."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.onlookers.data.batches import Batches
from seismograd.sinks import Memory


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Batches,))
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


X, Y = torch.randn(64, 3), torch.randn(64, 1)


def train(draw, steps=6, model=None):
    """The facts of each step; `draw` gives its batch."""
    torch.manual_seed(0)
    model = model or nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for step in range(steps):
            x, y = draw(step)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    told = [reading.facts["batches"] for reading in memory.readings if "batches" in reading.facts]
    json.dumps(told, allow_nan=False)
    return told


def test_the_scale_of_the_input_is_told():
    told = train(lambda step: (X * 10.0**step, Y), 3)
    for step, facts in enumerate(told):
        given = facts["inputs"]["Linear"]
        assert given["std"] == pytest.approx(float(X.std()) * 10.0**step, rel=1e-4)
        assert given["mean"] == pytest.approx(float(X.mean()) * 10.0**step, rel=1e-4)


def test_of_large_and_odd_inputs_some_elements_do():
    wide = nn.Sequential(nn.Flatten(), nn.LazyLinear(1))
    large = torch.randn(8, 3, 64, 64)
    told = train(lambda step: (large.to(memory_format=torch.channels_last), Y[:8]), 2, wide)
    assert told[1]["inputs"]["Sequential"]["std"] == pytest.approx(1.0, abs=0.2)


def test_whole_numbers_have_no_scale():
    table = nn.Sequential(nn.Embedding(10, 3), nn.Flatten(), nn.Linear(6, 1))
    assert train(lambda step: (torch.randint(0, 10, (8, 2)), Y[:8]), 3, table) == []


def test_a_loader_that_is_started_anew_gives_the_same():
    loader = DataLoader(TensorDataset(X, Y), batch_size=16)
    again = [facts.get("again") for facts in train(lambda step: next(iter(loader)))]
    assert again[0] is None
    assert [one["times"] for one in again[1:]] == [2, 3, 4, 5, 6]
    assert {(one["kind"], one["batches"]) for one in again[1:]} == {("first", 4)}
    assert "next(iter(loader))" in again[1]["code"]


def test_an_iterator_whose_batches_are_equal():
    same = TensorDataset(X[:1].expand(64, 3), Y[:1].expand(64, 1))
    iterator = iter(DataLoader(same, batch_size=8))
    again = [facts.get("again") for facts in train(lambda step: next(iterator))]
    assert [one["kind"] for one in again[1:]] == ["constant"] * 5


def test_a_seed_that_is_set_at_each_step():
    def draw(step):
        torch.manual_seed(5)
        at = torch.randint(0, 64, (8,))
        return X[at], Y[at]

    again = [facts.get("again") for facts in train(draw)]
    assert [(one["kind"], one["seed"], one["times"]) for one in again[1:]] == [("seed", 5, n) for n in range(2, 7)]
    assert again[1]["code"].strip() == "torch.manual_seed(5)"


def seeded(step):
    torch.manual_seed(5)
    return X, Y


shuffled = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)
single = DataLoader(TensorDataset(X, Y), batch_size=64)


@pytest.mark.parametrize(
    "draw",
    [
        lambda step: (X, Y),
        lambda step: (X[:8], Y[:8]),
        lambda step: next(iter(shuffled)),
        lambda step: next(iter(single)),
        seeded,  # one tensor that stays
    ],
)
def test_other_batches_do_not_come_again(draw):
    assert [facts["again"] for facts in train(draw) if "again" in facts] == []


def test_an_evaluated_batch_is_not_trained_on():
    loader, probe = DataLoader(TensorDataset(X, Y), batch_size=16), nn.Linear(3, 1)

    def draw(step):
        with torch.no_grad():
            model(next(iter(loader))[0])
        return torch.randn(8, 3), Y[:8]

    model = probe
    assert [facts["again"] for facts in train(draw, model=model) if "again" in facts] == []


def test_seeding_is_put_back_and_goes_on_working():
    original = torch.manual_seed
    train(lambda step: (X, Y), 2)
    assert torch.manual_seed is original
    assert torch.manual_seed(3) is torch.default_generator


def test_an_input_that_stands_out_is_told_of_between_looks(monkeypatch):
    monkeypatch.setattr("seismograd.onlookers.data.batches._EARLY", 8)
    monkeypatch.setattr("seismograd.lookout.DENSE", 8)
    monkeypatch.setattr("seismograd.governor.Governor._tables_are_due", lambda self, step: False)
    told = train(lambda step: (X * (100.0 if step == 30 else 1.0), Y), steps=40)
    deviations = [facts["inputs"]["Linear"]["std"] for facts in told]
    assert len(deviations) < 15
    assert sum(deviation > 10 for deviation in deviations) == 1


def test_a_second_input_of_the_step_does_not_stand_out(monkeypatch):
    """A critic sees what is real, then what is made."""
    monkeypatch.setattr("seismograd.onlookers.data.batches._EARLY", 8)
    monkeypatch.setattr("seismograd.lookout.DENSE", 8)
    monkeypatch.setattr("seismograd.governor.Governor._tables_are_due", lambda self, step: False)
    model, memory = nn.Linear(3, 1), Memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(30):
            optimizer.zero_grad()
            (model(X).mean() - model(0.01 * X).mean()).backward()
            optimizer.step()
    told = [
        reading.facts["batches"]["inputs"]
        for reading in memory.readings
        if "inputs" in reading.facts.get("batches", ())
    ]
    assert told
    assert all(inputs["Linear"]["std"] > 0.5 for inputs in told)
