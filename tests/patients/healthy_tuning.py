"""Healthy: pretrained models trained further, and runs that are validated."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import pretrained
from patients.register import healthy


@healthy()
def frozen_backbone() -> sg.TrainingDebugger:
    model, x, y = pretrained()
    model.requires_grad_(False)
    model[-1] = nn.Linear(64, 4)
    return fit(model, torch.optim.Adam(model[-1].parameters(), lr=1e-3), x, 3 - y)


@healthy()
def frozen_but_in_the_optimizer() -> sg.TrainingDebugger:
    """All parameters are handed to the optimizer, most of them frozen: common, and harmless."""
    model, x, y = pretrained()
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-3), x, 3 - y)


@healthy()
def fine_tuning_tiny_rate() -> sg.TrainingDebugger:
    """A trained model, AdamW at 1e-5, slightly other data: the loss falls by a few percent, as it should."""
    model, x, y = pretrained()
    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-5), x + 0.3, y, 400)


@healthy()
def fine_tuning_tiniest_rate() -> sg.TrainingDebugger:
    """A second round of fine-tuning at 1e-6: hardly anything moves, and that is what was wanted."""
    model, x, y = pretrained()
    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-6), x, y, 400)


class LoRA(nn.Module):
    """A frozen linear layer with a low-rank change, whose B starts at zero."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * x @ self.A.T @ self.B.T


@healthy()
def lora() -> sg.TrainingDebugger:
    model, x, y = pretrained()
    for at in (0, 2, 4):
        model[at] = LoRA(model[at])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    return fit(model, optimizer, x, 3 - y, 400)


@healthy()
def lora_small_rate() -> sg.TrainingDebugger:
    """LoRA at 2e-4 on data that the model nearly knows."""
    model, x, y = pretrained()
    for at in (0, 2, 4):
        model[at] = LoRA(model[at])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    return fit(model, optimizer, x + 0.2, y, 400)


@healthy()
def textual_inversion() -> sg.TrainingDebugger:
    """One new word is learned; the optimizer holds the whole embedding, and all other words are put back after each
    step, as diffusers' script does it."""
    torch.manual_seed(0)
    words, rest = nn.Embedding(20, 16), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    rest.requires_grad_(False)
    model, kept = nn.Sequential(words, rest), words.weight.detach().clone()
    optimizer = torch.optim.AdamW(words.parameters(), lr=5e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.full((8,), 19)), torch.randint(0, 2, (8,))).backward()
            optimizer.step()
            with torch.no_grad():
                words.weight[:19] = kept[:19]
    return watch


@healthy()
def dropout_and_validation() -> sg.TrainingDebugger:
    """Heavy dropout: the training loss stays above the validation loss."""
    x, y = data.blobs(900, 20, 4)
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(20):
            model.train()
            for xb, yb in data.loader(x[:600], y[:600]):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                watch.validate(F.cross_entropy(model(x[600:]), y[600:]))
    return watch


@healthy()
def usual_generalisation_gap() -> sg.TrainingDebugger:
    """Training goes to 0.05, validation levels off at 0.4 and wobbles there."""
    x, y = data.blobs(800, 20, 4, spread=1.0)
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(25):
            for xb, yb in data.loader(x[:600], y[:600]):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            with torch.no_grad():
                watch.validate(F.cross_entropy(model(x[600:]), y[600:]))
    return watch


@healthy()
def noisy_validation() -> sg.TrainingDebugger:
    """Validated on one small random batch each time: up and down by a third."""
    x, y = data.regression(800, noise=0.4)
    model = mlp(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(30):
            for xb, yb in data.loader(x[:600], y[:600], 64):
                optimizer.zero_grad()
                F.mse_loss(model(xb), yb).backward()
                optimizer.step()
            at = 600 + torch.randint(0, 200, (16,))
            with torch.no_grad():
                watch.validate(F.mse_loss(model(x[at]), y[at]))
    return watch


@healthy()
def early_stopping() -> sg.TrainingDebugger:
    """Stops after three validations without a better one: the little rise at the end is what it waits for."""
    x, y = data.regression(400, noise=0.3)
    model = mlp(10, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    best, patience = float("inf"), 0
    with sg.watch(model, optimizer, sinks=[]) as watch:
        while patience < 3:
            for xb, yb in data.loader(x[:200], y[:200]):
                optimizer.zero_grad()
                F.mse_loss(model(xb), yb).backward()
                optimizer.step()
            with torch.no_grad():
                value = float(F.mse_loss(model(x[200:]), y[200:]))
            watch.validate(value)
            best, patience = (value, 0) if value < best else (best, patience + 1)
    return watch
