"""`Course`: how far a training is, and what came of it so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from seismograd.history import EarlyStopping
from seismograd.judge import STATUSES
from seismograd.records import Finding, Severity, strict


class Mean:
    """A weighted mean of losses, added up on their device in double precision: no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.total = torch.zeros((), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
        self.weight = 0.0

    def add(self, loss: Tensor, weight: float) -> None:
        self.total += loss.detach().reshape(()).to(self.total) * weight
        self.weight += weight

    def value(self) -> float:
        return float(self.total) / self.weight if self.weight else math.nan


class Course:
    """Everything of a run that is not in an object of torch's: counts, curves, the best epoch, what was found."""

    def __init__(self, device: torch.device, patience: int | None, min_delta: float) -> None:
        self.device = device
        self.epoch = self.step = 0
        self.began, self._before = perf_counter(), 0.0
        self.curves: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "learning_rate": []}
        self.loss = Mean(device)
        """Of the epoch so far."""
        self.stopper = EarlyStopping(_FOREVER if patience is None else patience, min_delta)
        self.findings: list[dict[str, Any]] = []
        """Those of the parts of the run before this one."""

    @property
    def seconds(self) -> float:
        """That it has trained, in all its parts."""
        return self._before + perf_counter() - self.began

    @property
    def waited_enough(self) -> bool:
        """Whether early stopping, if it is asked for, ends the run."""
        return self.stopper.patience != _FOREVER and self.stopper.should_stop

    def epoch_over(self, val_loss: float | None, lr: float) -> bool:
        """Closes an epoch; whether it is the best so far, by its validation loss if there is one."""
        train_loss = self.loss.value()
        self.curves["train_loss"].append(train_loss)
        self.curves["learning_rate"].append(lr)
        if val_loss is not None:
            self.curves["val_loss"].append(val_loss)
        self.stopper.update(train_loss if val_loss is None else val_loss, self.epoch)
        self.epoch += 1
        self.loss = Mean(self.device)
        return self.stopper.improved

    def found(self, findings: Iterable[Finding]) -> list[dict[str, Any]]:
        """What was found in the whole run: these findings, then those of earlier parts that are not among them."""
        now = [strict(finding.to_dict()) for finding in findings]
        keys = {_key(one) for one in now}
        return [*now, *(one for one in self.findings if _key(one) not in keys)]

    def state(self, findings: Iterable[Finding]) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            **{name: getattr(self, name) for name in ("epoch", "step", "seconds", "curves")},
            "loss": vars(self.loss),
            "stopper": {name: getattr(self.stopper, name) for name in _STOPPER},
            "findings": self.found(findings),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state that was saved."""
        for name in ("epoch", "step", "curves", "findings"):
            setattr(self, name, state[name])
        self._before = state["seconds"]
        self.loss.total.copy_(state["loss"]["total"])
        self.loss.weight = state["loss"]["weight"]
        saved, patience = state["stopper"], self.stopper.patience
        vars(self.stopper).update(saved)
        self.stopper.patience = patience
        self.stopper.should_stop &= patience <= saved["patience"]  # it may be given more


def worst(findings: Iterable[Mapping[str, Any]]) -> str:
    """The status of a run in which these were found."""
    return STATUSES[max((Severity(one["severity"]).weight for one in findings), default=0)]


def _key(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    return finding["id"], finding["rank"], str(finding["evidence"].get("series"))


_FOREVER = 2**62
_STOPPER = ("patience", "best", "best_step", "improved", "should_stop", "waited", "_updates")
