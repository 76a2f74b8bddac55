"""A loss that raises before anything is known to train."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def test_what_it_was_about_to_train_is_met(scouting):
    model, x = nn.Linear(5, 3), torch.randn(8, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(IndexError, match="out of bounds"):
        F.cross_entropy(model(x), torch.full((8,), 3))
    (training,) = scouting.scout.trainings
    (finding,) = training.debugger.findings
    assert (finding.id, finding.severity, finding.step) == ("label-out-of-range", "critical", 0)
    assert finding.where.file.endswith("test_first_loss.py")
    for _ in range(3):  # somebody caught it, and goes on
        optimizer.zero_grad()
        F.cross_entropy(model(x), torch.zeros(8, dtype=torch.long)).backward()
        optimizer.step()
    assert scouting.steps == [3]


def test_what_trains_nothing_is_none(scouting):
    with pytest.raises(IndexError):
        F.cross_entropy(torch.randn(8, 3), torch.full((8,), 3))
    with torch.no_grad(), pytest.raises(IndexError):
        F.cross_entropy(nn.Linear(5, 3)(torch.randn(8, 5)), torch.full((8,), 3))
    assert scouting.scout.trainings == []
