"""What `seismograd run` changes in the process while a script runs, all of it, and how it is put back.

| what | why |
|---|---|
| a finder on `sys.meta_path`, until `torch` is imported | the watch begins when the script imports torch |
| handlers of SIGTERM and SIGHUP, where they are the default ones | the verdict, then the default action |
| `signal.signal`, `signal.getsignal` | to the script those handlers are the default ones |
| `os._exit` | the verdict, then the exit |
| `traceback._walk_tb_with_full_positions`, `threading.excepthook` | tracebacks leave out our frames |

A forked child gets everything back as it was, at once. What is changed in torch stands in `seismograd/patches.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import TracebackType
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def when_imported(name: str, callback: Callable[[], None]) -> Callable[[], None]:
    """Calls back when the module has been imported, at once if it has been; returns what takes that back."""
    if name in sys.modules:
        callback()
        return lambda: None
    finder = _Finder(name, callback)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(MetaPathFinder):
    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name, self._callback = name, callback

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        @wraps(execute)
        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            self._callback()

        with contextlib.suppress(AttributeError):  # a loader like no other
            loader.exec_module = exec_module
        return spec


class Exits:
    """Hears of the ways out of a process that pass by the end of the script: signals and `os._exit`."""

    def __init__(self, leaving: Callable[[int, str | None], None]) -> None:
        """`leaving` is told the exit code and, if there is one, the signal's name."""
        self._leaving = leaving
        self._pid = os.getpid()
        self._undo: list[Callable[[], None]] = []
        self._caught: set[int] = set()
        self._install()
        os.register_at_fork(after_in_child=self.leave)

    def _install(self) -> None:
        real_exit, real_signal, real_getsignal = os._exit, signal.signal, signal.getsignal

        @wraps(real_exit)
        def leave_at_once(status: int) -> None:
            self._tell(status if isinstance(status, int) else 1, None)
            real_exit(status)

        @wraps(real_signal)
        def set_handler(signalnum: int, handler: Any) -> Any:
            before = real_signal(signalnum, handler)
            if signalnum in self._caught and handler == signal.SIG_DFL:
                real_signal(signalnum, self._handle)
            return signal.SIG_DFL if before == self._handle else before

        @wraps(real_getsignal)
        def get_handler(signalnum: int) -> Any:
            handler = real_getsignal(signalnum)
            return signal.SIG_DFL if handler == self._handle else handler

        self._real_signal = real_signal
        for number in _SIGNALS:
            if real_getsignal(number) == signal.SIG_DFL:
                real_signal(number, self._handle)
                self._caught.add(number)
        for owner, name, ours in (
            (os, "_exit", leave_at_once),
            (signal, "signal", set_handler),
            (signal, "getsignal", get_handler),
        ):
            self._replace(owner, name, ours)

    def _replace(self, owner: Any, name: str, ours: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, ours)

        def undo() -> None:
            if getattr(owner, name) is ours:
                setattr(owner, name, original)

        self._undo.append(undo)

    def _handle(self, number: int, frame: Any) -> None:
        self._tell(128 + number, signal.Signals(number).name)
        self._real_signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _tell(self, code: int, name: str | None) -> None:
        if os.getpid() == self._pid:
            self._leaving(code, name)

    def leave(self) -> None:
        """Puts everything back."""
        while self._undo:
            self._undo.pop()()
        for number in tuple(self._caught):
            self._caught.discard(number)
            try:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, signal.SIG_DFL)
            except ValueError:  # not on the main thread: the process ends, or the child has no use for it
                pass


OURS = (str(Path(__file__).parent), str(Path(__file__).parents[1] / "patches.py"))


def is_ours(code: Any) -> bool:
    """Whether the code object is part of what stands between the script and Python, or torch."""
    return bool(code.co_filename.startswith(OURS))


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


class ShortTracebacks:
    """While it is there, `traceback` and `threading` leave out our frames."""

    def __init__(self) -> None:
        self._original = getattr(traceback, _WALK, None)
        self._of_threads = threading.excepthook
        if self._original is not None:
            setattr(traceback, _WALK, self._walk)
        threading.excepthook = self._thread_failed

    def _thread_failed(self, args: Any) -> None:
        trace = without_ours(args.exc_traceback)
        if args.exc_value is not None:
            args.exc_value.__traceback__ = trace
        self._of_threads(threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread)))

    def _walk(self, tb: Any) -> Any:
        assert self._original is not None
        return (entry for entry in self._original(tb) if not is_ours(entry[0].f_code))

    def leave(self) -> None:
        if getattr(traceback, _WALK, None) == self._walk:
            setattr(traceback, _WALK, self._original)
        if threading.excepthook == self._thread_failed:
            threading.excepthook = self._of_threads


_WALK = "_walk_tb_with_full_positions"
