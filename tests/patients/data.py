"""Small made-up data that behave like the usual ones: points, images, text, sequences, ratings."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def blobs(count: int = 512, dim: int = 20, classes: int = 4, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Points around a centre for each class."""
    centres = 2.0 * torch.randn(classes, dim)
    y = torch.randint(0, classes, (count,))
    return centres[y] + spread * 2.0 * torch.randn(count, dim), y


def spirals(count: int = 600, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Two interleaved spirals in the plane."""
    y = torch.arange(count) % 2
    t = 0.5 + 2.5 * torch.rand(count)
    angle = 2.0 * t + torch.pi * y
    x = torch.stack([t * angle.cos(), t * angle.sin()], 1) / 2.0
    return x + noise * torch.randn(count, 2), y


def images(
    count: int = 512, classes: int = 10, size: int = 12, noise: float = 0.7, channels: int = 1
) -> tuple[Tensor, Tensor]:
    """Noisy pictures of one pattern for each class, standardised."""
    patterns = torch.nn.functional.interpolate(torch.randn(classes, channels, 4, 4), size=(size, size), mode="bilinear")
    y = torch.randint(0, classes, (count,))
    return patterns[y] / patterns.std() + noise * torch.randn(count, channels, size, size), y


def regression(count: int = 512, dim: int = 10, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """A smooth function of some of the inputs, with noise."""
    x = torch.randn(count, dim)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3]
    return x, (y + noise * torch.randn(count)).unsqueeze(1)


def text() -> tuple[Tensor, int]:
    """Characters of a real text (the source of a standard module) as numbers, and how many kinds there are."""
    source = inspect.getsource(argparse)[:40_000]
    letters = sorted(set(source))
    index = {letter: at for at, letter in enumerate(letters)}
    return torch.tensor([index[letter] for letter in source]), len(letters)


def windows(tokens: Tensor, length: int, batch: int) -> tuple[Tensor, Tensor]:
    """A batch of pieces of text and the same shifted by one."""
    at = torch.randint(0, len(tokens) - length - 1, (batch,))
    piece = torch.stack([tokens[i : i + length + 1] for i in at.tolist()])
    return piece[:, :-1], piece[:, 1:]


def loader(x: Tensor, y: Tensor, batch: int = 32, **options: bool) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True, **options)


def forever(x: Tensor, y: Tensor, batch: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches drawn at random, without end."""
    while True:
        at = torch.randint(0, len(x), (batch,))
        yield x[at], y[at]


def batches(x: Tensor, y: Tensor, count: int, batch: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
    return islice(forever(x, y, batch), count)
