"""Whether the graphs of earlier steps hang on what is kept, or on what backward is called on, and through what."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from seismograd.onlookers.graph import Graph, Node, is_freed
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.resources.variables import Variable, with_graph
from seismograd.places import Spot, nearest
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

_MOST_STEPS = 512
"""So many steps are told apart; what is older counts as one."""

_FIRST_SEARCH = 10
"""After so many steps variables are searched for a chain that backward does not see; then after twice as many."""

_MOST_LOOKS = 48
"""So often the variables are looked at because an old graph was met."""

_MOST_WALKS = 16
"""So many variables are followed in one search."""

_REFUSED = ("backward through the graph a second time", "has been modified by an inplace operation")
"""What torch says where an old graph is gone through again: its tensors are freed, or the optimizer changed them."""


@dataclass(frozen=True, slots=True)
class Chain:
    """How the graph below one tensor is spread over the steps of the run."""

    nodes: int
    old: int
    """Nodes of earlier steps."""
    depth: int
    """The longest way through it, in nodes."""
    steps: int
    """The steps that its nodes were made in, the present one included."""
    links: int
    """The most steps that one way through it leads through: 1 where the graphs of many steps only lie side by side."""

    def to_dict(self) -> dict[str, int]:
        return {"nodes": self.nodes, "old": self.old, "depth": self.depth, "steps": self.steps, "links": self.links}


class Growth(Onlooker):
    """Knows by the numbers of autograd's nodes which step each was made in.

    Facts, only where there is an old graph: `backward` is what hangs on the tensors that backward was called on, `kept`
    a variable of the user's with a chain of old graphs that backward does not see, `failed` whether backward was
    refused because of it. Each names the variable through which it hangs together, if it could be found.
    """

    topic = "growth"
    dear: ClassVar[bool] = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._ends: deque[int] = deque(maxlen=_MOST_STEPS)
        """The number of the next node at the end of each step."""
        self._step = -1
        self._before: dict[int, Variable] = {}
        self._now: dict[int, Variable] = {}
        """The variables by the numbers of their tensors' nodes, the last but one time and the last time."""
        self._old: list[int] = []
        """The numbers of the old nodes below the present backward."""
        self._passed, self._search = 0, _FIRST_SEARCH
        self._named = False
        """Whether the variables were looked at for the search that is due."""
        self._looks = _MOST_LOOKS
        self._backward: dict[str, Any] | None = None
        self._kept: dict[str, Any] | None = None

    # -- events --------------------------------------------------------------------------------------------------

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        self._old = []
        if graph is None:
            return
        first = self._ends[-1] if self._ends else 0
        self._old = [node.number for node in graph.nodes if 0 <= node.number < first]
        due = graph.complete and self._passed >= self._search
        if due or not self._passed or (self._old and self._looks):
            self._looks -= not due
            self._look_around(graph, due and self._named)
            if due:  # what is carried is known by its name of the time before: it takes two looks
                self._search = 2 * self._passed if self._named else self._search
                self._named = not self._named
        if self._old:
            self._note(graph)

    def backward_failed(self, error: BaseException) -> Mapping[str, Any] | None:
        refused = next((at for at, words in enumerate(_REFUSED) if words in str(error)), None)
        held = max((number for number in self._old if number in self._before), default=None)
        if refused is None or held is None or held in self._now:  # used at every step, made once: that grows nowhere
            return None
        through = told(self._before[held])
        backward = {"steps": 2, "through": through, "made": None, "at": _line(), "freed": refused == 0}
        return {"backward": backward, "kept": None, "failed": True}

    def look(self, pack: Pack, step: int) -> None:
        number = _number()
        if step == self._step and self._ends:
            self._ends[-1] = number
        else:
            self._ends.append(number)
            self._passed += 1
        self._step = step

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        backward, kept, self._backward, self._kept = self._backward, self._kept, None, None
        if backward is None and kept is None:
            return None
        return {"backward": backward, "kept": kept, "failed": False}

    def restart(self) -> None:
        self._before, self._now, self._backward = {}, {}, None

    def close(self) -> None:
        self.restart()
        self._kept = None

    # -- inside --------------------------------------------------------------------------------------------------

    def _look_around(self, graph: Graph, searches: bool) -> None:
        """Notes which variables hold which nodes, and follows those that backward does not."""
        known = {node.number for node in graph.nodes}
        self._before, self._now = self._now, {}
        followed: set[int] = set()
        deepest: tuple[Chain, Graph, Variable] | None = None
        for variable, tensor in with_graph(sys._getframe(1)):
            number = tensor.grad_fn._sequence_nr()  # type: ignore[union-attr]
            self._now.setdefault(number, variable)
            if not searches or number in known or number in followed or len(followed) >= _MOST_WALKS:
                continue
            followed.add(number)
            below = Graph([tensor])
            chain = self._chain(below)
            if chain.links > 1 and (deepest is None or chain.links > deepest[0].links):
                deepest = chain, below, variable
        if deepest is not None:
            chain, below, variable = deepest
            carrier, made = self._through(below)
            self._kept = {
                **chain.to_dict(),
                "freed": self._freed_steps(below),
                "through": told(carrier or variable),
                "made": made,
            }
        del deepest

    def _note(self, graph: Graph) -> None:
        chain = self._chain(graph)
        if chain.steps > 1 and (self._backward is None or chain.steps > self._backward["steps"]):
            carrier, made = self._through(graph)
            self._backward = {**chain.to_dict(), "through": told(carrier), "made": made, "at": _line()}

    def _through(self, graph: Graph) -> tuple[Variable | None, dict[str, Any] | None]:
        """What the old graph hangs on by: the variable, and the line that made it where its node knows."""
        reach = [1] * len(graph.nodes)  # how many steps lie below each node, its own included
        steps = self._steps_of(graph)
        best: tuple[int, int] | None = None
        for at in sorted(range(len(reach)), key=lambda at: graph.nodes[at].number):
            node = graph.nodes[at]
            below = [other for other in node.into if other >= 0 and graph.nodes[other].leaf is None]
            reach[at] = max((reach[other] + (steps[other] < steps[at]) for other in below), default=1)
            if node.number in self._before:  # what is made later in a step is made of the rest
                best = max(best or (0, 0), (reach[at], node.number))
        carrier = None if best is None else self._before[best[1]]
        first = self._ends[-1] if self._ends else 0
        newest = max((node for node in graph.nodes if 0 <= node.number < first), key=_by_number, default=None)
        spots = [] if newest is None else getattr(newest.function.metadata.get("traceback_"), "spots", ())
        return carrier, _place(spots[0]) if spots else None

    def _chain(self, graph: Graph) -> Chain:
        """Along the numbers, newest first: what a node was made of has a lower number than itself."""
        steps = self._steps_of(graph)
        depth, links = [1] * len(steps), [1] * len(steps)
        for at in sorted(range(len(steps)), key=lambda at: -graph.nodes[at].number):
            for other in graph.nodes[at].into:
                if other >= 0 and graph.nodes[other].leaf is None:
                    depth[other] = max(depth[other], depth[at] + 1)
                    links[other] = max(links[other], links[at] + (steps[other] < steps[at]))
        made_in = {step for step, node in zip(steps, graph.nodes, strict=True) if node.leaf is None}
        old = sum(step < len(self._ends) for step in steps)
        return Chain(len(steps), old, max(depth, default=0), len(made_in), max(links, default=0))

    def _freed_steps(self, graph: Graph) -> int:
        """In how many steps nodes were made whose tensors a backward has freed: no other backward can pass there."""
        freed: set[int] = set()
        for step, node in zip(self._steps_of(graph), graph.nodes, strict=True):
            if node.leaf is None and step not in freed and is_freed(node.function):
                freed.add(step)
        return len(freed)

    def _steps_of(self, graph: Graph) -> list[int]:
        """Which of the known steps each node was made in; a leaf counts to the present one."""
        ends = list(self._ends)
        return [len(ends) if node.leaf is not None else bisect_right(ends, node.number) for node in graph.nodes]


def told(variable: Variable | None) -> dict[str, Any] | None:
    """A variable in plain values."""
    if variable is None:
        return None
    place = variable.line()
    known = {} if place is None else dict(zip(("file", "line", "code"), place, strict=True))
    return {"name": variable.name, "scope": variable.scope, "file": None, "line": None, "code": None, **known}


def _line() -> dict[str, Any] | None:
    """The user's line that calls backward."""
    spot = nearest(sys._getframe(1))[0]
    return None if spot is None else _place(spot)


def _place(spot: Spot) -> dict[str, Any]:
    return {"file": spot.file, "line": spot.line, "code": (spot.source or "").strip() or None}


def _by_number(node: Node) -> int:
    return node.number


_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
