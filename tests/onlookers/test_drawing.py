"""Whether random numbers are drawn for each sample."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from seismograd.onlookers.ranks.drawing import Drawing

X = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))


class Noisy(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, at: int) -> torch.Tensor:
        return X[at] + torch.randn(4)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):
        for each in X:
            yield each + torch.randn(4)


def nothing(x: torch.Tensor) -> None:
    pass


def seen(data: Dataset, then: Callable[[torch.Tensor], object], passes: int = 1) -> list[bool]:
    torch.manual_seed(0)
    drawing, told = Drawing(), []
    loader: DataLoader = DataLoader(data, batch_size=16, shuffle=not isinstance(data, IterableDataset))
    for _ in range(passes):
        iterator = iter(loader)
        for x in iterator:
            drawing.data_came(iterator)
            then(x)
            told.append(drawing.goes_on(torch.get_rng_state().numpy(), 16))
    return told


@pytest.mark.parametrize(
    ("data", "then"), [(Noisy(), nothing), (TensorDataset(X), lambda x: torch.rand(16)), (Noisy(), torch.rand_like)]
)
def test_noise_of_samples_is_seen(data, then):
    assert seen(data, then)[4:] == [True] * 12


@pytest.mark.parametrize(
    ("data", "then"),
    [
        (TensorDataset(X), nothing),
        (TensorDataset(X), lambda x: torch.rand(())),  # a decision for the whole step
        (Stream(), nothing),  # each rank may take its part of what all draw
    ],
)
def test_what_all_may_have_to_draw_alike_is_not(data, then):
    assert not any(seen(data, then, passes=8))


def test_without_a_loader_the_samples_may_be_what_is_drawn():
    drawing = Drawing()
    told = []
    for _ in range(9):
        torch.rand(16)
        told.append(drawing.goes_on(torch.get_rng_state().numpy(), 16))
    assert not any(told)
