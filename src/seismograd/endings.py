"""Signals that end a process without a word: what is still at work is ended first, then the default action is taken.

A handler of ours stands only where the default one stood, only on the main thread, and only while something is at work.
A forked child gets the default back at once.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

Leaving = Callable[[int, str], None]
"""Is told the exit code that the process will have, and the signal's name."""

_at_work: dict[int, Leaving] = {}
_caught: set[int] = set()
_numbers = iter(range(1 << 62))
_forks_are_heard_of = False
_wakeup: tuple[int, int] | None = None
_handled = False
_OVERDUE = 1.0
"""Seconds within which the main thread has to come to our handler."""
_LOOKS = 20
_HIGH = 64
"""Descriptors from here on: those below may be counted on."""

supervised = False
"""Whether someone else sees to it: `seismograd run` has handlers of its own."""


def before_a_signal_ends(leaving: Leaving) -> Callable[[], None]:
    """Has `leaving` called before a signal ends the process; returns what takes that back."""
    number = next(_numbers)
    _at_work[number] = leaving
    if not supervised:
        _listen()

    def forget() -> None:
        if _at_work.pop(number, None) is not None and not _at_work:
            _leave()

    return forget


def _listen() -> None:
    global _forks_are_heard_of  # noqa: PLW0603 (once for the process)
    if not _forks_are_heard_of and hasattr(os, "register_at_fork"):
        _forks_are_heard_of = True
        os.register_at_fork(after_in_child=_forked)
    for number in _SIGNALS:
        try:
            if number not in _caught and signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _handle)
                _caught.add(number)
        except ValueError:  # not on the main thread: the default stays
            return


def insist() -> None:
    """From now on a signal ends the process even if the main thread does not come back from native code: one rank that
    waits for another in a collective would else outlive the launcher's SIGTERM.

    A thread of the operating system's kind, unknown to `threading`, reads what Python writes when a signal comes.
    """
    global _wakeup, _handled
    if _wakeup is not None or not _caught or threading.current_thread() is not threading.main_thread():
        return
    if (ends := wakeup()) is not None:
        _wakeup, _handled = ends, False
        _thread.start_new_thread(_read, (ends[0],))


def wakeup(above: int = _HIGH) -> tuple[int, int] | None:
    """The ends of a pipe, with numbers from `above` on, into which Python writes the signals that come; none if the
    program has its own."""
    import fcntl

    pipe = os.pipe()
    try:
        reads = fcntl.fcntl(pipe[0], fcntl.F_DUPFD_CLOEXEC, above)
        writes = fcntl.fcntl(pipe[1], fcntl.F_DUPFD_CLOEXEC, above)
    except OSError:  # so few descriptors are allowed
        return None
    finally:
        for fd in pipe:
            os.close(fd)
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        os.close(reads)
        os.close(writes)
        return None
    return reads, writes


def _read(reads: int) -> None:
    with contextlib.suppress(OSError):
        while numbers := os.read(reads, 64):
            for number in numbers:
                if _is_ours(number) and _is_overdue() and _is_ours(number):
                    import ctypes

                    ctypes.CDLL(None).signal(number, 0)  # SIG_DFL, from this thread
                    os.kill(os.getpid(), number)
    with contextlib.suppress(OSError):
        os.close(reads)


def _is_ours(number: int) -> bool:
    return number in _caught and signal.getsignal(number) == _handle


def _is_overdue() -> bool:
    for _ in range(_LOOKS):  # not by the clock: where the whole machine stood still, the main thread did, too
        if _handled:
            return False
        time.sleep(_OVERDUE / _LOOKS)
    return not _handled


def _stop_insisting(forked: bool = False) -> None:
    global _wakeup  # noqa: PLW0603
    if _wakeup is None:
        return
    reads, writes = _wakeup
    try:
        if (before := signal.set_wakeup_fd(-1)) not in (-1, writes):
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
    except ValueError:  # closed on another thread: it stays with the handler, or Python would write to who knows what
        return
    _wakeup = None
    for fd in (reads, writes) if forked else (writes,):  # the thread reads its end, and ends
        with contextlib.suppress(OSError):
            os.close(fd)


def _handle(number: int, frame: Any) -> None:
    global _handled  # noqa: PLW0603
    _handled = True
    for leaving in list(_at_work.values()):
        with contextlib.suppress(Exception):  # whatever happens, the process is to end as it would have
            leaving(128 + number, signal.Signals(number).name)
    _at_work.clear()
    _leave()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _leave() -> None:
    """Puts the default back, unless someone has set another handler meanwhile."""
    _stop_insisting()
    for number in tuple(_caught):
        try:
            if signal.getsignal(number) == _handle:
                signal.signal(number, signal.SIG_DFL)
        except ValueError:  # closed on another thread: the handler stays, and does what the default does
            continue
        _caught.discard(number)


def _forked() -> None:
    _stop_insisting(forked=True)
    _at_work.clear()
    _leave()
