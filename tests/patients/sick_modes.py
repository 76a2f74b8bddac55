"""Sick: training in evaluation mode, evaluation in training mode, frozen parts whose statistics move."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from patients import data
from patients.register import sick


def dropped() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4)
    )


def normed(channels: int = 1, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


def loaders(x: Tensor, y: Tensor, held_out: int = 128) -> tuple[DataLoader[object], DataLoader[object]]:
    train, val = TensorDataset(x[:-held_out], y[:-held_out]), TensorDataset(x[-held_out:], y[-held_out:])
    return DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=32)  # type: ignore[return-value]


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader[object]) -> float:
    hits = [(model(x).argmax(1) == y).float().mean() for x, y in loader]  # type: ignore[misc]
    return float(torch.stack(hits).mean())


@sick("eval-mode-training")
def left_in_eval_after_validation() -> sg.TrainingDebugger:
    """`model.train()` before all epochs, `model.eval()` in each validation."""
    train, val = loaders(*data.blobs())
    model = dropped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        model.train()
        for _ in range(4):
            for x, y in train:  # type: ignore[misc]
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            accuracy(model, val)
    return watch


@sick("eval-mode-training")
def loaded_in_eval_mode() -> sg.TrainingDebugger:
    """A model that comes in evaluation mode, as ready-made ones do, is trained as it is."""
    x, y = data.blobs(256, 16, 3)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (4, 4)), nn.Linear(4, 16), layer, nn.Flatten(), nn.Linear(64, 3)).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("eval-mode-training")
def sampled_and_left_in_eval() -> sg.TrainingDebugger:
    """Every 20 steps the generator is put into evaluation mode for a picture, and stays there."""
    x, _ = data.images(256, size=8)
    generator = nn.Sequential(
        nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Unflatten(1, (1, 8, 8))
    )
    critic = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    first = torch.optim.Adam(generator.parameters(), lr=1e-3)
    second = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with sg.watch(nn.ModuleList([generator, critic]), [first, second], sinks=[]) as watch:
        for step in range(60):
            real, fake = x[torch.randint(0, 256, (32,))], generator(torch.randn(32, 8))
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
            second.zero_grad()
            loss.backward()
            second.step()
            loss = F.softplus(-critic(fake)).mean()
            first.zero_grad()
            loss.backward()
            first.step()
            if step % 20 == 19:
                generator.eval()
                with torch.no_grad():
                    generator(torch.randn(16, 8))
    return watch


@sick("train-mode-evaluation")
def validates_in_train_mode() -> sg.TrainingDebugger:
    """`no_grad` is there, `eval` is not; only the accuracy is asked for."""
    train, val = loaders(*data.blobs())
    model = dropped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            model.train()
            for x, y in train:  # type: ignore[misc]
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            accuracy(model, val)
    return watch


@sick("train-mode-evaluation")
def validates_with_graph() -> sg.TrainingDebugger:
    """Neither `eval` nor `no_grad`: a validation written like the training, without its last lines."""
    train, val = loaders(*data.images())
    model = normed()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(3):
            for x, y in train:  # type: ignore[misc]
                loss = loss_fn(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total = 0.0
            for x, y in val:  # type: ignore[misc]
                total += loss_fn(model(x), y).item()
    return watch


@sick("train-mode-evaluation")
def full_batch_validation_in_train_mode() -> sg.TrainingDebugger:
    """All data at once; the held-out rows every ten steps, in training mode."""
    x, y = data.regression(400)
    model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x_train, y_train, x_val, y_val = x[:300], y[:300], x[300:], y[300:]
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(60):
            optimizer.zero_grad()
            F.mse_loss(model(x_train), y_train).backward()
            optimizer.step()
            if step % 10 == 9:
                with torch.no_grad():
                    F.mse_loss(model(x_val), y_val)
    return watch


def learned(steps: int = 60) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A convnet that has learned some pictures."""
    x, y = data.images()
    model = normed()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for xb, yb in data.batches(x, y, steps):
        optimizer.zero_grad()
        F.cross_entropy(model(xb), yb).backward()
        optimizer.step()
    return model, x, y


@sick("buffer-drift")
def frozen_backbone_in_train_mode() -> sg.TrainingDebugger:
    """A new head on frozen features, for darker pictures: batch norm forgets the old ones."""
    model, x, y = learned()
    model.requires_grad_(False)
    model[-1] = nn.Linear(16, 10)
    optimizer = torch.optim.Adam(model[-1].parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        model.train()
        for xb, yb in data.batches(0.3 * x - 0.5, 9 - y, 60):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("buffer-drift")
def separate_features_in_train_mode() -> sg.TrainingDebugger:
    """The feature extractor is a model of its own, frozen and called without gradients, but never put to eval."""
    model, x, y = learned()
    features, head = model[:-1], nn.Linear(16, 10)
    for parameter in features.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    with sg.watch(head, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(2.0 * x + 1.0, y, 60):
            with torch.no_grad():
                found = features(xb)
            optimizer.zero_grad()
            F.cross_entropy(head(found), yb).backward()
            optimizer.step()
    return watch


@sick("buffer-drift")
def teacher_in_train_mode() -> sg.TrainingDebugger:
    """Distillation from a frozen teacher that was left in training mode, on other pictures."""
    teacher, x, _ = learned()
    teacher.requires_grad_(False)
    student = normed()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    with sg.watch(student, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(0.5 * x + 0.7, x, 60):
            target = teacher(xb).softmax(-1)
            loss = F.kl_div(student(xb).log_softmax(-1), target, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


def copied(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False)


class Functional(nn.Module):
    """Dropout as a function; `kind` says how it is called."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.first, self.last = kind, nn.Linear(20, 64), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        if self.kind == "forgotten":
            x = F.dropout(x, 0.3)
        elif self.kind == "made on the spot":
            x = nn.Dropout(0.3)(x)
        elif self.kind == "meant":
            x = F.dropout(x, 0.3, training=True)
        else:
            x = F.dropout(x, 0.3, training=self.training)
        out: Tensor = self.last(x)
        return out


def fit_functional(kind: str) -> sg.TrainingDebugger:
    """Trained and validated with every care."""
    train, val = loaders(*data.blobs())
    model = Functional(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(3):
            model.train()
            for x, y in train:  # type: ignore[misc]
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            accuracy(model, val)
    return watch


@sick("train-mode-evaluation")
def functional_dropout_forgets_the_mode() -> sg.TrainingDebugger:
    return fit_functional("forgotten")


@sick("train-mode-evaluation")
def dropout_made_in_forward() -> sg.TrainingDebugger:
    return fit_functional("made on the spot")
