"""Layers written by hand: how many inputs a unit has, as the use of its weight shows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd import sinks


def gains(model, batch, steps=2):
    """The gain over the spread, squared, of each parameter that has one: its fan-in."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    memory = sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    table = next(reading.tensors["parameter"] for reading in memory.readings if "parameter" in reading.tensors)
    found = zip(table.names, table.columns["gain"], table.columns["std"], strict=True)
    return {name: round(float(gain / std) ** 2) for name, gain, std in found if not math.isnan(gain)}


class One(nn.Module):
    def __init__(self, shape, use):
        super().__init__()
        self.w, self.use = nn.Parameter(torch.randn(*shape)), use

    def forward(self, x):
        return self.use(x, self.w)


@pytest.mark.parametrize(
    ("shape", "use", "fan_in"),
    [
        ((8, 3), lambda x, w: x @ w, 8),
        ((8, 3), lambda x, w: (w.T @ x.T).T, 8),
        ((3, 8), F.linear, 8),
        ((8, 3), lambda x, w: torch.einsum("bi,ij->bj", x, w), 8),
        ((8, 3), lambda x, w: torch.tensordot(x, w, 1), 8),
        ((8, 3), lambda x, w: x[:, None].expand(-1, 4, -1) @ w, 8),
        ((2, 8, 3), lambda x, w: torch.einsum("bi,eij->ebj", x, w), 8),
        ((4, 1, 3), lambda x, w: F.conv1d(x[:, None], w), 3),
    ],
    ids=["product", "from the left", "linear", "einsum", "tensordot", "sequence", "experts", "convolution"],
)
def test_fan_in_by_use(shape, use, fan_in):
    torch.manual_seed(0)
    assert gains(One(shape, use), torch.randn(5, 8)) == {"w": fan_in}


@pytest.mark.parametrize(
    ("shape", "use"),
    [
        ((8, 8), lambda x, w: x * w[0]),
        ((8, 3), lambda x, w: x @ (w / 8)),  # scaled before it is used
        ((8, 3), lambda x, w: x @ w @ w.T + x @ (w @ w.T)),  # also one of two factors
        ((8, 3), lambda x, w: F.embedding(x.long().clamp(0, 7), w) @ w.T),  # a tied embedding
    ],
    ids=["no product", "scaled", "factors", "tied"],
)
def test_other_uses_have_none(shape, use):
    torch.manual_seed(0)
    assert gains(One(shape, use), torch.rand(5, 8)) == {}


def test_recurrent_layers_are_known():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 6, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    assert gains(Net(), torch.randn(2, 5, 4)) == {"lstm.weight_ih_l0": 4, "lstm.weight_hh_l0": 6}


def test_it_stays_known_when_the_optimizer_gets_more():
    torch.manual_seed(0)
    model, late = One((8, 3), lambda x, w: x @ w), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for step in range(6):
            if step == 3:
                optimizer.add_param_group({"params": [late]})
            optimizer.zero_grad()
            (model(torch.randn(5, 8)) + late).square().mean().backward()
            optimizer.step()
    tables = [reading.tensors["parameter"] for reading in memory.readings if "parameter" in reading.tensors]
    assert len(tables[-1].names) == 2
    assert tables[-1].row("w")["gain"] > 0.0


class Cell(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(3, 5)

    def forward(self, x):
        h = torch.zeros(len(x), 5)
        for at in range(x.shape[1]):
            h = self.cell(x[:, at], h)
        return h


@pytest.mark.parametrize(
    ("model", "length", "loops"),
    [
        (lambda: Cell(nn.RNNCell), 20, {"cell.weight_hh": 20}),
        (lambda: Cell(nn.RNNCell), 10, {}),
        (lambda: Cell(nn.GRUCell), 20, {}),
    ],
    ids=["rnn", "short", "gru"],
)
def test_loops_of_recurrent_cells(model, length, loops):
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    memory = sinks.Memory()
    with sg.watch(net, optimizer, sinks=[memory]):
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.randn(4, length, 3)).square().mean().backward()
            optimizer.step()
    told = [reading.facts["uses"]["loops"] for reading in memory.readings if "uses" in reading.facts]
    assert (told[0] if told else {}) == loops
