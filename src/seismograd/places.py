"""Where in the user's own code something happens: frames, their file, line and columns. Standard library only."""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import sysconfig
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from seismograd.notebooks import cell_named

_HERE = str(Path(__file__).parent)
_GALLERY = (str(Path(__file__).parent / "examples"), str(Path(__file__).resolve().parent / "examples"))

INSTALLED = (
    _HERE,
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<",
)
"""Where code lies that is not the user's: ours, Python's, and what is installed."""

# Of another interpreter too: the user's own folder of packages, the system's under a venv, one on PYTHONPATH.
_PACKAGES = re.compile(r"[\\/](?:site|dist)-packages[\\/]")

_NOTEBOOK = "<ipython-input"
_CELL = re.compile(r"cell \d+")

_known: dict[str, bool] = {}


def is_users(filename: str) -> bool:
    """Whether the code of this file is the user's own."""
    known = _known.get(filename)
    if known is None:
        installed = filename.startswith(INSTALLED) or _PACKAGES.search(filename) is not None
        outside = not installed or filename.startswith((*_GALLERY, _NOTEBOOK))
        known = _known[filename] = outside and "(like importlib" not in filename
    return known


@dataclass(frozen=True, slots=True)
class Spot:
    """An instruction of some code object: cheap to note, told only when it matters."""

    code: CodeType
    instruction: int

    def position(self) -> tuple[int | None, int | None, int | None, int | None]:
        """First line, last line, first column, last column."""
        return next(islice(self.code.co_positions(), self.instruction // 2, None), (None,) * 4)

    @property
    def line(self) -> int:
        return self.position()[0] or self.code.co_firstlineno

    @property
    def file(self) -> str:
        return shown(self.code.co_filename)

    @property
    def source(self) -> str | None:
        return linecache.getline(self.code.co_filename, self.line).rstrip("\n") or None

    @property
    def columns(self) -> tuple[int, int] | None:
        """From where to where on the first line the instruction stands."""
        first, last, start, end = self.position()
        source = self.source
        if source is None or start is None or end is None:
            return None
        data = source.encode()  # columns count bytes
        start, end = len(data[:start].decode(errors="ignore")), len(data[:end].decode(errors="ignore"))
        return (start, end if first == last else len(source))


def shown(name: str) -> str:
    """A file's name, from the working directory on if it lies there; of a notebook the cell."""
    if (cell := cell_named(name)) is not None:
        return cell
    try:
        short = os.path.relpath(name)
    except (OSError, ValueError):
        return name
    return name if short.startswith("..") or name.startswith("<") else short


def written(file: str, line: int | None) -> str:
    """`train.py:5`; of a notebook `cell 3, line 5`."""
    if line is None:
        return file
    return f"{file}, line {line}" if _CELL.fullmatch(file) else f"{file}:{line}"


def spot_of(frame: FrameType) -> Spot:
    return Spot(frame.f_code, frame.f_lasti)


def spot_of_trace(trace: TracebackType) -> Spot:
    return Spot(trace.tb_frame.f_code, trace.tb_lasti)


def nearest(frame: FrameType | None, *, until: CodeType | None = None) -> tuple[Spot | None, Spot | None]:
    """The deepest spot in the user's code, and the deepest in an installed package that is neither torch's nor ours.

    `until` is the code below which nothing is looked at.
    """
    library: Spot | None = None
    while frame is not None and frame.f_code is not until:
        name = frame.f_code.co_filename
        if is_users(name):
            return spot_of(frame), library
        if library is None and not _is_foundation(name):
            library = spot_of(frame)
        frame = frame.f_back
    return None, library


def chain(frame: FrameType | None, most: int = 6) -> tuple[Spot, ...]:
    """The spots of the user's own frames, the deepest first."""
    found: list[Spot] = []
    while frame is not None and len(found) < most:
        if is_users(frame.f_code.co_filename):
            found.append(spot_of(frame))
        frame = frame.f_back
    return tuple(found)


def of_loss(backward: Sequence[Spot], made: Sequence[Sequence[Spot]]) -> Spot | None:
    """The user's line that calls backward. If that is the call of a framework (`trainer.fit`), which called the user's
    own code before, for the loss, it is the newest line of that. `made`: the chains of what was called for it."""
    if not backward:
        return None
    return next((spots[0] for spots in reversed(made) if backward[0] in spots[1:]), backward[0])


_TORCH = re.compile(_PACKAGES.pattern + r"torch[\\/]")
_STANDARD = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
_FOUNDATION = (
    _HERE,
    "<",
    *(path for path in _STANDARD if not sysconfig.get_path("purelib").startswith(path)),  # what is installed lies in it
)


def _is_foundation(filename: str) -> bool:
    """Whether the code of this file is torch's, Python's or ours."""
    return filename.startswith(_FOUNDATION) or _TORCH.search(filename) is not None


_parsing = threading.Lock()


def parsed(filename: str) -> ast.Module:
    """The statements of a file. One thread at a time: Python 3.11 raises a `SystemError` where two parse."""
    text = "".join(linecache.getlines(filename))
    with _parsing:
        return ast.parse(text)


def parsed_expression(text: str) -> ast.expr:
    """What an expression is made of. One thread at a time, too."""
    with _parsing:
        return ast.parse(text.strip(), mode="eval").body


_made: dict[int, tuple[weakref.ref[object], Spot]] = {}  # by id: a thing of the user's may have no hash


def note_maker(thing: object) -> None:
    """The user's line that is being executed makes this thing, a scheduler for one."""
    key, spot = id(thing), nearest(sys._getframe(1))[0]
    if spot is not None:
        _made[key] = (weakref.ref(thing, lambda _: _made.pop(key, None)), spot)


def maker_of(thing: object) -> Spot | None:
    """The user's line that made this thing, where it was noted."""
    reference, spot = _made.get(id(thing), (None, None))
    return spot if reference is not None and reference() is thing else None


def caller() -> Spot | None:
    """The user's line that is being executed."""
    return nearest(sys._getframe(1))[0]
