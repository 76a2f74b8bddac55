"""`gc.freeze()` before the loop hides models and optimizers from the collector's lists, not from us."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from seismograd import living


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_training_whose_objects_are_frozen_is_met_by_its_names(scouting: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gc.freeze()
    assert not any(thing is model for thing in gc.get_objects())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()
    (training,) = scouting.scout.trainings
    assert training.optimizers == [optimizer]
    (found,) = training.models.values()
    assert found is model


@pytest.mark.usefixtures("thawed")
def test_what_was_frozen_is_not_kept_alive() -> None:
    model = nn.Linear(2, 2)
    living.note((nn.Module,))
    gc.freeze()
    assert any(thing is model for thing in living.objects())
    gone = weakref.ref(model)
    del model
    assert gone() is None
