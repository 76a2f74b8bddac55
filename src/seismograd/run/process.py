"""What `seismograd run` changes in the process while a script runs, all of it, and how it is put back.

| what | why |
|---|---|
| a finder on `sys.meta_path`, until `torch` is imported | the watch begins when the script imports torch |
| handlers of SIGTERM and SIGHUP, where they are the default ones | the verdict, then the default action |
| `signal.set_wakeup_fd`, and a thread that reads it, once a training began | signals end native code too |
| `signal.signal`, `signal.getsignal` | to the script those handlers are the default ones |
| `os._exit` | the verdict, then the exit |
| what `seismograd/run/frames.py` lists | our frames are left out of tracebacks |

A forked child gets everything back as it was, at once. What is changed in torch stands in `seismograd/patches.py`.
"""

from __future__ import annotations

import _thread
import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from importlib.abc import MetaPathFinder
from typing import Any, TextIO

from seismograd import endings

_HIGH = 200
"""Our descriptors are numbered from here: the script's own get the numbers that they would have had."""

_AT_ONCE = 2.0
"""Seconds within which a second signal is an echo: `timeout` sends it to the process and to its group."""

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def own_stderr() -> TextIO | None:
    """The process's stderr as it is now, on a descriptor of ours: the script may close its own, or reuse its number."""
    if sys.stderr is None:
        return None
    try:
        import fcntl

        copy = fcntl.fcntl(sys.stderr.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except (ImportError, OSError, ValueError):  # no such system, so few descriptors, or no real stream
        return sys.stderr
    encoding = sys.stderr.encoding
    stream = open(copy, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115

    def leave() -> None:
        with contextlib.suppress(OSError):
            os.close(copy)

    os.register_at_fork(after_in_child=leave)
    return stream


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
        self._asks = False

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asks = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        @wraps(execute)
        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                self.leave()
                self._callback()

        with contextlib.suppress(AttributeError):  # a loader like no other
            loader.exec_module = exec_module
        return spec


class Exits:
    """Hears of the ways out of a process that pass by the end of the script: signals and `os._exit`."""

    def __init__(self, leaving: Callable[[int, str | None], bool]) -> None:
        """`leaving` is told the exit code and, if there is one, the signal's name; whether the way is free, or the
        verdict is just being made, after which `leave` is called."""
        self._leaving = leaving
        self._pid = os.getpid()
        self._undo: list[Callable[[], None]] = []
        self._caught: set[int] = set()
        self._began: float | None = None
        """When the first signal came to our handler."""
        self._pending: int | None = None
        """The signal that came while the verdict was being made."""
        self._wakeup: tuple[int, int] | None = None
        endings.supervised = True
        self._install()
        os.register_at_fork(after_in_child=self._forked)

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

        self._real_signal, self._real_getsignal = real_signal, real_getsignal
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

    def insist(self) -> None:
        """From now on a signal ends the process even if the main thread does not come back from native code.

        A thread of the operating system's kind, unknown to `threading`, reads what Python writes when a signal comes.
        """
        if self._wakeup is not None or threading.current_thread() is not threading.main_thread() or not self._caught:
            return
        self._wakeup = endings.wakeup(_HIGH)
        if self._wakeup is not None:
            _thread.start_new_thread(self._listen, (self._wakeup[0],))

    def _listen(self, reads: int) -> None:
        with contextlib.suppress(OSError):
            while numbers := os.read(reads, 64):
                for number in numbers:
                    if self._is_ours(number) and self._is_overdue() and self._is_ours(number):
                        import ctypes

                        ctypes.CDLL(None).signal(number, 0)  # SIG_DFL, from this thread
                        os.kill(os.getpid(), number)

    def _is_ours(self, number: int) -> bool:
        return number in self._caught and bool(self._real_getsignal(number) == self._handle)

    def _is_overdue(self) -> bool:
        """Whether the main thread has not come to our handler within a second; then there can be no verdict."""
        for _ in range(20):
            time.sleep(0.05)
            if self._began is not None:
                return False
        return self._began is None

    def _forked(self) -> None:
        """In a child signals are its own, and so is the pipe's end that it has a copy of."""
        if self._wakeup is not None:
            with contextlib.suppress(ValueError, OSError):
                if (before := signal.set_wakeup_fd(-1)) not in (-1, self._wakeup[1]):
                    signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            for fd in self._wakeup:
                with contextlib.suppress(OSError):
                    os.close(fd)
            self._wakeup = None
        self.leave()

    def _handle(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._began is not None and now < self._began + _AT_ONCE:
            return
        is_first, self._began = self._began is None, now
        if not self._tell(128 + number, signal.Signals(number).name) and is_first:
            self._pending = number
            return
        self._real_signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _tell(self, code: int, name: str | None) -> bool:
        return os.getpid() != self._pid or self._leaving(code, name)

    def leave(self) -> None:
        """Puts everything back."""
        endings.supervised = False
        if self._wakeup is not None:
            (_, writes), self._wakeup = self._wakeup, None
            with contextlib.suppress(ValueError, OSError):
                if (before := signal.set_wakeup_fd(-1)) not in (-1, writes):
                    signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            os.close(writes)  # the thread reads its end, and ends
        while self._undo:
            self._undo.pop()()
        for number in tuple(self._caught):
            self._caught.discard(number)
            try:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, signal.SIG_DFL)
            except ValueError:  # not on the main thread: the process ends, or the child has no use for it
                pass
        if self._pending is not None and os.getpid() == self._pid:
            os.kill(os.getpid(), self._pending)
