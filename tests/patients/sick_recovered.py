"""Sick: runs that go on only because they are recovered again and again."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import sick


@sick("repeated-recovery", "nonfinite-input")
def every_seventh_file_is_broken() -> sg.TrainingDebugger:
    """A broken image in every seventh batch, skipped each time."""
    x, y = data.blobs()
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, recovery={"nonfinite-*": "skip"}, sinks=[]) as watch:
        for step in range(140):
            batch = x[step % 4 * 64 :][:64].clone()
            if step % 7 == 3:
                batch[5, 2] = math.nan
            optimizer.zero_grad()
            F.cross_entropy(model(batch), y[step % 4 * 64 :][:64]).backward()
            optimizer.step()
    return watch


@sick("repeated-recovery", "nonfinite-gradient", "nonfinite-loss", "nonfinite-activation")
def a_loss_that_is_often_undefined() -> sg.TrainingDebugger:
    """The logarithm of a share that is 0 in half of the batches: what is left trains on half of the data."""
    x, y = data.blobs()
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, recovery={"critical": "skip"}, sinks=[]) as watch:
        for step in range(120):
            share = torch.tensor(float(step % 2))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) * (share.log() + 1.0)
            loss.backward()
            optimizer.step()
    return watch
