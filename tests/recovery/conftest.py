"""Small trainings that go wrong in a known way, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seismograd as sg
from seismograd.recovery import TrainingStopped

Batch = tuple[Tensor, Tensor]
STEPS = 300


def batches(seed: int = 0) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(16, 1, generator=generator)
    while True:
        x = torch.randn(32, 16, generator=generator)
        yield x, torch.tanh(x @ weight) + 0.05 * torch.randn(32, 1, generator=generator)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))


@dataclass
class Outcome:
    """A training that is over: its loss on batches that it has not seen, and what was done on the way."""

    final: float
    model: nn.Module
    watch: Any = None
    steps: int = 0
    stopped: BaseException | None = None
    losses: list[float] = field(default_factory=list)

    @property
    def summary(self) -> dict[str, Any]:
        return dict(self.watch.get_training_summary())

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event["data"] for event in self.watch.events if event["event_type"] == "recovery"]

    @property
    def found(self) -> dict[str, str]:
        return {finding.id: finding.severity.value for finding in self.watch.findings}


def _train(
    spoil: Callable[[int, Batch, torch.optim.Optimizer], Batch] = lambda _step, batch, _optimizer: batch,
    recovery: Any = None,
    *,
    optimizer: str = "SGD",
    steps: int = STEPS,
    watch: bool = True,
    **more: Any,
) -> Outcome:
    """Trains on batches that `spoil` may change, with a recovery if there is one."""
    model = mlp()
    settings: dict[str, Any] = {"lr": 2e-2, "momentum": 0.9} if optimizer == "SGD" else {"lr": 1e-2}
    made = getattr(torch.optim, optimizer)(model.parameters(), **settings)
    source, losses, stopped = batches(), [], None
    watching: Any = nullcontext()
    if recovery is not None and watch:
        watching = sg.watch(model, made, recovery=recovery, strict=True, store=False, sinks=[], **more)
    with watching as watcher:
        try:
            for step in range(steps):
                x, y = spoil(step, next(source), made)
                made.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                made.step()
                losses.append(loss.item())
        except TrainingStopped as error:
            stopped = error
    unseen = batches()
    with torch.no_grad():
        for _ in range(STEPS):
            next(unseen)
        tested = [next(unseen) for _ in range(10)]
        final = sum(float(nn.functional.mse_loss(model(x), y)) for x, y in tested) / 10
    return Outcome(final, model, watcher, len(losses), stopped, losses)


@pytest.fixture(scope="session")
def train() -> Callable[..., Outcome]:
    return _train
