"""How far the samples of a batch lie apart before and after the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd import sinks
from seismograd.onlookers.values.outputs import Outputs


def facts(model, call, steps=3, monkeypatch=None):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Outputs,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    memory = sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(steps):
            optimizer.zero_grad()
            call(model).backward()
            optimizer.step()
    told = [reading.facts["outputs"] for reading in memory.readings if "outputs" in reading.facts]
    return told[-1] if told else {}


def test_samples_that_differ_and_outputs_that_do_not(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    nn.init.zeros_(model[0].weight)
    model[0].weight.requires_grad_(False)
    told = facts(model, lambda model: model(torch.randn(8, 3)).sum(), monkeypatch=monkeypatch)
    (seen,) = told["models"]
    assert (seen["name"], seen["rows"], seen["spread"]) == ("Sequential", 8, 0.0)
    assert seen["inputs"] > 1.0
    assert seen["size"] > 0.0
    assert told["samples"] == 24


def test_the_same_batch_again_is_no_new_sample(monkeypatch):
    x = torch.randn(8, 3)
    told = facts(nn.Linear(3, 1), lambda model: model(x[torch.randperm(8)]).sum(), monkeypatch=monkeypatch)
    assert told["samples"] == 8


def test_one_fixed_input(monkeypatch):
    x = torch.randn(1, 3).expand(8, 3)
    (seen,) = facts(nn.Linear(3, 1), lambda model: model(x).sum(), monkeypatch=monkeypatch)["models"]
    assert seen["inputs"] == 0.0


@pytest.mark.parametrize("rows", [1, 5])
def test_batches_of_one_and_scalars_are_not_compared(rows, monkeypatch):
    class Scalar(nn.Linear):
        def forward(self, x):
            return super().forward(x).mean()

    model = nn.Linear(3, 1) if rows == 1 else Scalar(3, 1)
    assert facts(model, lambda model: model(torch.randn(rows, 3)).sum(), monkeypatch=monkeypatch) == {}


def test_dictionaries_and_several_outputs(monkeypatch):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.spread = nn.Linear(3, 2), nn.Parameter(torch.zeros(2))

        def forward(self, batch):
            mean = self.mean(batch["state"])
            return {"loss": mean.mean(), "mean": mean, "spread": self.spread.expand_as(mean)}

    def call(model):
        out = model({"ids": torch.arange(6), "state": torch.randn(6, 3)})
        return out["mean"].sum() + out["spread"].sum()

    (seen,) = facts(Policy(), call, monkeypatch=monkeypatch)["models"]
    assert seen["spread"] > 0.1


def test_a_softmax_over_one_element(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 1), nn.Softmax(dim=-1))
    told = facts(model, lambda model: model(torch.randn(8, 3)).sum(), monkeypatch=monkeypatch)
    assert told["singles"] == [{"module": "1", "op": "aten.softmax", "shape": [8, 1]}]
    zeros = torch.zeros(8, dtype=torch.long)
    call = lambda model: F.cross_entropy(model(torch.randn(8, 3)), zeros)  # noqa: E731
    told = facts(nn.Linear(3, 1), call, monkeypatch=monkeypatch)
    assert [single["module"] for single in told["singles"]] == [None]
    assert facts(nn.Linear(3, 2), call, monkeypatch=monkeypatch)["singles"] == []


def test_attention_over_one_element_is_none_of_it(monkeypatch):
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.head = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, bag):
            return (torch.softmax(self.score(bag), 1) * self.head(bag)).sum(1)

    told = facts(Pool(), lambda model: model(torch.randn(8, 1, 3)).sum(), monkeypatch=monkeypatch)
    assert told["singles"] == []
