"""Whether a rank draws random numbers for its samples: noise, crops, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

_SIZE = 5056
"""Bytes of the state of torch's generator on the processor."""
_FEW = 16
"""Fewer numbers are a decision for the whole step, which all ranks may have to take alike."""
_AGAIN = 3
"""Steps in a row; the numbers of a block are made at once, so that any step may be the one that makes them."""


class Drawing:
    """Compares the state of the generator from step to step, where samples are chosen by a sampler. Without one the
    samples themselves may be drawn, by all ranks alike, each of which takes its part of them."""

    def __init__(self) -> None:
        self._before: NDArray[np.uint8] | None = None
        self._is_fed = False
        self._steps = 0

    def data_came(self, iterator: Any) -> None:
        self._is_fed = not isinstance(getattr(iterator, "_dataset", None), IterableDataset)

    def goes_on(self, state: NDArray[np.uint8], samples: int) -> bool:
        """Whether numbers for each sample have been drawn at several steps in a row."""
        before, self._before = self._before, state
        drawn = before is not None and self._is_fed and _many(before, state, max(_FEW, samples))
        self._is_fed = False
        self._steps = self._steps + 1 if drawn else 0
        return self._steps >= _AGAIN


def _many(before: NDArray[np.uint8], now: NDArray[np.uint8], least: int) -> bool:
    if len(before) != _SIZE or len(now) != _SIZE:
        return False
    if not np.array_equal(before[24:5016], now[24:5016]):
        return True  # another block of 624
    then, place = (int(each[16:24].view(np.uint64)[0]) for each in (before, now))
    return place - then >= least
