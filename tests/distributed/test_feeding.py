"""What a rank is fed by, as its loaders come and go."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from seismograd.onlookers.ranks.feeding import Feeding

DATA = TensorDataset(torch.zeros(32))


def sampler(seed: int = 0) -> DistributedSampler:
    return DistributedSampler(DATA, num_replicas=2, rank=0, seed=seed)


def fetched(feeding: Feeding, iterator) -> None:
    next(iterator)
    feeding.data_came(iterator)


def test_a_loader_of_which_nothing_is_trained_on_is_not_told_of():
    feeding = Feeding()
    train = iter(DataLoader(DATA, batch_size=4))
    fetched(feeding, train)
    feeding.trained()
    assert feeding.take() == {"length": 8, "pass": 1}
    fetched(feeding, iter(DataLoader(DATA, batch_size=16)))  # validation, in the middle of the epoch
    fetched(feeding, train)
    feeding.trained()
    assert feeding.take() is None


def test_a_sampler_that_is_made_anew_with_another_seed_shuffles():
    feeding, told = Feeding(), []
    for epoch in range(6):
        loader = DataLoader(DATA, batch_size=4, sampler=sampler(seed=epoch))
        fetched(feeding, iter(loader))
        feeding.trained()
        told.append(feeding.take())
        del loader
    assert [each["sampler"]["epochs"] for each in told] == [[0]] * 6
    assert [each["pass"] for each in told] == [1, 2, 3, 4, 5, 6]


def test_a_sampler_without_set_epoch_shows():
    feeding = Feeding()
    loader = DataLoader(DATA, batch_size=4, sampler=sampler())
    for _ in range(2):
        fetched(feeding, iter(loader))
        feeding.trained()
    assert feeding.take()["sampler"]["epochs"] == [0, 0]


def test_a_training_that_is_met_in_the_middle_of_a_pass():
    """As all are by `seismograd run`: at their first backward pass, when the first batch has come."""
    feeding, train = Feeding(), iter(DataLoader(DATA, batch_size=4, sampler=sampler()))
    next(train)
    fetched(feeding, train)
    feeding.trained()
    assert feeding.take()["length"] == 4
    for _ in range(40):
        fetched(feeding, iter(DataLoader(DATA, batch_size=16)))  # of which nothing is trained on
    fetched(feeding, train)
    feeding.trained()
    assert feeding.take() is None


def test_a_sampler_that_does_not_know_its_length():
    class Endless:
        def __iter__(self):
            return iter([[0], [1]])

        def __len__(self):
            raise NotImplementedError

    feeding = Feeding()
    fetched(feeding, iter(DataLoader(DATA, batch_sampler=Endless())))
    feeding.trained()
    assert feeding.take() is None
