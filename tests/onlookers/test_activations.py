"""Units of real loops: where they lie, how they are named and counted, and that nothing is kept."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import seismograd as sg
from seismograd import sinks
from seismograd.onlookers.values.activations import Activations


def facts(model, batch, steps=3, loss=lambda out: out.square().mean(), monkeypatch=None):
    """What is told of the layers at the last look, by name."""
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Activations,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    memory = sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(batch() if callable(batch) else batch)).backward()
            optimizer.step()
    told = [reading.facts["activations"] for reading in memory.readings if "activations" in reading.facts]
    return {layer["name"]: layer for layer in told[-1]["layers"]} if told else {}


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.one, self.two, self.out = nn.Linear(6, 20), nn.Linear(20, 12), nn.Linear(12, 2)

    def forward(self, x):
        x = self.act(self.bn(self.conv(x)))
        x = F.relu(self.one(x.mean((2, 3))))
        return self.out(torch.tanh(F.relu(self.two(x))))


def test_modules_and_functional_calls(monkeypatch):
    torch.manual_seed(0)
    told = facts(Functional(), torch.randn(16, 1, 8, 8), monkeypatch=monkeypatch)
    assert {name: (layer["after"], layer["units"]) for name, layer in told.items()} == {
        "act": ("bn", 6),
        "relu 1": ("one", 20),
        "relu 2": ("two", 12),
    }
    assert {layer["samples"] for layer in told.values()} == {48}
    assert told["act"]["fired"] == 6
    assert not any(layer["last"] or layer["gate"] for layer in told.values())


def test_dead_units_are_counted_over_the_window(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
    with torch.no_grad():
        model[0].bias[:7] = -100.0
    few = facts(model, lambda: torch.randn(32, 5), steps=7, monkeypatch=monkeypatch)["1"]
    assert (few["dead"], few["never"], few["still"]) == (0, 7, 0)
    many = facts(model, lambda: torch.randn(32, 5), steps=8, monkeypatch=monkeypatch)["1"]
    assert (many["dead"], many["never"], many["samples"], many["looks"]) == (7, 7, 256, 8)
    assert many["blocks"] is None


def test_a_unit_that_fires_once_is_alive(monkeypatch):
    model = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
    inputs = iter([1.0, *[-1.0] * 20])
    told = facts(model, lambda: torch.full((64, 1), next(inputs)), steps=5, monkeypatch=monkeypatch)["1"]
    assert (told["dead"], told["never"], told["still"], told["fired"], told["blocks"]) == (4, 0, 256, 0, True)


def test_a_branch_does_not_block(monkeypatch):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner, self.back = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            nn.init.constant_(self.inner.bias, -100.0)

        def forward(self, x):
            x = self.first(x)
            return x + self.back(F.relu(self.inner(x)))

    told = facts(Residual(), torch.randn(8, 4), monkeypatch=monkeypatch)["relu 1"]
    assert (told["fired"], told["blocks"], told["last"]) == (0, False, False)


def test_uses_of_one_layer_share_their_units(monkeypatch):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.Linear(6, 5), nn.Linear(5, 1)

        def forward(self, x):
            h = torch.zeros(len(x), 5)
            for t in range(4):
                h = torch.tanh(self.cell(torch.cat([x[:, t], h], 1)))
            return self.out(h)

    told = facts(Recurrent(), torch.randn(8, 4, 1), monkeypatch=monkeypatch)
    assert list(told) == ["tanh 1"]
    assert (told["tanh 1"]["samples"], told["tanh 1"]["units"]) == (3 * 4 * 8, 5)


@pytest.mark.parametrize(
    ("layers", "shape", "units"),
    [
        ([nn.Linear(5, 7), nn.ReLU()], (4, 3, 5), 7),
        ([nn.Conv1d(3, 7, 3), nn.ReLU6(inplace=True)], (4, 3, 9), 7),
        ([nn.Conv2d(3, 7, 3), nn.MaxPool2d(2), nn.SiLU()], (4, 3, 9, 9), 7),
        ([nn.Conv2d(3, 7, 3), nn.Flatten(2), nn.GELU()], (4, 3, 9, 9), 7),
        ([nn.Linear(5, 7), nn.LayerNorm(7), nn.Dropout(0.5), nn.Mish()], (4, 5), 7),
        ([nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7), nn.Hardtanh()], (4, 5), 7),
        ([nn.Linear(5, 8), nn.Unflatten(1, (2, 4)), nn.ReLU()], (4, 5), None),
        ([nn.ReLU()], (4, 5), None),
        ([nn.Linear(5, 7), nn.LeakyReLU()], (4, 5), None),
    ],
    ids=["tokens", "conv1d", "pool", "flat", "norm", "batch-norm", "unclear", "no layer", "leaky"],
)
def test_where_the_units_are(layers, shape, units, monkeypatch):
    model = nn.Sequential(nn.Identity(), *layers, nn.Flatten(1), nn.LazyLinear(1))
    model(torch.randn(shape))
    told = facts(model, torch.randn(shape), monkeypatch=monkeypatch)
    assert [layer["units"] for layer in told.values()] == ([] if units is None else [units])


def test_an_axis_that_was_moved(monkeypatch):
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.out = nn.Linear(6, 9), nn.Linear(5, 1)

        def forward(self, x):
            return self.out(F.gelu(self.mix(x.transpose(1, 2)).transpose(1, 2)))

    assert facts(Mixer(), torch.randn(4, 6, 5), monkeypatch=monkeypatch)["gelu 1"]["units"] == 9


def test_saturation_gates_and_outputs(monkeypatch):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.value, self.gate, self.out = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 1)
            nn.init.constant_(self.value.bias, 50.0)

        def forward(self, x):
            x = torch.tanh(self.value(x)) + torch.sigmoid(self.gate(x)) * self.gate(x)
            return torch.sigmoid(self.out(x))

    told = facts(Gated(), torch.randn(16, 4), monkeypatch=monkeypatch)
    assert (told["tanh 1"]["flat"], told["tanh 1"]["stuck"], told["tanh 1"]["gate"]) == (8, 8, False)
    assert (told["sigmoid 1"]["flat"], told["sigmoid 1"]["gate"]) == (0, True)
    assert [layer["last"] for layer in told.values()] == [False, False, True]


def test_what_would_be_computed_again_is_left_alone(monkeypatch):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 1)

        def forward(self, x):
            return self.out(checkpoint(self.body, x, use_reentrant=False))

    assert facts(Checkpointed(), torch.randn(8, 4), monkeypatch=monkeypatch) == {}


def test_nan_is_no_proof_of_death(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    batch = torch.full((8, 4), float("nan"))
    told = facts(model, batch, monkeypatch=monkeypatch, loss=lambda out: out.nan_to_num().mean())
    assert told["1"]["fired"] == 8


def test_nothing_is_kept_alive(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Activations,))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    kept = []
    model[1].register_forward_hook(lambda module, args, output: kept.append(weakref.ref(output)))
    with sg.watch(model, optimizer, sinks=[]):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).mean().backward()
            optimizer.step()
        gc.collect()
        assert [reference() for reference in kept] == [None] * 3


class ByHand(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.one, self.two = nn.Parameter(fill(5, 12)), nn.Parameter(fill(12, 3))

    def forward(self, x):
        return torch.sigmoid(x @ self.one) @ self.two


@pytest.mark.parametrize(("fill", "alike"), [(torch.zeros, True), (torch.ones, True), (torch.randn, False)])
def test_units_that_are_alike(fill, alike, monkeypatch):
    torch.manual_seed(0)
    told = facts(ByHand(fill), lambda: torch.randn(16, 5), steps=6, monkeypatch=monkeypatch)
    assert told["sigmoid 1"]["alike"] is alike


def test_the_shares_of_dead_and_saturated_units_are_a_table_over_layers(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Activations,))
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].bias[:7] = -100.0
        model[2].bias[:1] = 100.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    memory = sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(32, 5)).square().mean().backward()
            optimizer.step()
    table = [reading.tensors["activation"] for reading in memory.readings if "activation" in reading.tensors][-1]
    assert table.names == ("1", "3")
    assert table.row("1")["dead"] == 0.7
    assert table.row("3")["saturated"] == 0.25
    assert math.isnan(table.row("1")["saturated"])
    assert math.isnan(table.row("3")["dead"])
