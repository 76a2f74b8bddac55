"""Healthy: batches that come again on purpose, inputs that change as they should."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy


@healthy()
def shuffled_first_batches() -> sg.TrainingDebugger:
    """`next(iter(loader))` in the loop, shuffled: another batch each time."""
    loader = data.loader(*data.blobs())
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(80):
            xb, yb = next(iter(loader))
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def loader_with_one_batch() -> sg.TrainingDebugger:
    """All the data is one batch; the same comes in every epoch."""
    x, y = data.regression(64)
    loader = DataLoader(TensorDataset(x, y), batch_size=64)
    model = mlp(10, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(100):
            for xb, yb in loader:
                optimizer.zero_grad()
                F.mse_loss(model(xb), yb).backward()
                optimizer.step()
    return watch


@healthy()
def one_batch_taken_before() -> sg.TrainingDebugger:
    """Can it learn one batch by heart? Taken once, before the loop."""
    x, y = data.blobs()
    xb, yb = next(iter(DataLoader(TensorDataset(x, y), batch_size=32)))
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(100):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def quick_check_on_the_first_batch() -> sg.TrainingDebugger:
    """After each step a look at the first validation batch, always the same."""
    x, y = data.blobs()
    train, val = data.loader(x[:400], y[:400]), DataLoader(TensorDataset(x[400:], y[400:]), batch_size=32)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            for xb, yb in train:
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
                with torch.no_grad():
                    xv, yv = next(iter(val))
                    F.cross_entropy(model(xv), yv)
    return watch


@healthy()
def seeded_for_equal_masks() -> sg.TrainingDebugger:
    """The seed is set at each step so that noise is the same for all; the data are not."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = list(data.batches(x, y, 80))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in batches:
            torch.manual_seed(3)
            optimizer.zero_grad()
            F.mse_loss(model(xb + 0.01 * torch.randn_like(xb)), yb).backward()
            optimizer.step()
    return watch


@healthy()
def inputs_that_grow_slowly() -> sg.TrainingDebugger:
    """An agent that gets further from home: its positions grow a hundredfold, by and by."""
    x, _ = data.regression()
    model = nn.Sequential(nn.Linear(10, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, torch.sign(x[:, :1]), 200)):
            optimizer.zero_grad()
            F.mse_loss(model(xb * 100.0 ** (step / 200)), yb).backward()
            optimizer.step()
    return watch


@healthy()
def two_broken_batches() -> sg.TrainingDebugger:
    """Two batches of 150 are a thousand times too large; gradients are clipped."""
    x, y = data.blobs()
    model = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 150)):
            optimizer.zero_grad()
            F.cross_entropy(model(1000.0 * xb if step in (40, 110) else xb), yb).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return watch


@healthy()
def features_with_heavy_tails() -> sg.TrainingDebugger:
    """Incomes and counts, raw: one sample may hold more than all others of its batch."""
    x = torch.exp(1.5 * torch.randn(600, 8))
    y = torch.log1p(x[:, :1]) + 0.1 * torch.randn(600, 1)
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 150, batch=16):
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def seeded_in_every_epoch() -> sg.TrainingDebugger:
    """All data at once, and the seed set in every epoch: dropout is the same each time, the data are all there are."""
    x, y = data.regression(200)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(80):
            torch.manual_seed(0)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch
