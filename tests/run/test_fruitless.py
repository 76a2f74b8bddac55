"""Optimizers that step without ever having a gradient: what they train is met all the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def ids(scouting: Any) -> list[str]:
    return [finding.id for training in scouting.scout.trainings for finding in training.debugger.findings]


def loop(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, steps: int = 12) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(F.cross_entropy(model(X), Y)).backward()
        optimizer.step()


def test_a_loss_that_is_cut_off_is_met_at_the_optimizer(scouting: Any) -> None:
    def made_anew(loss: Tensor) -> Tensor:
        return torch.tensor(loss.item(), requires_grad=True)

    model = network()
    loop(model, torch.optim.SGD(model.parameters(), lr=0.1), made_anew)
    assert "detached-loss" in ids(scouting)


def test_an_optimizer_of_a_copy_joins_the_model_that_is_trained(scouting: Any) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop(copy.deepcopy(model), optimizer, lambda loss: loss)
    assert len(scouting.scout.trainings) == 1
    assert "unoptimized-parameter" in ids(scouting)


def test_steps_without_any_backward_are_no_training(scouting: Any) -> None:
    """A schedule is drawn: the optimizer steps, and nothing is computed."""
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    for _ in range(20):
        optimizer.step()
    assert scouting.scout.trainings == []


@pytest.mark.parametrize(("frozen", "fault"), [(False, "detached-loss"), (True, "frozen-parameter")])
def test_a_script_that_ends_since_its_loss_has_no_history(scouting: Any, frozen: bool, fault: str) -> None:
    model = network().requires_grad_(not frozen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="does not require grad") as raised:
        loop(model, optimizer, lambda loss: loss.detach())
    assert ids(scouting) == []  # it may be caught
    scouting.scout.failed(raised.value)
    (finding,) = scouting.scout.trainings[0].debugger.findings
    assert finding.id == fault
    assert finding.where.code.strip() == "loss(F.cross_entropy(model(X), Y)).backward()"
