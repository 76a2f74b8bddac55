"""Notebooks: the kernel we may be in, outputs that are drawn again in their place, cells that run again or break off.

IPython is never imported here: where there is a kernel, it is there already.
"""

from __future__ import annotations

import contextlib
import html
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

_EVERY = 0.1
"""Seconds from one drawing of a bar to the next."""


def shell() -> Any:
    """The IPython shell that has a kernel behind it; `None` in a terminal, and in a script."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    try:
        found = ipython.get_ipython()
    except AttributeError:  # it is just being imported
        return None
    return found if getattr(found, "kernel", None) is not None else None


def cell_named(filename: str) -> str | None:
    """`cell 3`, if that is where the code of this name was compiled: the number stands beside it as `In [3]`."""
    if "ipykernel_" not in filename and not filename.startswith("<ipython-input"):
        return None
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    compiler = getattr(get() if callable(get) else None, "compile", None)
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return None if number is None else f"cell {number}"


class Output:
    """One output of the cell that runs now. Shown again, it is drawn in its place, also from later cells."""

    def __init__(self) -> None:
        self._id = uuid4().hex
        self._pid = os.getpid()
        self._shown = False

    def show(self, html: str, text: str) -> None:
        found = shell()
        if found is None or os.getpid() != self._pid:  # a forked worker has no part in the notebook
            return
        data = {"text/html": html, "text/plain": text}
        found.display_pub.publish(data=data, metadata={}, transient={"display_id": self._id}, update=self._shown)
        self._shown = True


class ProgressBar:
    """A bar and a line of text in one output of a notebook."""

    def __init__(self) -> None:
        self._output = Output()
        self._due = 0.0

    def show(self, done: float, total: float | None, text: str, *, last: bool = False) -> None:
        """Draws it, unless that was done a moment ago."""
        now = time.monotonic()
        if now < self._due and not last:
            return
        self._due = now + _EVERY
        share = "" if not total else f' value="{min(1.0, done / total):.4f}"'
        style = "display:flex;gap:.8em;align-items:center;font-family:monospace"
        drawn = f'<div style="{style}"><progress max="1"{share}></progress><span>{html.escape(text)}</span></div>'
        percent = f"{min(1.0, done / total):4.0%}  " if total else ""
        self._output.show(drawn, f"{percent}{text}")


# -- watches and the cells that opened them ----------------------------------------------------------------------------


class Watch(Protocol):
    """What is told when a cell was broken off or is run again."""

    name: str

    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __exit__(self, kind: Any, error: Any, traceback: Any, /) -> None: ...


@dataclass
class _Opened:
    watch: weakref.ref[Any]
    models: tuple[weakref.ref[Any], ...]
    cell: str | None
    """Which cell opened it, where the notebook says so."""
    now: bool = True
    """Whether that cell still runs."""


class Drawing(Protocol):
    """What is drawn now and then while cells run."""

    def flush(self) -> None: ...


_open: list[_Opened] = []
_listening: list[Any] = []
"""The shell that tells us when a cell is over."""
drawings: weakref.WeakSet[Drawing] = weakref.WeakSet()
"""What is drawn as it stands when a cell is over."""


def opened(watch: Watch, models: Iterable[Any], say: Callable[[str], None]) -> Callable[[], None]:
    """Ties a watch to the cell that opens it; returns what takes that back.

    One that an earlier run of this cell has left open, or that is still on the same model, is closed. One whose own
    cell ends with an error, or is interrupted, is closed too; one that was opened by an earlier cell stays.
    """
    found = shell()
    if found is None:
        return lambda: None
    cell, tied = _cell(found), tuple(weakref.ref(model) for model in models)
    for earlier in [each for each in _open if not each.now]:
        other = earlier.watch()
        same = {id(ref()) for ref in earlier.models if ref() is not None} & {id(ref()) for ref in tied}
        if other is not None and not other.closed and (same or (cell is not None and cell == earlier.cell)):
            why = "it was still open on this model" if same else "this cell had opened it before"
            say(f"seismograd: the watch {other.name!r} is closed, {why}")
            other.close()
    own = _Opened(weakref.ref(watch), tied, cell)
    _open.append(own)
    if not _listening:
        found.events.register("post_run_cell", _cell_is_over)
        _listening.append(found)

    def forget() -> None:
        if own in _open:
            _open.remove(own)
        if not _open and _listening:
            with contextlib.suppress(ValueError):  # somebody has cleared the events
                _listening.pop().events.unregister("post_run_cell", _cell_is_over)

    return forget


def _cell(found: Any) -> str | None:
    """The cell that runs now, by its id; by its text where the notebook gives none."""
    try:
        asked = found.parent_header
        return asked["metadata"].get("cellId") or asked["content"]["code"]  # type: ignore[no-any-return]
    except (AttributeError, KeyError, TypeError):
        return None


def _cell_is_over(result: Any) -> None:
    error = getattr(result, "error_in_exec", None)
    for each in [each for each in _open if each.now]:
        each.now = False
        watch = each.watch()
        if error is not None and watch is not None and not watch.closed:
            watch.__exit__(type(error), error, getattr(error, "__traceback__", None))
    for drawing in list(drawings):
        with contextlib.suppress(Exception):
            drawing.flush()
