"""Small trainings for the trainer's tests: an MLP with dropout, a CNN with batch norm, a transformer."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from seismograd.optimize.trainer import Trainer


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.embed(x)).mean(1))
        return out


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2)),
        *(nn.Flatten(), nn.Linear(4 * 3 * 4, 3)),
    )


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": Encoder}


def data(samples: int = 44, kind: str = "mlp") -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    y = torch.randint(0, 3, (samples,), generator=generator)
    if kind == "transformer":
        x = (torch.randint(0, 8, (samples, 5), generator=generator) + y[:, None]).long()
    else:
        x = torch.randn(samples, 6, generator=generator) + y[:, None]
    return TensorDataset(x, y)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Each sample is changed a little, by every generator there is."""

    def __init__(self) -> None:
        self.tensors = data().tensors
        self.own = np.random.default_rng(5)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        noise = random.gauss(0, 1) + np.random.standard_normal() + float(torch.randn(())) + self.own.standard_normal()
        return self.tensors[0][at] + 0.1 * noise, self.tensors[1][at]


def trainer(kind: str = "mlp", **options: Any) -> Trainer:
    """A trainer as a user would build it anew in a fresh process: the same seed, the same objects."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    options.setdefault("train_loader", DataLoader(data(kind=kind), batch_size=8, shuffle=True))
    options.setdefault("val_loader", DataLoader(data(20, kind), batch_size=8))
    options.setdefault("max_epochs", 3)
    options.setdefault("learning_rate", 0.01)
    options.setdefault("enable_pytorch_debugging", False)
    return Trainer(MODELS[kind](), **options)


class StopAfter:
    """A scheduler's place to count steps from: stops its trainer after so many."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, each: Trainer) -> dict[str, Any]:
        original = each._step

        def counted(group: Any) -> Tensor:
            loss = original(group)
            if each.course.step == self.steps:
                each.stop()
            return loss

        each._step = counted  # type: ignore[method-assign]
        return each.train_sync()


def everything(each: Trainer) -> dict[str, Any]:
    """What has to be the same in two runs that are one."""
    return {
        "model": each.model.state_dict(),
        "optimizer": each.optimizer.state_dict(),
        "scheduler": None if each.scheduler is None else each.scheduler.state_dict(),
        "scaler": each.scaler.state_dict(),
        "curves": each.course.curves,
        "counts": (each.course.epoch, each.course.step, each.course.stopper.best, each.course.stopper.waited),
        "random": (torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)),
    }


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two nestings are not the same, bit by bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape or one.numpy().tobytes() != other.numpy().tobytes():
            yield path
    elif isinstance(one, Mapping):
        if one.keys() != other.keys():
            yield path
        else:
            for key in one:
                yield from differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            yield path
        for at, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from differences(left, right, f"{path}[{at}]")
    elif isinstance(one, np.ndarray):
        if one.tobytes() != other.tobytes():
            yield path
    elif one != other and not (isinstance(one, float) and math.isnan(one) and math.isnan(other)):
        yield path


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert list(differences(one, other)) == []
