"""Sick: layers written by hand that begin badly, rates that lead nowhere, and memory that fades."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import sick


class ByHand(nn.Module):
    """Matrices of inputs times outputs, as they stand on the blackboard."""

    def __init__(self, *sizes: int, fill: Callable[..., Tensor], squash: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.weights = nn.ParameterList([nn.Parameter(fill(one, other)) for one, other in pairs])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(other)) for _, other in pairs])
        self.squash = squash

    def forward(self, x: Tensor) -> Tensor:
        for weight, bias in list(zip(self.weights, self.biases, strict=True))[:-1]:
            x = self.squash(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


@sick("bad-initialization")
def zeros_by_hand() -> sg.TrainingDebugger:
    """All zero, and a sigmoid: the last matrix gets a gradient, and all hidden units stay one."""
    model = ByHand(20, 32, 4, fill=torch.zeros, squash=torch.sigmoid)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.1), *data.blobs(), 60)


@sick("bad-initialization")
def randn_by_hand() -> sg.TrainingDebugger:
    """`torch.randn` as it is, 64 wide: a first loss of hundreds."""
    model = ByHand(20, 64, 64, 4, fill=torch.randn, squash=torch.relu)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-4), *data.blobs(), 60)


@sick("saturated-units", "bad-initialization")
def gates_that_are_never_soft() -> sg.TrainingDebugger:
    """The gates' weights start with a deviation of 30: 0 or 1, as the sample would have it."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value, self.gate = nn.Linear(20, 32), nn.Linear(20, 32)
            self.head = nn.Linear(32, 4)
            nn.init.normal_(self.gate.weight, std=30.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.sigmoid(self.gate(x)) * self.value(x))

    model = Gated()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 60)


@sick("lr-too-low", "lr-jump")
def warm_up_longer_than_the_run() -> sg.TrainingDebugger:
    """Over 1,000,000 steps, of which 350 are done."""
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1_000_000))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 350):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
    return watch


@sick("update-ratio-low", "frozen-parameter")
def group_rate_with_a_typo() -> sg.TrainingDebugger:
    """1e-13 for 1e-3: the first half of the model stays as it was born."""
    model = mlp(20, 64, 64, 64, 4)
    groups = [{"params": model[:4].parameters(), "lr": 1e-13}, {"params": model[4:].parameters()}]
    return fit(model, torch.optim.Adam(groups, lr=1e-3), *data.blobs(), 80)


@sick("gradient-vanishing")
def first_symbol_forgotten() -> sg.TrainingDebugger:
    """The label is the first of 40 symbols, and the recurrent weights are small."""

    class Recall(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell, self.head = nn.Embedding(4, 8), nn.RNNCell(8, 24), nn.Linear(24, 4)
            nn.init.uniform_(self.cell.weight_hh, -0.05, 0.05)

        def forward(self, tokens: Tensor) -> Tensor:
            h = torch.zeros(len(tokens), 24)
            for step in range(tokens.shape[1]):
                h = self.cell(self.embed(tokens[:, step]), h)
            return self.head(h)

    model = Recall()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(140):
            tokens = torch.randint(0, 4, (32, 40))
            optimizer.zero_grad()
            F.cross_entropy(model(tokens), tokens[:, 0]).backward()
            optimizer.step()
    return watch
