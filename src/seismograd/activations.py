"""What a layer's outputs look like over time: units that never fire, activations stuck at their bounds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from seismograd.stats.arrays import FloatArray, to_array

_MARGIN = 0.01  # how close to a bound counts as pinned to it
_FLAT = 0.9  # a unit is saturated when this share of its values is pinned
_MIN_SAMPLES = 32  # a healthy ReLU unit may well rest on a handful of samples


@dataclass
class ActivationStats:
    """Statistics of one layer's activations at one step, over the finite values."""

    mean: float
    std: float
    min_val: float
    max_val: float
    num_zeros: int
    num_saturated: int
    total_elements: int
    num_nonfinite: int = 0
    num_samples: int = 1

    @property
    def zero_ratio(self) -> float:
        return self.num_zeros / self.total_elements

    @property
    def saturation_ratio(self) -> float:
        return self.num_saturated / self.total_elements

    @classmethod
    def of(cls, activations: Any, unit_axis: int | None = None) -> ActivationStats:
        """The statistics of one array, whose first axis counts samples unless it has only one."""
        values = _measured(activations)
        known = np.isfinite(values)
        finite = values[known] if known.any() else np.array([np.nan])
        return cls(
            mean=float(finite.mean()),
            std=float(finite.std()),
            min_val=float(finite.min()),
            max_val=float(finite.max()),
            num_zeros=int(np.sum(finite == 0)),
            num_saturated=int(np.sum(_pinned(values, unit_axis))),
            total_elements=values.size,
            num_nonfinite=values.size - int(known.sum()),
            num_samples=values.shape[0] if values.ndim > 1 else 1,
        )


class ActivationMonitor:
    """Keeps the last `window_size` statistics of each layer and says which layers are ill.

    A unit is dead when it fired on no sample of the window: half of a healthy ReLU layer is zero at any moment, but
    not the same half. It is saturated when it sits within 1 % of the bounds of a bounded function on 90 % of the
    window's values, and the window shows that there are bounds: all values in [-1, 1] or [0, 1], and the outer bound
    reached. A ReLU's zeros are not saturation, nor is a row of probabilities that add up to one.

    The units lie on the last axis of two or three (`(samples, units)`, `(samples, positions, units)`) and on the
    second of more (`(samples, channels, height, width)`); one axis is one sample. `unit_axis` says otherwise.
    """

    def __init__(self, window_size: int = 100, *, dead_limit: float = 0.2, saturation_limit: float = 0.5) -> None:
        if window_size < 1:
            raise ValueError(f"window_size is {window_size}: it must be at least 1")
        self.window_size = window_size
        self.dead_limit = dead_limit
        self.saturation_limit = saturation_limit
        self.history: dict[str, deque[ActivationStats]] = {}
        self._silent: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}  # records since each unit last fired
        self._pinned: dict[str, deque[FloatArray]] = {}  # for each record, the share of each unit's values

    def record(self, layer_name: str, activations: Any, *, unit_axis: int | None = None) -> None:
        """Adds one step's activations of a layer; an empty array is no measurement and adds nothing."""
        values = to_array(activations)
        if not values.size:
            return
        fired = np.any(_rows(values, unit_axis) != 0, axis=0)
        silent = self._silent.get(layer_name)
        if silent is None or silent.shape != fired.shape:  # other units than before: the window starts again
            self.history[layer_name] = deque(maxlen=self.window_size)
            self._pinned[layer_name] = deque(maxlen=self.window_size)
            silent = np.zeros(fired.shape, np.int64)
        self._silent[layer_name] = np.where(fired, 0, silent + 1)
        self.history[layer_name].append(ActivationStats.of(values, unit_axis))
        self._pinned[layer_name].append(_rows(_pinned(values, unit_axis).astype(np.float64), unit_axis).mean(axis=0))

    def diagnose(self) -> dict[str, list[str]]:
        """What is wrong, by layer; healthy layers are absent."""
        found = {layer: self._issues(layer) for layer in self.history}
        return {layer: issues for layer, issues in found.items() if issues}

    def _issues(self, layer: str) -> list[str]:
        window, issues = self.history[layer], []
        total = sum(stats.total_elements for stats in window)
        if nonfinite := sum(stats.num_nonfinite for stats in window):
            issues.append(f"Non-finite: {nonfinite} of {total} values are NaN or Inf")

        samples, silent = sum(stats.num_samples for stats in window), self._silent[layer]
        dead = int(np.sum(silent >= len(window)))
        if samples >= _MIN_SAMPLES and dead / silent.size > self.dead_limit:
            share = f"{dead / silent.size:.0%} of the units ({dead} of {silent.size})"
            issues.append(f"Dead: {share} fired on none of {samples} samples")

        low, high = min(stats.min_val for stats in window), max(stats.max_val for stats in window)
        sizes = [stats.total_elements for stats in window]
        shares = np.average(np.stack(self._pinned[layer]), axis=0, weights=sizes)
        flat = int(np.sum(shares >= _FLAT))
        if _bounded(low, high) and flat / shares.size > self.saturation_limit:
            share = f"{flat / shares.size:.0%} of the units ({flat} of {shares.size})"
            issues.append(f"Saturated: {share} lie within 1 % of the bounds on nearly every sample")
        return issues


def detect_dead_neurons(
    activations: Any, threshold: float = 0.01, *, unit_axis: int | None = None
) -> tuple[int, float]:
    """How many units stay within `threshold` of zero on every sample, and their share of all units.

    The units are found as in `ActivationMonitor`.
    """
    rows = _rows(_measured(activations), unit_axis)
    dead = int(np.sum(np.abs(rows).max(axis=0) < threshold))
    return dead, dead / rows.shape[1]


def _measured(activations: Any) -> FloatArray:
    values = to_array(activations)
    if not values.size:
        raise ValueError("the activations are empty: there is nothing to measure")
    return values


def _rows(values: FloatArray, unit_axis: int | None) -> FloatArray:
    """The values as a matrix with a column for each unit."""
    if values.ndim < 2:
        return values.reshape(1, -1)
    if unit_axis is None:
        unit_axis = -1 if values.ndim <= 3 else 1
    return np.moveaxis(values, unit_axis, -1).reshape(-1, values.shape[unit_axis])


def _bounded(low: float, high: float) -> bool:
    """Whether values between these two look like those of a sigmoid or a tanh that reaches its bounds."""
    return low >= -1 and high <= 1 and max(high, -low) >= 1 - _MARGIN


def _pinned(values: FloatArray, unit_axis: int | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which values are pinned to a bound."""
    none = np.zeros(values.shape, np.bool_)
    finite = values[np.isfinite(values)]
    if not finite.size or not _bounded(float(finite.min()), float(finite.max())):
        return none
    if finite.min() < 0:
        return np.abs(values) >= 1 - _MARGIN
    if _adds_up(_rows(values, unit_axis)) or _adds_up(values):  # over the classes, or the keys of an attention
        return none
    return (values >= 1 - _MARGIN) | ((values <= _MARGIN) & (values > 0))


def _adds_up(values: FloatArray) -> bool:
    """Whether each row is a set of probabilities: certain ones are not stuck."""
    return values.ndim > 0 and values.shape[-1] > 1 and np.allclose(values.sum(axis=-1), 1, atol=1e-3)
