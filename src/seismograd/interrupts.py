"""Ctrl-C that Python would print and drop, so that the training went on.

That is the lot of what is raised in a callback of the garbage collector or of a weak reference, in a hook of a fork
and in `__del__`. A signal that comes while a collection is at work is raised in the first of these that is called,
before its first line: no `try` in it can catch that.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def interrupt_again() -> None:
    """Ctrl-C once more, in a moment, when what drops it is over."""
    _thread.start_new_thread(_interrupt, ())


def _interrupt() -> None:
    time.sleep(0.01)
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill") and callable(signal.getsignal(signal.SIGINT)):
        signal.pthread_kill(main, signal.SIGINT)  # a real one: it may be waiting by now, and would not look up
    else:
        _thread.interrupt_main()


def heed() -> Callable[[], None]:
    """From now on Ctrl-C that Python drops comes again; returns what takes that back."""
    before, live = sys.unraisablehook, True

    def hook(told: Any, /) -> None:
        ours = live and issubclass(told.exc_type, KeyboardInterrupt)
        if ours and threading.get_ident() == threading.main_thread().ident:
            interrupt_again()
        else:
            before(told)

    def undo() -> None:
        nonlocal live
        live = False  # a hook that was set after ours goes on calling it
        if sys.unraisablehook is hook:
            sys.unraisablehook = before

    sys.unraisablehook = hook
    return undo
