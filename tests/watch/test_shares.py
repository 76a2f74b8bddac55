"""The loss of an accumulated step is what its user would call it, however it was divided."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, CLASSES = 8, 5


def parts(count, rows=6):
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(rows, WIDTH, generator=generator) for _ in range(count)]
    targets = [torch.randint(0, CLASSES, (rows,), generator=generator) for _ in range(count)]
    for at, target in enumerate(targets):
        target[: at % 3] = -100
    return list(zip(inputs, targets, strict=True))


def steps(watching, divide, lengths=(4, 4, 4)):
    """Trains for a few steps; `divide` makes of a batch, and of all of its step, the loss and the user's view of it."""
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, views = watching(model, optimizer), []
    for length in lengths:
        batches, seen = parts(length), []
        for x, y in batches:
            loss, view = divide(model(x), y, batches)
            loss.backward()
            seen.append(view.item())
        optimizer.step()
        optimizer.zero_grad()
        views.append(seen)
    return run.series("loss"), views


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize(
    "divided",
    [
        lambda loss: loss / 4,
        lambda loss: loss * 0.25,
        lambda loss: (loss / 4) / 1,
        lambda loss: (loss / torch.tensor(4)).clone(),
        lambda loss: loss.double() / 4.0,
        lambda loss: loss,
    ],
)
def test_divided_by_the_batches_it_is_the_mean_over_them(watching, divided):
    def divide(output, y, batches):
        loss = F.cross_entropy(output, y)
        return divided(loss), loss

    read, views = steps(watching, divide)
    assert read == pytest.approx([mean(view) for view in views])


def test_a_loss_that_is_made_large_again_for_a_log(watching):
    """As fastai does it, in place, after `backward`."""
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, views = watching(model, optimizer), []
    for _ in range(3):
        seen = []
        for x, y in parts(4):
            loss = F.cross_entropy(model(x), y)
            seen.append(loss.item())
            loss /= 4
            loss.backward()
            loss *= 4
        optimizer.step()
        optimizer.zero_grad()
        views.append(mean(seen))
    assert run.series("loss") == pytest.approx(views)


def test_the_last_batches_of_an_epoch_are_fewer(watching):
    """Accelerate divides by the full number then, too; the loss of the last step is not smaller for it."""

    def divide(output, y, batches):
        loss = F.cross_entropy(output, y)
        return loss / 4, loss

    read, views = steps(watching, divide, lengths=(4, 4, 2, 4, 1))
    assert read == pytest.approx([mean(view) for view in views])


def test_sums_divided_by_the_items_of_the_step_add_up(watching):
    """As the Trainer of transformers does it."""

    def divide(output, y, batches):
        items = sum((target != -100).sum() for _, target in batches)
        loss = F.cross_entropy(output, y, reduction="sum") / items
        return loss, loss

    read, views = steps(watching, divide, lengths=(4, 3, 1))
    assert read == pytest.approx([sum(view) for view in views])


def test_a_mean_by_hand_is_a_mean(watching):
    """Each sum is divided by its own batch: that says nothing of the step."""

    def divide(output, y, batches):
        loss = F.cross_entropy(output, y, reduction="none").sum() / len(y)
        return loss, loss

    read, views = steps(watching, divide)
    assert read == pytest.approx([mean(view) for view in views])


@pytest.mark.parametrize("by", [2, 3.5, 8])
def test_another_divisor_is_part_of_the_loss(watching, by):
    def divide(output, y, batches):
        loss = F.cross_entropy(output, y) / by
        return loss, loss

    read, views = steps(watching, divide, lengths=(4, 4, 1, 1))
    assert read == pytest.approx([mean(view) for view in views])
