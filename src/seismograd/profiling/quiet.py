"""Keeps what torch's profiler says to itself off the terminal: log lines of its C++ parts, which no filter reaches."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_OWN = (b"SyncActivityProfilerHandler", b"ActivityProfilerController", b"CPUAllocator.cpp", b"profiler_kineto.cpp")
_LEVEL = "KINETO_LOG_LEVEL"


@contextmanager
def quietly() -> Iterator[None]:
    """Holds back the profiler's own lines on stderr; what others write there meanwhile is passed on after it."""
    asked = os.environ.get(_LEVEL)
    if asked is None:
        os.environ[_LEVEL] = "99"  # read once, at its first start
    try:
        with _held_back():
            yield
    finally:
        if asked is None:
            os.environ.pop(_LEVEL, None)


@contextmanager
def _held_back() -> Iterator[None]:
    try:
        held, before = tempfile.TemporaryFile(buffering=0), os.dup(2)  # noqa: SIM115
    except OSError:  # there is no stderr, or no room for what it says
        yield
        return
    with held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            with suppress(OSError):
                held.seek(0)
                for line in held.read().splitlines(keepends=True):
                    if not any(word in line for word in _OWN):
                        os.write(2, line)
