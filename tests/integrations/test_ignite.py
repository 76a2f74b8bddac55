"""Engines of Ignite, as they are, and with our handler."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seismograd import patches
from seismograd.integrations.ignite import SeismogradHandler
from seismograd.sinks import Memory

from .scouted import scouted

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated.*")  # torch's own, which Ignite imports
    from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss


def data(rows: int = 128, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 8, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


class Training:
    """A supervised trainer and its evaluator, with what Ignite itself knows of them."""

    def __init__(self, batches: int = 1, spoil_at: int | None = None, fail_at: int | None = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.losses: list[float] = []
        self.validated: list[float] = []
        self.held_out = DataLoader(data(48, seed=5), batch_size=16)
        self.error: type[BaseException] = ValueError
        calls = 0
        criterion = nn.CrossEntropyLoss()

        def loss_fn(output: Any, target: Any) -> Any:
            nonlocal calls
            calls += 1
            if fail_at is not None and calls >= fail_at:
                raise self.error("boom")
            return criterion(torch.log(output - output.max()) if calls == spoil_at else output, target)

        self.trainer = create_supervised_trainer(
            self.model, self.optimizer, loss_fn, gradient_accumulation_steps=batches
        )
        self.evaluator = create_supervised_evaluator(self.model, {"loss": Loss(criterion), "accuracy": Accuracy()})
        self.trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda one: self.losses.append(one.state.output))
        self.trainer.add_event_handler(Events.EPOCH_COMPLETED, self.evaluate)

    def evaluate(self, _engine: Engine) -> None:
        self.evaluator.run(self.held_out)
        self.validated.append(self.evaluator.state.metrics["loss"])

    def run(self, epochs: int = 3) -> None:
        loader = DataLoader(data(), batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(1))
        self.trainer.run(loader, max_epochs=epochs)


@pytest.mark.parametrize("batches", [1, 4])
def test_a_healthy_engine_has_its_own_numbers_and_no_alarm(batches: int) -> None:
    training = Training(batches)
    with scouted() as seen:
        training.run()
    own = training.losses
    steps = [sum(own[at : at + batches]) / batches for at in range(0, len(own), batches)]
    assert seen.series("loss") == pytest.approx(steps, rel=1e-4)
    assert seen.series("val_loss")[-2:] == pytest.approx(training.validated[-2:], rel=1e-4)
    assert seen.alarms == []


def test_a_sick_engine_is_told_its_fault() -> None:
    with scouted() as seen:
        Training(spoil_at=10).run()
    assert seen.findings["nonfinite-loss"].step == 9
    assert "torch.log" in seen.findings["nonfinite-loss"].where.code


def test_the_handler_watches_an_engine() -> None:
    plain, training, memory = Training(), Training(), Memory()
    plain.run()
    handler = SeismogradHandler(training.model, training.optimizer, sinks=[memory], store=False, strict=True)
    assert handler.attach(training.trainer, training.evaluator) is handler
    training.run()
    assert handler.watch is not None
    assert handler.watch.closed
    assert handler.watch.report()["run"]["status"] == "healthy"
    assert memory.series("loss")[1] == pytest.approx(training.losses, rel=1e-5)
    assert memory.series("val_loss")[1] == pytest.approx(training.validated)
    assert len(memory.series("logged/evaluator/accuracy")[1]) >= 2
    assert patches.listeners() == ()
    for mine, other in zip(training.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, other), "training is the same, bit by bit"


def test_the_handler_stops_an_engine_that_is_lost() -> None:
    training = Training(spoil_at=5)
    handler = SeismogradHandler(training.model, sinks=[], store=False, strict=True, stop_on="critical")
    handler.attach(training.trainer)
    training.run()
    assert training.trainer.state.iteration == 5
    assert handler.watch is not None
    assert handler.watch.findings[0].id == "nonfinite-loss"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_engine_that_fails_ends_the_watch_and_still_raises(error: type[BaseException]) -> None:
    training = Training(fail_at=5)
    training.error = error
    handler = SeismogradHandler(training.model, training.optimizer, sinks=[], store=False, strict=True)
    handler.attach(training.trainer)
    with pytest.raises(error, match="boom"):
        training.run()
    assert handler.watch is not None
    assert handler.watch.closed
    assert handler.watch.report()["run"]["exit"]["exception"] == f"{error.__name__}: boom"
    assert patches.listeners() == ()


def test_an_error_that_somebody_listens_for_stays_theirs() -> None:
    training, heard = Training(fail_at=5), []
    training.trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda _engine, error: heard.append(str(error)))
    handler = SeismogradHandler(training.model, training.optimizer, sinks=[], store=False, strict=True)
    handler.attach(training.trainer)
    training.run()
    assert heard[0] == "boom"
    assert patches.listeners() == ()
