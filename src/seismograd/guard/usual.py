"""What one tensor of a batch usually is, and in what a new one differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from seismograd.detectors.wording import number
from seismograd.guard.leaves import dtype_of, in_words, shape_of
from seismograd.onlookers.data.batches import scale_of
from seismograd.stats.describe import readable

SCALES = 9
"""A tensor has one scale, and one for each of so many channels but one."""
_ENOUGH, _OF_CHANNEL = 16, 256
"""So many elements have a scale: with fewer, mean and deviation are chance."""
_ROWS = 16
"""So many samples, and a few more, tell the scale of a channel."""
_BLANK, _GROWS = 0.9, 1.5


@dataclass(slots=True)
class Seen:
    """One tensor of one batch in numbers."""

    dtype: str
    shape: tuple[int, ...]
    floats: bool
    size: int = 0
    nan: int = 0
    inf: int = 0
    zeros: float = 0.0
    low: float | None = None
    high: float | None = None
    scales: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Mean, deviation and share of non-zeros: of the whole by "", of channels by `[:, 1]`."""


def describe(tensor: Tensor) -> Seen:
    """The tensor in numbers. Waits for its device."""
    floats = tensor.is_floating_point() or tensor.is_quantized
    seen = Seen(dtype_of(tensor), shape_of(tensor), floats)
    values = readable(tensor)
    if values is None or not values.numel() or values.is_complex():
        return seen
    seen.size = values.numel()
    if floats:
        low, high = (float(edge) for edge in torch.aminmax(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            seen.nan, seen.inf = int(values.isnan().sum()), int(values.isinf().sum())
            values_finite = values[values.isfinite()]
            if not values_finite.numel():
                return seen
            low, high = (float(edge) for edge in torch.aminmax(values_finite))
        seen.low, seen.high = low, high
        if not seen.nan and not seen.inf and tensor.layout == torch.strided:
            seen.scales = _scales(values)
        seen.zeros = 1.0 - (seen.scales[""][2] if seen.scales else float(values.count_nonzero()) / seen.size)
    elif values.dtype != torch.bool:
        seen.low, seen.high = (float(edge) for edge in torch.aminmax(values))
    return seen


def _scales(values: Tensor) -> dict[str, tuple[float, float, float]]:
    if values.numel() < _ENOUGH:
        return {}
    parts = {"": values}
    channels = values.shape[1] if values.dim() > 1 else 0
    if 1 < channels < SCALES and values.numel() // channels >= _OF_CHANNEL:
        rows = values if values.dim() == 2 else values[:: max(1, len(values) // _ROWS)]
        parts |= {f"[:, {at}]": rows[:, at].contiguous() for at in range(channels)}
    told = {}
    for part, some in parts.items():
        mean, deviation, filled = (float(each) for each in scale_of(some))
        told[part] = (mean, deviation, filled)
    return told


Difference = tuple[str, str, dict[str, Any], bool]
"""What kind, in words, the evidence, and whether one batch is enough to warn of it."""


@dataclass(slots=True)
class Usual:
    """What one tensor was in the batches that were learned from."""

    batches: int = 0
    dtype: str = ""
    sizes: list[int | None] = field(default_factory=list)
    """By dimension; `None` where it changed, and for the first, which is the batch's."""
    nan: bool = False
    inf: bool = False
    zeros: float = 0.0
    low: float | None = None
    high: float | None = None
    early: float = 0.0
    """From the lowest to the highest in the first half of the batches: a range that still grows is none."""
    state_dict = asdict

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Usual:
        return cls(**state)

    def learn(self, seen: Seen, half: int) -> None:
        """Takes one more tensor in; `half` is the number of batches after which the range should be known."""
        sizes: list[int | None] = [None, *seen.shape[1:]] if seen.shape else []
        if not self.batches:
            self.dtype, self.sizes = seen.dtype, sizes
        elif len(sizes) == len(self.sizes):
            self.sizes = [one if one == other else None for one, other in zip(self.sizes, sizes, strict=True)]
        self.batches += 1
        self.nan |= seen.nan > 0
        self.inf |= seen.inf > 0
        self.zeros = max(self.zeros, seen.zeros)
        if seen.low is not None and seen.high is not None:
            self.low = seen.low if self.low is None else min(self.low, seen.low)
            self.high = seen.high if self.high is None else max(self.high, seen.high)
            if self.batches <= half:
                self.early = self.high - self.low

    def compare(self, seen: Seen, factor: float) -> Iterator[Difference]:
        """In what the tensor differs from all that were learned from."""
        if seen.dtype != self.dtype:
            yield "dtype", f"is {seen.dtype}, and was {self.dtype} before", {"dtype": seen.dtype}, True
        if not self._fits(seen.shape):
            usual = in_words(self.sizes)
            yield (
                "shape",
                f"has the shape {in_words(seen.shape)}, and had {usual} before",
                {"shape": [*seen.shape]},
                True,
            )
            return
        for kind, many, known in (("NaN", seen.nan, self.nan), ("infinite", seen.inf, self.inf)):
            if many and not known:
                text = f"holds {many:,} {kind} values of {seen.size:,}, and held none before"
                yield kind.lower(), text, {"count": many, "size": seen.size}, True
        if seen.zeros >= (1.0 + self.zeros) / 2.0 and self.zeros < _BLANK and seen.size >= _ENOUGH:
            text = f"is {100 * seen.zeros:.0f} % zeros, and was {100 * self.zeros:.0f} % at most before"
            yield "zeros", text, {"zeros": seen.zeros, "usual": self.zeros}, False
        yield from self._range(seen, factor)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if len(shape) != len(self.sizes):
            return False
        return all(usual in (None, size) for usual, size in zip(self.sizes, shape, strict=True))

    def _range(self, seen: Seen, factor: float) -> Iterator[Difference]:
        if seen.low is None or seen.high is None or self.low is None or self.high is None:
            return
        if self.high - self.low > _GROWS * self.early:  # numbers of samples, times
            return
        if seen.floats:
            reach = factor * max(self.high - self.low, 1e-6 * abs(self.high))
            outside = seen.low < self.low - reach or seen.high > self.high + reach
        else:  # labels: rare ones may be new, but not far off, and none is below zero at once; of one, nothing is known
            outside = self.high > self.low and ((seen.low < 0 <= self.low) or seen.high > 2 * max(1.0, self.high))
        if outside:
            word = "values" if seen.floats else "labels"
            text = (
                f"has {word} from {number(seen.low)} to {number(seen.high)}, and had {number(self.low)} to"
                f" {number(self.high)} before"
            )
            yield "range", text, {"low": seen.low, "high": seen.high}, not seen.floats
