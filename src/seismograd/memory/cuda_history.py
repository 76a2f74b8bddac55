"""The history of CUDA's allocator, for the viewer at pytorch.org/memory_viz: thin, and nothing without CUDA."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_MOST_ENTRIES = 100_000
"""So many allocations and frees are remembered, each with its stack: some hundred megabytes of the host at most."""


def is_on() -> bool:
    """Whether torch records it at present, whoever asked for it."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(ask is not None and torch.cuda.is_available() and ask())


def begin() -> bool:
    """Has torch record it, if there is CUDA and nobody does; True if it has to be ended by us."""
    if not torch.cuda.is_available() or is_on():
        return False
    try:
        _memory()._record_memory_history(max_entries=_MOST_ENTRIES, stacks="python")
    except (RuntimeError, TypeError, AttributeError):
        return False
    return True


def end() -> None:
    """Has torch forget it again."""
    with suppress(RuntimeError, TypeError, AttributeError):
        _memory()._record_memory_history(None)


def write(path: Path) -> Path | None:
    """Writes it, if it is recorded; the file, or `None`. Never raises: whoever asks has an error already."""
    try:
        if not is_on():
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        _memory()._dump_snapshot(str(path))
    except Exception:
        return None
    return path


def _memory() -> Any:
    return torch.cuda.memory
