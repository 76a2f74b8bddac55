"""Errors that say that there is no memory left, and how much was asked for. Standard library only."""

from __future__ import annotations

import errno
import re

_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "out of memory",
    "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
_ASKED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]+) ?(bytes|[KMGTP]i?B)")
_UNITS = {"bytes": 1, **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)}}
_UNITS |= {unit.replace("iB", "B"): size for unit, size in _UNITS.items()}


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether it was raised because memory could not be had: Python's, NumPy's, torch's on any device, the system's."""
    if error is None:
        return False
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def asked_for(error: BaseException) -> int | None:
    """How many bytes were asked for, if the message says it."""
    found = _ASKED.search(str(error))
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])
