"""Healthy: layers written by hand that begin well enough, gates held by their biases, slow starts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import healthy
from patients.sick_by_hand import ByHand


@healthy()
def kaiming_by_hand() -> sg.TrainingDebugger:
    """As in the numpy tutorial, with the root of the fan-in."""
    model = ByHand(20, 64, 64, 4, fill=lambda a, b: torch.randn(a, b) * math.sqrt(2 / a), squash=torch.relu)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 150)


@healthy()
def two_layers_of_the_tutorial() -> sg.TrainingDebugger:
    """`torch.randn` weights and a sum of squares: the loss begins at 30,000,000, and falls to nothing."""
    x, y = torch.randn(64, 1000), torch.randn(64, 10)
    model = ByHand(1000, 200, 10, fill=torch.randn, squash=torch.relu)
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-7)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(150):
            optimizer.zero_grad()
            (model(x) - y).pow(2).sum().backward()
            optimizer.step()
    return watch


class Equalised(nn.Module):
    """Weights of deviation 1, scaled when they are used."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(other, one)), math.sqrt(2 / one)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.scale)


@healthy()
def scaled_when_used() -> sg.TrainingDebugger:
    """StyleGAN's layers, at the rate that fits them."""
    model = nn.Sequential(Equalised(20, 256), nn.ReLU(), Equalised(256, 256), nn.ReLU(), Equalised(256, 4))
    return fit(model, torch.optim.Adam(model.parameters(), lr=0.02), *data.blobs(), 150)


@healthy()
def gates_held_open_by_their_biases() -> sg.TrainingDebugger:
    """A highway network whose gates start at 0.998: each layer begins as hardly more than its input."""

    class Highway(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(20, 32), nn.Linear(32, 4)
            self.value, self.gate = nn.Linear(32, 32), nn.Linear(32, 32)
            nn.init.constant_(self.gate.bias, 6.0)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.into(x))
            gate = torch.sigmoid(self.gate(x))
            return self.out(gate * x + (1 - gate) * torch.relu(self.value(x)))

    model = Highway()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 150)


@healthy()
def head_behind_a_zero_layer() -> sg.TrainingDebugger:
    """A hidden layer that starts at zero: all its units are one at the first step, and none after it."""
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 4))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), *data.blobs(), 100)


@healthy()
def long_warm_up() -> sg.TrainingDebugger:
    """Over 2,000 steps, of which 350 are done: slow, and it learns."""
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 2_000))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 350):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
    return watch


@healthy()
def backbone_at_a_hundredth() -> sg.TrainingDebugger:
    """Two groups, one at a hundredth of the other's rate."""
    model = mlp(20, 64, 64, 64, 4)
    groups = [{"params": model[:4].parameters(), "lr": 1e-5}, {"params": model[4:].parameters()}]
    return fit(model, torch.optim.Adam(groups, lr=1e-3), *data.blobs(), 150)


@healthy()
def last_symbol_by_a_long_cell() -> sg.TrainingDebugger:
    """A plain recurrent cell over 40 symbols, of which the last counts: nothing far back is needed."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(4, 8), nn.RNN(8, 24, batch_first=True), nn.Linear(24, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.rnn(self.embed(tokens))[0][:, -1])

    model = Last()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(140):
            tokens = torch.randint(0, 4, (32, 40))
            optimizer.zero_grad()
            F.cross_entropy(model(tokens), tokens[:, -1]).backward()
            optimizer.step()
    return watch
