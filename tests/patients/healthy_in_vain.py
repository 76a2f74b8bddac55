"""Healthy: outputs that nobody wants, losses that come later, encoders that were trained before, one odd batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy
from patients.sick_in_vain import Residual, TwoHeads, fit, segmentation, with_batches


@healthy()
def shortcut_that_is_added() -> sg.TrainingDebugger:
    return fit(nn.Sequential(Residual(8, 16, added=True), Residual(16, 16, added=True), nn.Linear(16, 3)))


@healthy()
def pooler_that_nobody_wants() -> sg.TrainingDebugger:
    """The model inside returns two things; the one around it takes the first."""

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = TwoHeads()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)[0]

    return fit(Around())


@healthy()
def auxiliary_loss_comes_later() -> sg.TrainingDebugger:
    """It is printed from the beginning, and added after a while."""
    x, y = data.blobs(256, 8, 3)
    model = TwoHeads()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 120)):
            logits, again = model(xb)
            loss, aux = F.cross_entropy(logits, yb), F.mse_loss(again, xb)
            optimizer.zero_grad()
            (loss + 0.5 * aux if step >= 60 else loss).backward()
            optimizer.step()
    return watch


@healthy()
def encoder_trained_before() -> sg.TrainingDebugger:
    """Nobody froze it, and only the head is in the optimizer now."""
    x, y = data.blobs(256, 8, 3)
    encoder, head = mlp(8, 64, 16), mlp(16, 32, 3)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)
    for xb, yb in data.batches(x, y, 60):
        optimizer.zero_grad()
        F.cross_entropy(head(encoder(xb)), yb).backward()
        optimizer.step()
    head = mlp(16, 32, 3)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    with sg.watch({"encoder": encoder, "head": head}, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            optimizer.zero_grad()
            F.cross_entropy(head(encoder(xb)), yb).backward()
            optimizer.step()
    return watch


@healthy()
def two_odd_batches() -> sg.TrainingDebugger:
    return with_batches(lambda step, x: 12.0 * x if step in (80, 150) else x)


@healthy()
def spots_that_stand_out() -> sg.TrainingDebugger:
    return segmentation(4.0)


@healthy()
def sigmoid_before_the_clamp() -> sg.TrainingDebugger:
    x, y = data.blobs(256, 8, 2)
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            optimizer.zero_grad()
            output = model(xb).sigmoid().clamp(1e-6, 1 - 1e-6)
            F.binary_cross_entropy(output, yb.float().unsqueeze(1)).backward()
            optimizer.step()
    return watch
