"""Leaves our frames out of the script's tracebacks and stacks.

| what is changed while a script runs | why |
|---|---|
| `traceback._walk_tb_with_full_positions`, `traceback.walk_stack`, `inspect.getouterframes` | what the script prints |
| `threading.excepthook`, `threading.__excepthook__` | what Python prints of a thread's exception |
"""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

_OURS = (str(Path(__file__).parent), str(Path(__file__).parents[1] / "patches.py"))


def is_ours(code: Any) -> bool:
    """Whether the code object is part of what stands between the script and Python, or torch."""
    return bool(code.co_filename.startswith(_OURS))


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames: those above the script, and wrappers between it and torch."""
    frames = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code):
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for each in reversed(frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def stripped(error: BaseException) -> BaseException:
    """The exception without our frames, and so all that it came from."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = without_ours(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return error


class ShortTracebacks:
    """While it is there, `traceback` and `threading` leave out our frames."""

    def __init__(self) -> None:
        self._original = getattr(traceback, _WALK, None)
        self._of_threads = threading.excepthook
        if self._original is not None:
            setattr(traceback, _WALK, self._walk)
        threading.excepthook = threading.__excepthook__ = self._thread_failed
        self._of_stacks = traceback.walk_stack
        traceback.walk_stack = self._walk_stack  # type: ignore[assignment]
        self._of_frames = inspect.getouterframes
        inspect.getouterframes = self._outer_frames

    def _walk_stack(self, frame: Any) -> Any:
        if frame is None:
            frame = sys._getframe(1).f_back
        for each, line in self._of_stacks(frame):
            if each.f_code.co_filename == _BELOW:
                return
            if not is_ours(each.f_code):
                yield each, line

    def _outer_frames(self, frame: Any, context: int = 1) -> Any:
        found = self._of_frames(frame, context)
        below = next((at for at, each in enumerate(found) if each.filename == _BELOW), len(found))
        return [each for each in found[:below] if not is_ours(each.frame.f_code)]

    def _thread_failed(self, args: Any) -> None:
        trace = without_ours(args.exc_traceback)
        if args.exc_value is not None:
            stripped(args.exc_value)
        self._of_threads(threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread)))

    def _walk(self, tb: Any) -> Any:
        assert self._original is not None
        return (entry for entry in self._original(tb) if not is_ours(entry[0].f_code))

    def leave(self) -> None:
        if getattr(traceback, _WALK, None) == self._walk:
            setattr(traceback, _WALK, self._original)
        if threading.excepthook == self._thread_failed:
            threading.excepthook = self._of_threads
        threading.__excepthook__ = self._of_threads
        if traceback.walk_stack == self._walk_stack:
            traceback.walk_stack = self._of_stacks
        if inspect.getouterframes == self._outer_frames:
            inspect.getouterframes = self._of_frames


_BELOW = str(Path(__file__).parent / "script.py")
"""The file whose frames stand below the script's."""

_WALK = "_walk_tb_with_full_positions"
