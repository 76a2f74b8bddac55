"""A run that goes well and one that turns to NaN, watched by the sinks that a test is about."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

import seismograd as sg

STEPS = 12
BAD = 7


def train(*sinks: Any, sick: bool, steps: int = STEPS, each: Any = None, **options: Any) -> sg.TrainingDebugger:
    """Trains a small model; if `sick`, its loss is NaN from step `BAD` on. `each` is called after every step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 4)
    targets = inputs.sum(1, keepdim=True)
    with sg.watch(model, optimizer, sinks=list(sinks), name="training", **options) as watch:
        for step in range(steps):
            loss = nn.functional.mse_loss(model(inputs), targets)
            if sick and step >= BAD:
                loss = loss * math.nan
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if each is not None:
                each(step, loss.item())
    return watch
