"""A hook after each training step that watches absolute limits: gradient norm, learning rate, finiteness."""

from __future__ import annotations

import math
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from seismograd.complaints import complain

Callback = Callable[[str, dict[str, Any]], object]


class StepHook(Protocol):
    """What a `StepProfiler` calls."""

    def after_step(self, step: int, step_duration: float, **kwargs: Any) -> object: ...


class StepProfiler:
    """Hands each step's training context to its hooks. A hook that fails warns, and the others still run."""

    def __init__(self) -> None:
        self.hooks: list[StepHook] = []
        self.step_count = 0

    def register_hook(self, hook: StepHook) -> None:
        if not callable(getattr(hook, "after_step", None)):
            raise TypeError(f"{hook!r} has no after_step(step, step_duration, **context) to call")
        self.hooks.append(hook)

    def end_step(
        self,
        step: int,
        step_duration: float,
        model: Any = None,
        optimizer: Any = None,
        loss: Any = None,
        **kwargs: Any,
    ) -> None:
        """Says that a step is over. Call it before the gradients are zeroed."""
        self.step_count = step
        context = {"model": model, "optimizer": optimizer, "loss": loss, **kwargs}
        failures = []
        for hook in list(self.hooks):
            try:
                hook.after_step(step=step, step_duration=step_duration, **context)
            except Exception as error:
                failures.append(f"Hook {type(hook).__name__} failed: {error}")
        for failure in failures:
            complain(failure, stacklevel=3)


class Anomaly(NamedTuple):
    """What an `AnomalyDetectionHook` saw: the arguments of its callbacks."""

    kind: str
    facts: dict[str, Any]


class AnomalyDetectionHook:
    """Reports steps that cross a limit to its callbacks.

    | kind | when |
    |---|---|
    | `gradient_norm` | the global norm of the gradients is above `grad_norm_threshold` |
    | `gradient_nonfinite` | it is NaN or infinite |
    | `loss_nonfinite` | the loss is |
    | `lr_change` | a group's learning rate changed from the step before by more than `lr_change_threshold` of itself |

    What follows a learning rate below `epsilon` has no ratio and is not reported. The limits are absolute; the
    detectors of a watch judge relative to the run.
    """

    def __init__(
        self,
        lr_change_threshold: float = 0.1,
        lr_history_size: int = 10,
        grad_norm_threshold: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        if lr_history_size < 2:
            raise ValueError(f"lr_history_size is {lr_history_size}: a change takes at least 2")
        for name, limit in (
            ("lr_change_threshold", lr_change_threshold),
            ("grad_norm_threshold", grad_norm_threshold),
            ("epsilon", epsilon),
        ):
            if not limit >= 0:
                raise ValueError(f"{name} is {limit}: it must not be negative")
        self.lr_change_threshold = lr_change_threshold
        self.lr_history_size = lr_history_size
        self.grad_norm_threshold = grad_norm_threshold
        self.epsilon = epsilon
        self._callbacks: list[Callback] = []
        self._rates: dict[int, list[deque[float]]] = {}  # by optimizer, then by group

    def register_anomaly_callback(self, callback: Callback) -> None:
        """Has `callback(kind, facts)` called for each anomaly."""
        self._callbacks.append(callback)

    def after_step(self, step: int, step_duration: float, **kwargs: Any) -> None:
        """Analyzes the step if model, optimizer and loss are all given."""
        model, optimizer, loss = (kwargs.pop(name, None) for name in ("model", "optimizer", "loss"))
        if model is not None and optimizer is not None and loss is not None:
            self.analyze_training_step(step, step_duration, model, optimizer, loss, **kwargs)

    def analyze_training_step(
        self, step: int, step_duration: float, model: Any, optimizer: Any, loss: Any, **kwargs: Any
    ) -> list[Anomaly]:
        """The anomalies of this step, after the callbacks have been told. Their facts hold all of `kwargs` too."""
        context = {**kwargs, "step": step, "step_duration": step_duration}
        anomalies = [
            Anomaly(kind, {**context, **facts})
            for check in (self._check_loss(loss), self._check_gradients(model), self._check_rates(optimizer))
            for kind, facts in check
        ]
        failures = []
        for anomaly in anomalies:
            for callback in list(self._callbacks):
                try:
                    callback(anomaly.kind, anomaly.facts)
                except Exception as error:
                    name = getattr(callback, "__name__", type(callback).__name__)
                    failures.append(f"Callback {name} failed on {anomaly.kind}: {error}")
        for failure in failures:
            complain(failure, stacklevel=3)
        return anomalies

    def _check_loss(self, loss: Any) -> Iterator[Anomaly]:
        value = _number(loss)
        if not math.isfinite(value):
            yield Anomaly("loss_nonfinite", {"loss": value})

    def _check_gradients(self, model: Any) -> Iterator[Anomaly]:
        norm = _gradient_norm(model)
        if norm is None:
            return
        facts = {"grad_norm": norm, "threshold": self.grad_norm_threshold}
        if not math.isfinite(norm):
            yield Anomaly("gradient_nonfinite", facts)
        elif norm > self.grad_norm_threshold:
            yield Anomaly("gradient_norm", facts)

    def _check_rates(self, optimizer: Any) -> Iterator[Anomaly]:
        for group, (history, lr) in enumerate(zip(self._histories(optimizer), _rates(optimizer), strict=True)):
            before = history[-1] if history else 0.0
            history.append(lr)
            if abs(before) < self.epsilon or before == 0:
                continue
            ratio = abs(lr - before) / abs(before)
            if ratio > self.lr_change_threshold:
                facts = {"group": group, "previous_lr": before, "lr": lr, "change_ratio": ratio}
                yield Anomaly(
                    "lr_change", {**facts, "threshold": self.lr_change_threshold, "lr_history": list(history)}
                )

    def _histories(self, optimizer: Any) -> list[deque[float]]:
        key = id(optimizer)
        if key not in self._rates:
            self._rates[key] = []
            with suppress(TypeError):  # not everything can be referred to weakly
                weakref.finalize(optimizer, self._rates.pop, key, None).atexit = False  # an id may be used again
        histories = self._rates[key]
        while len(histories) < len(_rates(optimizer)):  # groups may be added later
            histories.append(deque(maxlen=self.lr_history_size))
        return histories[: len(_rates(optimizer))]


def _number(value: Any) -> float:
    """A plain or 0-d number as a float, whoever's array it is."""
    size = getattr(value, "numel", None)
    if callable(size) and size() != 1:
        raise ValueError(f"a loss of {size()} elements is no number: give its mean, or its sum")
    return float(value.item() if hasattr(value, "item") else value)


def _rates(optimizer: Any) -> list[float]:
    """The learning rate of each group; optimizers that are not torch's may have just one, as `lr`."""
    if hasattr(optimizer, "param_groups"):
        return [_number(group["lr"]) for group in optimizer.param_groups if "lr" in group]
    return [_number(optimizer.lr)] if hasattr(optimizer, "lr") else []


def _gradient_norm(model: Any) -> float | None:
    """The global norm of the gradients that the model holds, or None where there are none to see."""
    parameters = getattr(model, "parameters", ())
    held = list(parameters() if callable(parameters) else parameters)
    gradients = [each.grad for each in held if getattr(each, "grad", None) is not None]
    if not gradients:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(gradients[0], torch.Tensor):
        from seismograd.stats.tensors import gradient_norm

        return gradient_norm(held)
    from seismograd.stats.arrays import GradientStats

    return GradientStats.from_gradients(gradients).norm


_global_step_profiler = StepProfiler()


def get_step_profiler() -> StepProfiler:
    """The process's own profiler, which `register_anomaly_hook` and `end_step` speak to."""
    return _global_step_profiler


def register_anomaly_hook(hook: StepHook) -> None:
    """Adds a hook to the process's own profiler."""
    _global_step_profiler.register_hook(hook)


def end_step(
    step: int, step_duration: float, model: Any = None, optimizer: Any = None, loss: Any = None, **kwargs: Any
) -> None:
    """Tells the process's own profiler that a step is over. Call it before the gradients are zeroed."""
    _global_step_profiler.end_step(step, step_duration, model, optimizer, loss, **kwargs)
