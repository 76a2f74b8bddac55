"""Forks and open databases: a SQLite connection must not be open while a process forks, so it is closed before.

The next who uses the database opens it again. A connection to a server may stay: the child leaves it alone for good.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from seismograd.interrupts import interrupt_again

PATIENCE = 2.0
"""Seconds that a fork waits for a transaction."""


class File(sqlite3.Connection):
    """A connection to a file that can be referred to weakly."""


class _Gate:
    """Who uses a database now; closed while the process forks."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.users: set[int] = set()
        """By identity: who is interrupted on the way in, and leaves, is not counted wrong for ever."""
        self.forking = False

    def enter(self, user: object) -> None:
        with self.changed:
            self.changed.wait_for(lambda: not self.forking, PATIENCE)
            self.users.add(id(user))

    def leave(self, user: object) -> None:
        with self.changed:
            self.users.discard(id(user))
            self.changed.notify_all()

    def close(self) -> bool:
        """Whether nobody is inside."""
        with self.changed:
            self.forking = True
            return self.changed.wait_for(lambda: not self.users, PATIENCE)

    def open(self) -> None:
        with self.changed:
            self.forking = False
            self.changed.notify_all()


_gate = _Gate()
_files: weakref.WeakSet[Engine] = weakref.WeakSet()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_connections: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Every open one, by its identity."""


@contextmanager
def using() -> Iterator[None]:
    """No fork meanwhile: SQLite's own locks would be held for ever in the child."""
    gate, user = _gate, object()
    try:
        gate.enter(user)
        yield
    finally:
        gate.leave(user)


def let_go(engine: Engine) -> None:
    """Closes the engine's connections."""
    with using():
        engine.dispose()


def mind(engine: Engine, *, is_file: bool) -> None:
    """Sees to it that the engine's connections survive a fork of the process, in the parent as in the child."""
    _engines.add(engine)

    @sa.event.listens_for(engine, "connect")
    def opened(connection: Any, _: Any) -> None:
        _connections[id(connection)] = connection

    @sa.event.listens_for(engine, "close")
    def closed(connection: Any, _: Any) -> None:
        _connections.pop(id(connection), None)

    if is_file:
        _files.add(engine)
        sa.event.listen(engine, "checkout", lambda _, record, __: _gate.enter(record))
        sa.event.listen(engine, "checkin", lambda _, record: _gate.leave(record))


_interrupted = False


def _before() -> None:
    global _interrupted  # noqa: PLW0603
    try:
        if _files and _gate.close():
            for engine in list(_files):
                engine.dispose()
    except KeyboardInterrupt:  # Python would print it here, and go on
        _interrupted = True


def _in_parent() -> None:
    global _interrupted  # noqa: PLW0603
    _gate.open()
    if _interrupted:
        _interrupted = False
        interrupt_again()


def _in_child() -> None:
    """What is still open is the parent's: it is never closed here, not even when the child ends."""
    global _gate, _interrupted
    _gate, _interrupted = _Gate(), False  # its locks may be held by threads that are not here
    for connection in list(_connections.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _connections.clear()
    for engine in list(_engines):
        engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
