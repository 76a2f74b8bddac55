"""How far a training is, and how long it may still take. Standard library only."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any


class Numbers:
    """Of the steps that somebody numbers: those that begin anew, with each epoch, are counted through."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = self._most = self._before = 0

    def counted(self, step: int) -> int:
        """The number in the run of the step that is told now. One that only goes back a little keeps its own."""
        if self._first is None:
            self._first = self._last = self._most = step
        elif step <= self._first and step < self._last:  # where it began
            self._before = self._most + 1 - step
        self._last = step
        self._most = max(self._most, self._before + step)
        return self._before + step


class Progress:
    """How far a training is. Steps that begin anew with each epoch are counted through."""

    def __init__(self, total_epochs: int | None = None, total_steps: int | None = None) -> None:
        self.total_epochs, self.total_steps = total_epochs, total_steps
        self.epoch = self.step = -1
        self.next = 0
        """The number that the next step will have in the run."""
        self.done = 0
        self.started: float | None = None
        self._first = 0
        self._scalars: dict[str, float] = {}
        self._best: float | None = None
        if total_epochs is not None or total_steps is not None:
            self.started = time.monotonic()

    def stepped(self, epoch: int, step: int, scalars: Mapping[str, float]) -> int:
        """Takes what was said of a step; returns its number in the run, which never falls."""
        if self.started is None:
            self.started = time.monotonic()
        number = self._first + step
        if number < self.next and (epoch, step) != (self.epoch, self.step):  # it begins anew
            self._first = self.next - step
            number = self.next
        self.done += number >= self.next
        self.epoch, self.step, self.next = epoch, step, max(self.next, number + 1)
        self._scalars.update(scalars)
        loss = scalars.get("loss")
        if loss is not None and math.isfinite(loss) and (self._best is None or loss < self._best):
            self._best = loss
        return number

    @property
    def share(self) -> float | None:
        """How much of the training is done, from 0 to 1; `None` where its length is not known."""
        if self.total_steps is not None:
            total = self.total_steps
            if self.next > total and self.total_epochs is not None:  # they are those of one epoch
                total *= self.total_epochs
            return min(1.0, self.next / total)
        if self.total_epochs is not None:
            return min(1.0, max(self.epoch, 0) / self.total_epochs)
        return None

    def told(self) -> dict[str, Any]:
        elapsed = 0.0 if self.started is None else time.monotonic() - self.started
        share = self.share
        return {
            "epoch": max(self.epoch, 0),
            "total_epochs": self.total_epochs,
            "step": max(self.next - 1, 0),
            "total_training_steps": self.total_steps,
            "progress": share,
            "elapsed_seconds": elapsed,
            "eta_seconds": elapsed * (1.0 - share) / share if share else None,
            "steps_per_second": self.done / elapsed if elapsed else None,
            "loss": self._scalars.get("loss"),
            "best_loss": self._best,
            "learning_rate": self._scalars.get("lr/0"),
        }
