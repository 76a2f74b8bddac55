"""Anything that a user hands to a log as strict JSON of bounded size: tensors and arrays in a few numbers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any

from seismograd.records import strict

ITEMS, DEPTH, LETTERS = 256, 8, 10_000
"""So many items of a container are kept, so many levels of it, and so many letters of a text."""


def plain(value: Any, depth: int = DEPTH) -> Any:
    """`value` as strict JSON. Nothing of it is kept alive, and nothing in it can make this raise."""
    try:
        return _plain(value, depth)
    except Exception as error:  # an object of the user's that does not want to be looked at
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return strict(value)
    if isinstance(value, Enum):
        return plain(value.value, depth - 1)
    if isinstance(value, (str, PurePath)):
        return _short(str(value))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return strict(_of_tensor(value))
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _of_array(value)
    if depth <= 0:
        return _short(f"<{type(value).__name__}>")
    if isinstance(value, Mapping):
        parts = {_short(str(key)): plain(item, depth - 1) for key, item in islice(value.items(), ITEMS)}
        return parts if len(value) <= ITEMS else {**parts, "...": f"{len(value) - ITEMS} more"}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [plain(item, depth - 1) for item in islice(value, ITEMS)]
        return items if len(value) <= ITEMS else [*items, f"... {len(value) - ITEMS} more"]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name), depth - 1) for part in dataclasses.fields(value)}
    return _short(str(value))


def _of_tensor(tensor: Any) -> Any:
    """One number as it is; of many their shape, dtype, range and mean, and how many are not finite. Waits for it."""
    from seismograd.stats.describe import describe

    info = describe(tensor)
    if info.numel == 1 and info.num_nans is not None and not tensor.is_complex():
        return tensor.detach().to_dense().item() if info.mean_value is None else info.mean_value
    seen = {"min": info.min_value, "max": info.max_value, "mean": info.mean_value}
    seen |= {"nan": info.num_nans or None, "inf": info.num_infs or None}
    about: dict[str, Any] = {"shape": list(info.shape), "dtype": info.dtype.removeprefix("torch.")}
    if info.device != "cpu":
        about["device"] = info.device
    return about | {name: value for name, value in seen.items() if value is not None}


def _of_array(array: Any) -> Any:
    """A NumPy array or scalar, without importing NumPy."""
    if array.size == 1 or array.dtype.kind not in "biuf":
        return plain(array.tolist(), 1)
    import numpy as np

    about: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    finite = array[np.isfinite(array)]
    if finite.size:
        about |= {"min": finite.min(), "max": finite.max(), "mean": finite.mean(dtype=np.float64)}
    if bad := array.size - finite.size:
        nan = np.isnan(array).sum()
        about |= {"nan": nan, "inf": bad - nan}
    return strict(about)


def _short(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate is no JSON
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}... {len(text) - LETTERS} more letters"
