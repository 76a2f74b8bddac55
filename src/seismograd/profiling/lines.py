"""Which lines of the user's the time was spent on, from the Python calls of a profile."""

from __future__ import annotations

import linecache
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from seismograd.places import is_users
from seismograd.profiling.reading import MOST_EVENTS

_STARTS = "_start_trace"

Line = tuple[str, int]
"""A file and a line in it."""


@dataclass(slots=True)
class Lines:
    """Nanoseconds by line: of all calls that it makes, but for what other lines of the user's make in them."""

    own: Counter[Line] = field(default_factory=Counter)
    calls: Counter[Line] = field(default_factory=Counter)
    of_ops: defaultdict[str, Counter[Line]] = field(default_factory=lambda: defaultdict(Counter))
    """By op: the lines that called it."""


def find_lines(roots: Iterable[Any]) -> Lines:
    """Walks the tree of events. The frames that were open when the profile began count for nothing."""
    lines, files, seen = Lines(), _Files(), 0
    roots = list(roots)
    begun = _frames_at_start(roots)
    waiting: list[tuple[Any, Line | None]] = [(root, None) for root in roots]
    while waiting and seen < MOST_EVENTS:
        node, line = waiting.pop()
        seen += 1
        kind = node.tag.name
        if kind in ("PyCall", "PyCCall") and node.id not in begun:
            caller = node.extra_fields.caller
            file = files.users(caller.file_name)
            if file is not None:
                at = (file, caller.line_number)
                lines.own[at] += node.duration_time_ns
                lines.calls[at] += 1
                if line is not None:
                    lines.own[line] -= node.duration_time_ns
                line = at
        elif kind == "TorchOp" and line is not None:
            lines.of_ops[node.name][line] += node.duration_time_ns
        waiting += [(child, line) for child in node.children]
    return lines


def _frames_at_start(roots: list[Any]) -> set[int]:
    """The calls that were under way when the profile began: the first child of the first child, down to its start."""
    found: set[int] = set()
    for root in roots:
        chain, node = [], root
        while node is not None and node.tag.name == "PyCall":
            chain.append(node.id)
            if node.name.endswith(_STARTS):
                found.update(chain)
                break
            node = node.children[0] if node.children else None
    return found


class _Files:
    """Knows whose a file is. The profiler leaves the part of `sys.path` off its names."""

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {}

    def users(self, name: str) -> str | None:
        """The file's name as a user knows it, if it is the user's."""
        if name not in self._known:
            self._known[name] = self._look(name)
        return self._known[name]

    def _look(self, name: str) -> str | None:
        if name.startswith("<"):
            return name if is_users(name) else None
        places = [name] if os.path.isabs(name) else [os.path.join(place, name) for place in sys.path]
        whole = next((place for place in places if os.path.isfile(place)), None)
        if whole is None:  # the name of code that is gone may be anything: torch reads it from where it was
            return None
        return whole if is_users(os.path.abspath(whole)) else None


def shown(file: str) -> str:
    """The file from the working directory on, if it lies there."""
    try:
        short = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if short.startswith("..") or file.startswith("<") else short


def code(line: Line) -> str:
    return linecache.getline(*line).strip()
