"""Onlookers: what they hear, in which order, and that one that fails is dropped."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.onlookers.onlooker import Onlooker
from seismograd.records import Reading
from seismograd.sinks import Memory


class Everything(Onlooker):
    topic = "everything"

    def __init__(self, watched):
        super().__init__(watched)
        self.heard: list[str] = []
        self.graphs: list[list[tuple[str, str | None]]] = []

    def backward_starts(self, roots, graph):
        self.heard.append("backward")
        if graph is not None:
            self.graphs.append([(node.name, node.module) for node in graph.nodes if node.leaf is None])

    def facts(self, values, step):
        heard, self.heard = self.heard, []
        graphs, self.graphs = self.graphs, []
        return {"heard": heard, "graphs": graphs} if heard else None


def _hears(event: str):
    def hear(self, *args, **kwargs):
        self.heard.append(event)

    return hear


for _event in ("module_starts", "loss_computed", "step_starts", "cleared", "clipped", "scheduled", "data_came"):
    setattr(Everything, _event, _hears(_event))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def train(steps: int, onlookers, monkeypatch) -> list[Reading]:
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", onlookers)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    loader = DataLoader(TensorDataset(torch.randn(64, 3), torch.randn(64, 1)), batch_size=64)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(steps):
            for x, y in loader:
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
    return [reading for reading in memory.readings if reading.facts]


def test_events_come_in_their_order(monkeypatch):
    first, second, *_ = train(4, (Everything,), monkeypatch)
    events = ["data_came", "cleared", "module_starts", "loss_computed", "backward", "clipped", "step_starts"]
    assert first.facts["everything"]["heard"] == [*events, "scheduled", "data_came", "cleared"]
    assert second.facts["everything"]["heard"] == [*events[2:], "scheduled", "data_came", "cleared"]
    assert (first.step, second.step, first.scalars) == (0, 1, {})


def test_the_graph_knows_modules_and_functional_calls(monkeypatch):
    first, *_ = train(1, (Everything,), monkeypatch)
    (graph,) = first.facts["everything"]["graphs"]
    assert ("Relu", "") in graph  # in the forward of the model itself
    assert ("Tanh", "second.0") in graph
    assert ("Addmm", "first") in graph
    assert ("Addmm", "second.1") in graph
    assert ("MseLoss", None) in graph


def test_one_that_fails_is_dropped(monkeypatch):
    class Broken(Onlooker):
        topic = "broken"

        def step_starts(self, optimizer):
            raise ValueError("broken on purpose")

    with pytest.warns(RuntimeWarning, match="the probe of broken failed"):
        readings = train(3, (Broken, Everything), monkeypatch)
    assert len(readings) == 3


def test_dear_ones_hear_less(monkeypatch):
    class Dear(Everything):
        topic, dear = "dear", True

    readings = train(40, (Everything, Dear), monkeypatch)
    assert sum("everything" in reading.facts for reading in readings) == 40
    assert 24 <= sum("dear" in reading.facts for reading in readings) < 35
