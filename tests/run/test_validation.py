"""A validation loss is taken where it is certain, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

generator = torch.Generator().manual_seed(0)
X, XV = (torch.randn(64, 8, generator=generator) for _ in range(2))
Y, YV = (X[:, 0] > 0).long(), (XV[:, 0] > 0).long()


class Loop:
    """A model that trains for a few epochs and looks at itself after each."""

    def __init__(self, loss: Callable[..., Tensor] = F.cross_entropy) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loss = loss

    def step(self, x: Tensor, y: Tensor) -> None:
        self.model.train()
        self.optimizer.zero_grad()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()

    @torch.no_grad()
    def look(self, x: Tensor, y: Tensor, loss: Callable[..., Tensor] | None = None, **settings: Any) -> float:
        self.model.eval()
        return float((loss or self.loss)(self.model(x), y, **settings))


def finished(scouting: Any) -> list[float]:
    scouting.scout.close()
    return scouting.series("val_loss")


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss()])
def test_the_training_loss_in_an_evaluation(scouting: Any, loss: Any) -> None:
    loop, seen = Loop(loss), []
    for _ in range(4):
        loop.step(X, Y)
        seen.append(loop.look(XV, YV))
    assert finished(scouting) == pytest.approx(seen)


@pytest.mark.parametrize("batches", [1, 4])
def test_a_loss_divided_for_accumulation_is_met_again(scouting: Any, batches: int) -> None:
    loop, seen = Loop(), []
    for _ in range(4):
        loop.model.train()
        loop.optimizer.zero_grad()
        for _ in range(batches):
            loss = F.cross_entropy(loop.model(X), Y)
            (loss / batches).backward()
        loop.optimizer.step()
        seen.append(loop.look(XV, YV))
    known = seen if batches == 1 else seen[1:]  # what it divides by is known after a step
    assert finished(scouting) == pytest.approx(known)


@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_a_weighted_loss_is_another_one(scouting: Any, weight: float) -> None:
    loop = Loop(lambda output, y: F.cross_entropy(output, y) * weight)
    for _ in range(4):
        loop.step(X, Y)
        loop.look(XV, YV, F.cross_entropy)
    assert finished(scouting) == []


def test_a_sum_over_batches_becomes_a_mean(scouting: Any) -> None:
    loop, seen = Loop(), []
    for _ in range(3):
        loop.step(X, Y)
        total = sum(loop.look(XV[at : at + 20], YV[at : at + 20], reduction="sum") for at in range(0, 64, 20))
        seen.append(total / 64)
    assert finished(scouting) == pytest.approx(seen)


def test_loaders_of_two_parts_of_one_set(scouting: Any) -> None:
    parts = random_split(TensorDataset(torch.cat([X, XV]), torch.cat([Y, YV])), [96, 32], generator)
    train, held_out = (DataLoader(part, batch_size=16) for part in parts)
    loop, seen = Loop(), []
    for _ in range(3):
        for x, y in train:
            loop.step(x, y)
        for x, y in train:  # how well it knows the training set by now
            loop.look(x, y)
        seen.append(sum(loop.look(x, y) for x, y in held_out) / len(held_out))
    assert finished(scouting) == pytest.approx(seen)


def test_the_training_data_is_no_validation(scouting: Any) -> None:
    loop = Loop()
    for _ in range(3):
        loop.step(X, Y)
        loop.look(X, Y)
    assert finished(scouting) == []


def test_two_sets_in_one_evaluation_leave_it_open(scouting: Any) -> None:
    loop = Loop()
    for _ in range(3):
        loop.step(X[torch.randperm(64)[:16]], Y[:16].clone())
        loop.look(X, Y)
        loop.look(XV, YV)
    assert finished(scouting) == []


def test_a_test_set_at_the_end_is_not_taken_for_validation(scouting: Any) -> None:
    loop, seen = Loop(), []
    for _ in range(3):
        loop.step(X, Y)
        seen.append(loop.look(XV, YV))
    loop.step(X, Y)
    loop.look(torch.randn(64, 8), Y.clone().add(0))
    assert finished(scouting)[:3] == pytest.approx(seen)
    assert len(finished(scouting)) == 3


@pytest.mark.parametrize(
    ("loss", "settings"),
    [(None, {"label_smoothing": 0.1}), (lambda output, y: F.mse_loss(output[:, 0], y.float()), {})],
    ids=["settings", "another"],
)
def test_another_loss_or_other_settings(scouting: Any, loss: Any, settings: dict[str, Any]) -> None:
    loop = Loop()
    for _ in range(3):
        loop.step(X, Y)
        loop.look(XV, YV, loss, **settings)
    assert finished(scouting) == []


def test_a_model_in_training_mode_is_not_evaluated(scouting: Any) -> None:
    loop = Loop()
    for _ in range(3):
        loop.step(X, Y)
        with torch.no_grad():
            F.cross_entropy(loop.model(XV), YV)
    assert finished(scouting) == []


def test_a_loss_that_is_only_part_of_what_is_minimised(scouting: Any) -> None:
    loop = Loop(lambda output, y: F.cross_entropy(output, y) + 0.1 * output.square().mean())
    for _ in range(3):
        loop.step(X, Y)
        loop.look(XV, YV, F.cross_entropy)
    assert finished(scouting) == []


@pytest.mark.parametrize("rows", [64, 40])
def test_batches_that_are_copies_may_be_of_the_same_data(scouting: Any, rows: int) -> None:
    """As much data as was trained on since the last look may be the training set; another amount is not."""
    loop, seen = Loop(), []
    for _ in range(3):
        for batch in torch.randperm(64).split(16):
            loop.step(X[batch], Y[batch])
        seen.append(loop.look(XV[:rows].clone(), YV[:rows].clone()))
    assert finished(scouting) == (pytest.approx(seen) if rows == 40 else [])


def held_out(seed: int = 0, rows: int = 32) -> DataLoader[Any]:
    chosen = torch.randperm(64, generator=torch.Generator().manual_seed(seed))[:rows]
    return DataLoader(TensorDataset(XV[chosen], YV[chosen]), batch_size=16)


def evaluated(loop: Loop, loader: Iterable[Any]) -> float:
    losses = [loop.look(x, y) for x, y in loader]
    return sum(losses) / len(losses)


def test_data_that_are_loaded_anew_are_taken_from_their_second_evaluation_on(scouting: Any) -> None:
    loop, seen, kept = Loop(), [], []
    for _ in range(3):  # `fit`, three times over, each with a `setup`
        train, val = DataLoader(TensorDataset(X, Y), batch_size=16), held_out()
        kept += [train, val]  # other objects in other places
        for epoch in range(4):
            for x, y in train:
                loop.step(x, y)
            seen.append((len(kept), epoch, evaluated(loop, val)))
    assert finished(scouting) == pytest.approx([loss for fit, epoch, loss in seen if fit == 2 or epoch > 0])


@pytest.mark.parametrize("trains", ["loader", "tensors"])
def test_a_loader_and_plain_tensors(scouting: Any, trains: str) -> None:
    """Batches of a loader, and after its last one tensors that are none of its data set's."""
    loop, seen, train, val = Loop(), [], DataLoader(TensorDataset(X, Y), batch_size=16), held_out()
    for _ in range(3):
        for x, y in train if trains == "loader" else [(X, Y)]:
            loop.step(x, y)
        seen.append(loop.look(XV[:40], YV[:40]) if trains == "loader" else evaluated(loop, val))
    assert finished(scouting) == pytest.approx(seen)


def test_a_loop_that_fetches_a_batch_ahead(scouting: Any) -> None:
    def ahead(loader: Any) -> Any:
        batches = iter(loader)
        batch = next(batches)
        for following in batches:
            yield batch
            batch = following
        yield batch

    loop, seen, train, val = Loop(), [], DataLoader(TensorDataset(X, Y), batch_size=16), held_out()
    for _ in range(3):
        for x, y in ahead(train):
            loop.step(x, y)
        seen.append(evaluated(loop, ahead(val)))
    assert finished(scouting) == pytest.approx(seen)


def test_data_that_are_loaded_for_each_evaluation(scouting: Any) -> None:
    """Python gives new data sets the ids of those before them, the training data's too."""
    loop, seen = Loop(), []
    for _ in range(6):
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=16):
            loop.step(x, y)
        seen.append(evaluated(loop, held_out()))
    evaluated(loop, held_out(seed=1))  # a test set, at the end
    assert finished(scouting) == pytest.approx([seen[0], *seen[2:5]])


@pytest.mark.parametrize("rows", [32, 48])
@pytest.mark.parametrize("when", ["once", "in turn", "of another size"])
def test_other_data_are_not_taken(scouting: Any, when: str, rows: int) -> None:
    loop, seen, val = Loop(), [], held_out()
    other = held_out(seed=1, rows=48 if when == "of another size" else rows)
    for epoch in range(8):
        for _ in range(4):
            loop.step(X, Y)
        if {"once": epoch != 5, "in turn": epoch % 2 == 0, "of another size": epoch < 4}[when]:
            seen.append(evaluated(loop, val))
        else:
            evaluated(loop, other)
    assert finished(scouting) == pytest.approx(seen)
