"""Packages that print: what they have to say goes to stderr, for stdout is the script's own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any


class _Aside:
    """A stream that is stdout to every thread but one."""

    def __init__(self, stdout: Any, thread: int, instead: Any) -> None:
        self._stdout, self._thread, self._instead = stdout, thread, instead

    def _chosen(self) -> Any:
        return self._instead if threading.get_ident() == self._thread else self._stdout

    def write(self, text: str) -> int:
        return int(self._chosen().write(text))

    def flush(self) -> None:
        self._chosen().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


@contextmanager
def aside(*, silent: bool = False) -> Iterator[None]:
    """What this thread prints goes to stderr meanwhile, or nowhere; what others print goes where it always went."""
    before = sys.stdout
    stream = _Aside(before, threading.get_ident(), StringIO() if silent else sys.stderr)
    sys.stdout = stream
    try:
        yield
    finally:
        if sys.stdout is stream:
            sys.stdout = before
