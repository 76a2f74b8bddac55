"""Signals that end a process without a word: what is still at work is ended first, then the default action is taken.

A handler of ours stands only where the default one stood, only on the main thread, and only while something is at work.
A forked child gets the default back at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

Leaving = Callable[[int, str], None]
"""Is told the exit code that the process will have, and the signal's name."""

_at_work: dict[int, Leaving] = {}
_caught: set[int] = set()
_numbers = iter(range(1 << 62))
_forks_are_heard_of = False

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


def _handle(number: int, frame: Any) -> None:
    for leaving in list(_at_work.values()):
        with contextlib.suppress(Exception):  # whatever happens, the process is to end as it would have
            leaving(128 + number, signal.Signals(number).name)
    _at_work.clear()
    _leave()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _leave() -> None:
    """Puts the default back, unless someone has set another handler meanwhile."""
    for number in tuple(_caught):
        try:
            if signal.getsignal(number) == _handle:
                signal.signal(number, signal.SIG_DFL)
        except ValueError:  # closed on another thread: the handler stays, and does what the default does
            continue
        _caught.discard(number)


def _forked() -> None:
    _at_work.clear()
    _leave()
