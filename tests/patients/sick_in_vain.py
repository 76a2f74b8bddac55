"""Sick: what is computed for nothing, held by nobody, or stepped with now and then; and data that are broken here and
there."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import sick


class Residual(nn.Module):
    """A block with a shortcut; `added` says whether it is used."""

    def __init__(self, width: int, out: int, *, added: bool) -> None:
        super().__init__()
        self.body, self.shortcut, self.added = nn.Linear(width, out), nn.Linear(width, out), added

    def forward(self, x: Tensor) -> Tensor:
        identity = self.shortcut(x)
        x = self.body(x)
        return torch.relu(x + identity if self.added else x)


class TwoHeads(nn.Module):
    """Two outputs of one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.main, self.aux = nn.Linear(8, 32), nn.Linear(32, 3), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.trunk(x))
        return self.main(hidden), self.aux(hidden)


def fit(model: nn.Module, steps: int = 40) -> sg.TrainingDebugger:
    x, y = data.blobs(256, 8, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, steps):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("unused-parameter")
def shortcut_never_added() -> sg.TrainingDebugger:
    return fit(nn.Sequential(Residual(8, 16, added=False), Residual(16, 16, added=False), nn.Linear(16, 3)))


@sick("detached-loss")
def auxiliary_loss_by_its_number() -> sg.TrainingDebugger:
    x, y = data.blobs(256, 8, 3)
    model = TwoHeads()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            logits, again = model(xb)
            optimizer.zero_grad()
            (F.cross_entropy(logits, yb) + 0.5 * F.mse_loss(again, xb).item()).backward()
            optimizer.step()
    return watch


@sick("unoptimized-parameter")
def encoder_that_nobody_trains() -> sg.TrainingDebugger:
    x, y = data.blobs(256, 8, 3)
    encoder, head = mlp(8, 64, 16), mlp(16, 32, 3)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    with sg.watch({"encoder": encoder, "head": head}, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            optimizer.zero_grad()
            F.cross_entropy(head(encoder(xb)), yb).backward()
            optimizer.step()
    return watch


@sick("missing-step")
def steps_only_when_better() -> sg.TrainingDebugger:
    x, y = torch.randn(400, 6), torch.randint(0, 2, (400,))
    model = mlp(6, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    best = float("inf")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            if loss.item() < 0.98 * best:
                best = loss.item()
                optimizer.step()
    return watch


@sick("accumulation-mismatch")
def sixteen_batches_summed() -> sg.TrainingDebugger:
    x, y = data.blobs(512, 8, 3)
    model = mlp(8, 32, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for at, (xb, yb) in enumerate(data.batches(x, y, 160), 1):
            F.cross_entropy(model(xb), yb).backward()
            if at % 16 == 0:
                optimizer.step()
                optimizer.zero_grad()
    return watch


@sick("input-drift")
def corrupt_now_and_then() -> sg.TrainingDebugger:
    return with_batches(lambda step, x: 300.0 * x if step > 20 and step % 30 == 0 else x)


@sick("input-drift")
def sensor_off() -> sg.TrainingDebugger:
    return with_batches(lambda step, x: torch.full_like(x, -40.0) if 100 <= step < 104 else x)


def with_batches(change, steps: int = 200) -> sg.TrainingDebugger:
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(steps):
            x = change(step, torch.randn(32, 8))
            y = torch.tanh(x.sum(1, keepdim=True))
            optimizer.zero_grad()
            F.huber_loss(model(x), y).backward()
            optimizer.step()
    return watch


@sick("class-imbalance")
def lesions_of_four_pixels() -> sg.TrainingDebugger:
    return segmentation(0.3)


def segmentation(signal: float) -> sg.TrainingDebugger:
    """Pictures of noise with a small spot; `signal` is how far it stands out."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(160):
            mask = torch.zeros(8, 16, 16, dtype=torch.long)
            for row, (i, j) in enumerate(torch.randint(0, 14, (8, 2)).tolist()):
                mask[row, i : i + 2, j : j + 2] = 1
            picture = signal * mask + torch.randn(8, 16, 16)
            optimizer.zero_grad()
            F.cross_entropy(model(picture.unsqueeze(1)), mask).backward()
            optimizer.step()
    return watch


@sick("loss-input-mismatch")
def clamped_logits() -> sg.TrainingDebugger:
    x, y = data.blobs(256, 8, 2)
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            optimizer.zero_grad()
            F.binary_cross_entropy(model(xb).clamp(0.0, 1.0), yb.float().unsqueeze(1)).backward()
            optimizer.step()
    return watch


@sick("unregistered-parameter")
def encoder_layers_in_a_plain_list() -> sg.TrainingDebugger:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3)]
            self.out = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x.unsqueeze(1)).squeeze(1)
            return self.out(x)

    return fit(Encoder())
