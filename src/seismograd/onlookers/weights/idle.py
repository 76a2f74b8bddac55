"""Modules that are called and never reached by backward: what becomes of what they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from seismograd import places
from seismograd.onlookers.graph import Graph, Span

_MOST_NODES = 2_000
"""So much of a loss's graph is searched for them."""


class Idle:
    """Follows the modules that were found idle, and counts what becomes of their output.

    It is *dropped* if the `forward` that calls it, itself and no function of its own, returns things that are all part
    of the loss, and nobody keeps it. It is *measured* if a loss of torch's is computed from it that no backward goes
    through.
    """

    def __init__(self) -> None:
        self._suspects: dict[str, list[tuple[int, int]]] = {}  # by path: ids of its parameters, and their versions
        self._dropped: Counter[str] = Counter()
        self._measured: Counter[str] = Counter()
        self._seen: set[str] = set()  # in losses of the present step
        self._moved: set[str] = set()
        self._lines: dict[str, places.Spot | None] = {}  # where a loss was first computed from it

    def follow(self, suspects: Mapping[str, Sequence[Tensor]]) -> None:
        """These are idle now; one whose parameters someone changes by hand is none."""
        now = {path: [(id(p), 0 if p.is_inference() else p._version) for p in own] for path, own in suspects.items()}
        self._moved |= {path for path, seen in now.items() if self._suspects.get(path, seen) != seen}
        self._suspects = now

    def loss_computed(self, output: Any) -> None:
        """A loss of torch's: is one of them behind it?"""
        if not self._suspects or not isinstance(output, Tensor) or output.grad_fn is None:
            return
        owners = {one: path for path, own in self._suspects.items() for one, _ in own}
        todo: list[Any] = [output.grad_fn]
        seen = set(todo)
        while todo and len(seen) < _MOST_NODES:
            function = todo.pop()
            leaf = getattr(function, "variable", None)
            if leaf is not None and id(leaf) in owners:
                self._seen.add(path := owners[id(leaf)])
                if path not in self._lines:
                    self._lines[path] = places.caller()
            for other, _ in function.next_functions:
                if other is not None and other not in seen:
                    seen.add(other)
                    todo.append(other)

    def backward_starts(self, graph: Graph, paths: Mapping[int, str]) -> None:
        """`paths`: of modules, by their ids."""
        if not self._suspects:
            return
        numbers = {node.number for node in graph.nodes}
        above: list[Span] = []
        dropped: set[str] = set()
        for span in graph.spans:
            del above[span.depth :]
            path = paths.get(id(span.module))
            if path in self._suspects and above and span.module.training and span.gave:
                kept = span.output is not None and span.output() is not None
                given = above[-1].gave if _calls_itself(above[-1], span) else ()
                if given and numbers.issuperset(given) and numbers.isdisjoint(span.gave) and not kept:
                    dropped.add(path)
            above.append(span)
        self._dropped.update(dropped)

    def step_over(self) -> None:
        self._measured.update(self._seen)
        self._seen = set()

    def told(self, path: str) -> dict[str, Any]:
        """How often its output was dropped, and a loss of it left out; the line that computes that loss."""
        if path in self._moved:
            return {"dropped": 0, "measured": 0, "line": None}
        spot = self._lines.get(path)
        line = None if spot is None else {"file": spot.file, "line": spot.line, "code": spot.source}
        return {"dropped": self._dropped[path], "measured": self._measured[path], "line": line}


def _calls_itself(outer: Span, inner: Span) -> bool:
    """Whether the call stands in the outer module's `forward`, and not in a function that may have given it on."""
    forward = getattr(type(outer.module), "forward", None)
    return inner.caller is not None and inner.caller is getattr(forward, "__code__", None)
