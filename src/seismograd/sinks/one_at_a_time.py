"""A database that several processes would make at once is made by one of them, while the others wait."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 60.0
_LOOK = 0.1


@contextmanager
def one_at_a_time(address: str) -> Iterator[None]:
    """Holds a lock for the SQLite file that a URI names; for any other address, and if it takes too long, nothing."""
    scheme, _, rest = address.partition(":///")
    if fcntl is None or not scheme.startswith("sqlite") or not rest:
        yield
        return
    name = hashlib.sha256(os.path.realpath(rest.partition("?")[0]).encode()).hexdigest()[:16]
    try:
        lock = open(Path(tempfile.gettempdir()) / f"seismograd-{os.getuid()}-{name}.lock", "w")  # noqa: SIM115
    except OSError:
        yield
        return
    with lock:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOOK)
        yield
