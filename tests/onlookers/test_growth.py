"""Old graphs below what is kept: how many steps, through which variable, and on which line it gets its value."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd import sinks
from seismograd.onlookers.resources.variables import with_graph


class Meter:
    def __init__(self):
        self.sum = 0.0

    def add(self, value):
        self.sum += value


class Carrier(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 8)
        self.state = None

    def forward(self, x):
        self.state = self.cell(x, self.state)
        return self.state


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def train(model, optimizer, after, steps=26, before=lambda loss: loss, **more):
    """Trains, calls `after(loss)` at the end of each step, and returns the findings of a growing graph."""
    memory = sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory]) as watch:
        for _ in range(steps):
            loss = before(model(torch.randn(6, 4)).square().mean())
            optimizer.zero_grad()
            loss.backward(**more)
            optimizer.step()
            after(loss)
    return [finding for finding in watch.findings if finding.id == "growing-graph"]


def test_the_total_is_named_with_its_line_after_some_ten_steps():
    model, optimizer = parts()
    total = 0.0
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(14):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss
    (finding,) = [finding for finding in watch.findings if finding.id == "growing-graph"]
    assert finding.evidence["variable"] == "total"
    assert finding.where.code == "total += loss"
    assert finding.where.file.endswith("test_growth.py")
    assert finding.step <= 12


def test_an_attribute_of_an_object():
    meter = Meter()
    (finding,) = train(*parts(), after=meter.add)
    assert finding.evidence["variable"].endswith("meter.sum")
    assert finding.where.code == "self.sum += value"


def test_an_item_of_a_dict():
    model, optimizer = parts()
    metrics = {"loss": 0.0}
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(14):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics["loss"] = metrics["loss"] + loss
    (finding,) = [finding for finding in watch.findings if finding.id == "growing-graph"]
    assert finding.evidence["variable"] == "metrics['loss']"
    assert finding.where.code == 'metrics["loss"] = metrics["loss"] + loss'


def test_a_list_of_losses_is_not_a_chain():
    kept = []
    assert train(*parts(), after=kept.append) == []
    assert len(kept) == 26


def test_a_chain_that_waits_for_its_backward():
    """Another model's steps go by while log-probabilities are added up: nobody has been through them yet."""
    model, optimizer = parts()
    policy, gain = nn.Linear(4, 2), torch.zeros(())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(30):
            x = torch.randn(6, 4)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            gain = gain - F.log_softmax(policy(x), 1)[:, 0].mean()
    assert [finding for finding in watch.findings if finding.id == "growing-graph"] == []


def test_a_state_that_the_model_keeps_refuses_backward():
    model = Carrier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with pytest.raises(RuntimeError, match="a second time"), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        for _ in range(5):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (finding,) = [finding for finding in watch.findings if finding.id == "growing-graph"]
    assert finding.evidence["variable"] == "model.state"
    assert finding.where.code == "self.state = self.cell(x, self.state)"
    assert finding.step == 1
    assert finding.severity is sg.Severity.CRITICAL


def test_a_graph_that_is_made_once_and_used_twice_is_another_fault():
    model, optimizer = parts()
    scaled = torch.randn(6, 4) * torch.ones(4, requires_grad=True).exp()
    with pytest.raises(RuntimeError, match="a second time"), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        for _ in range(5):
            loss = model(scaled).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert [finding.id for finding in watch.findings if finding.id == "growing-graph"] == []


def test_a_second_backward_of_the_same_step_is_another_fault():
    model, optimizer = parts()
    with pytest.raises(RuntimeError, match="a second time"), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        for _ in range(5):
            loss = model(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            loss.backward()
    assert [finding.id for finding in watch.findings if finding.id == "growing-graph"] == []


def test_nothing_of_the_users_is_kept_alive():
    model, optimizer = parts()
    references = []
    with sg.watch(model, optimizer, sinks=[]):
        for _ in range(14):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            references.append(weakref.ref(loss))
            del loss
    gc.collect()
    assert [reference for reference in references if reference() is not None] == []


def test_variables_by_their_shortest_names():
    weight = torch.ones(2, requires_grad=True)
    first, nested, plain = weight * 2, {"a": [weight * 3]}, torch.ones(2)
    found = {variable.name: variable for variable, _ in with_graph(inspect.currentframe())}
    assert "first" in found
    assert "nested['a'][0]" in found
    assert "plain" not in found
    assert "weight" not in found
    assert found["first"].scope == "local of `test_variables_by_their_shortest_names`"
    assert found["first"].line()[2].startswith("first, nested, plain =")
    assert plain is not None
    assert first is not None
    assert nested is not None


def test_locals_are_not_changed_by_looking():
    weight = torch.ones(2, requires_grad=True)
    kept = weight * 2
    list(with_graph(sys._getframe()))
    assert kept is locals()["kept"]
    assert weight is locals()["weight"]


def test_a_chain_that_begins_late(monkeypatch):
    """Steps that are not all looked at: the names of the time before are enough."""
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)
    model, optimizer = parts()
    total = 0.0
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(130):
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step > 40:
                total += loss
    (finding,) = [finding for finding in watch.findings if finding.id == "growing-graph"]
    assert finding.evidence["variable"] == "total"
    assert finding.where.code == "total += loss"
