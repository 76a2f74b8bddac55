"""A training run as plain lists, judged by the same detectors as a live one; and when to stop it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from seismograd.detectors import DEFAULT
from seismograd.judge import Judge
from seismograd.records import Finding, Reading, Severity

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass
class TrainingHistory:
    """Records a run's metrics, one entry for each step, and diagnoses them.

    `val_loss` holds only the steps that were validated; `val_step` says which.
    """

    loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    val_step: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._judged: _Judged | None = None

    def record(self, step: int, loss: float, grad_norm: float, lr: float, val_loss: float | None = None) -> None:
        """Adds the metrics of one training step."""
        self.step.append(int(step))
        self.loss.append(float(loss))
        self.grad_norm.append(float(grad_norm))
        self.learning_rate.append(float(lr))
        if val_loss is not None:
            self.val_loss.append(float(val_loss))
            self.val_step.append(int(step))

    def diagnose(self) -> dict[str, Any]:
        """The verdict so far: `status`, `issues` (the findings' ids in capitals), `recommendations`, `metrics`.

        Only what was recorded since the last call is judged. Lists that were replaced, shortened or changed at
        their end are judged again from the start.
        """
        if self._judged is None or not self._judged.still_holds(self):
            self._judged = _Judged(self)
        self._judged.go_on(self)
        return self._judged.verdict()

    def steps(self) -> list[int]:
        """The step of each loss; their positions where `step` was not filled."""
        return self.step if len(self.step) == len(self.loss) else list(range(len(self.loss)))

    def val_steps(self) -> list[int]:
        """The step of each validation loss; spread evenly over the run where `val_step` was not filled."""
        if len(self.val_step) == len(self.val_loss) or not self.loss:
            return self.val_step
        steps, count = self.steps(), len(self.val_loss)
        return [steps[-1 - (count - 1 - at) * len(steps) // count] for at in range(count)]

    def plot(self) -> Figure:
        """The curves of loss, validation loss, gradient norm and learning rate, as a plotly figure."""
        from seismograd.reports.figures import history_figure

        return history_figure(self)


class _Judged:
    """How far a history has been judged, and what came of it."""

    def __init__(self, history: TrainingHistory) -> None:
        self._judge = Judge(DEFAULT)
        self._lists = _lists(history)
        self._tails: list[Sequence[float]] = [[] for _ in self._lists]
        self._records, self._validations = 0, 0
        self._metrics: dict[str, Any] = {"steps": 0}

    def still_holds(self, history: TrainingHistory) -> bool:
        """Whether what was judged is still what the lists hold, as far as their ends tell."""
        lists = _lists(history)
        seen = [self._validations if series is history.val_loss else self._records for series in lists]
        return all(
            now is then and now[max(0, count - _TAIL) : count] == tail
            for now, then, count, tail in zip(lists, self._lists, seen, self._tails, strict=True)
        )

    def go_on(self, history: TrainingHistory) -> None:
        for reading in self._new_readings(history):
            self._judge.observe(reading)
            self._measure(reading)
        counts = [self._validations if series is history.val_loss else self._records for series in self._lists]
        self._tails = [series[max(0, count - _TAIL) : count] for series, count in zip(self._lists, counts, strict=True)]

    def verdict(self) -> dict[str, Any]:
        issues, recommendations = issues_of(self._judge.findings)
        return {
            "status": self._judge.status,
            "issues": issues,
            "recommendations": recommendations,
            "metrics": dict(self._metrics),
        }

    def _new_readings(self, history: TrainingHistory) -> Iterator[Reading]:
        """What is new, in order; a validation goes with the first training step at or after its own."""
        steps, val_steps = history.steps(), history.val_steps()
        for at in range(self._records, len(history.loss)):
            scalars = {"loss": history.loss[at]}
            if at < len(history.grad_norm):
                scalars["grad/norm"] = history.grad_norm[at]
            if at < len(history.learning_rate):
                scalars["lr/0"] = history.learning_rate[at]
            while self._validations < len(val_steps) and val_steps[self._validations] <= steps[at]:
                scalars["val_loss"] = history.val_loss[self._validations]
                self._validations += 1
            self._records += 1
            yield Reading(steps[at], scalars)

    def _measure(self, reading: Reading) -> None:
        metrics, scalars = self._metrics, reading.scalars
        metrics["steps"] += 1
        for series, name in (("loss", "loss"), ("val_loss", "val_loss"), ("grad/norm", "grad_norm"), ("lr/0", "lr")):
            if series in scalars:
                metrics.setdefault(f"{name}_start", scalars[series])
                metrics[f"{name}_end"] = scalars[series]
        for name in ("loss", "val_loss"):
            value = scalars.get(name, math.nan)
            if math.isfinite(value) and value < metrics.get(f"{name}_best", math.inf):
                metrics[f"{name}_best"], metrics[f"{name}_best_step"] = value, reading.step
        norm = scalars.get("grad/norm", math.nan)
        if math.isfinite(norm):
            metrics["grad_norm_max"] = max(norm, metrics.get("grad_norm_max", 0.0))


def issues_of(findings: Iterable[Finding]) -> tuple[list[str], list[str]]:
    """The findings as the seed names them, ids in capitals, and what to do about them; not those that only inform."""
    grave = [finding for finding in findings if finding.severity is not Severity.INFO]
    issues = list(dict.fromkeys(finding.id.replace("-", "_").upper() for finding in grave))
    recommendations = [text for finding in grave for text in finding.recommendations]
    if "NONFINITE_LOSS" in issues and "LOSS_EXPLOSION" not in issues:
        issues.append("LOSS_EXPLOSION")
        recommendations += ["Reduce the learning rate by a factor of 10", "Add gradient clipping"]
    return issues, list(dict.fromkeys(recommendations))


_TAIL = 16


def _lists(history: TrainingHistory) -> list[Sequence[float]]:
    return [history.loss, history.val_loss, history.grad_norm, history.learning_rate, history.step]


class EarlyStopping:
    """Says when a value has not improved by more than `min_delta` for `patience` updates in a row.

    A value that is not finite stops at once, and a stop is final. `checkpoint` is called at each improvement. By hand:

        if stopper.update(val_loss):
            break
        if stopper.improved:
            save(model)
    """

    def __init__(
        self,
        patience: int = 10,
        min_delta: float = 0.0,
        mode: Literal["min", "max"] = "min",
        *,
        checkpoint: Callable[[], object] | None = None,
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience is {patience}: it must be at least 1")
        if not min_delta >= 0:
            raise ValueError(f"min_delta is {min_delta}: it must not be negative")
        if mode not in ("min", "max"):
            raise ValueError(f"mode is {mode!r}: use 'min' for a loss or 'max' for an accuracy")
        self.patience, self.min_delta, self.mode, self.checkpoint = patience, min_delta, mode, checkpoint
        self.best: float | None = None
        self.best_step: int | None = None
        self.improved = False
        self.should_stop = False
        self.waited = 0
        self._updates = 0

    def update(self, value: float, step: int | None = None) -> bool:
        """Takes the newest value and returns whether to stop. `step` is the number of the update unless given."""
        value, step = float(value), self._updates if step is None else step
        self._updates += 1
        self.improved = math.isfinite(value) and self._is_better(value)
        if self.improved:
            self.best, self.best_step, self.waited = value, step, 0
            if self.checkpoint is not None:
                self.checkpoint()
        else:
            self.waited += 1
        if not math.isfinite(value) or self.waited >= self.patience:
            self.should_stop = True
        return self.should_stop

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return True
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta
