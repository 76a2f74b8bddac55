"""`growing-graph`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class GrowingGraph:
    """The autograd graph gets longer with every step: something that is carried from step to step keeps its history.

    Why it matters
    --------------
    A tensor made with gradients remembers how it was made. If the next step's is made of it, that history never ends:
    memory grows with every step until there is none left, and where backward runs over it, each step is slower than the
    one before, and old batches are learned from again. Torch refuses to go back through a step whose buffers are freed
    ("Trying to backward through the graph a second time") or whose weights have changed since ("modified by an inplace
    operation"): then the run ends at its second step.

    How it is judged
    ----------------
    Autograd numbers its nodes, so it is known in which step each was made. What backward is called on reaches back to
    `steps` steps or more, and further at each of the last `growths` steps at which it was looked at: critical. A window
    of some steps that moves on, a chain that is cut every few steps and losses that are summed and then used up do not
    grow. Or a variable that backward does not see hangs on a chain of `steps` steps or more: a warning where backward
    has been through them already, so that nobody can use them any more; else only from `unused` steps on, as it may be
    waiting for its backward. A list of losses is no chain, each of them has a graph of its own: see `memory-leak`.
    Where backward was refused because a variable carries the graph of the step before, that is enough.

    What to try
    -----------
    `h = h.detach()` at the beginning of each step for a hidden state; `total += loss.item()` (or `loss.detach()`) for
    what is only printed. `retain_graph=True` is seldom the cure: with it the run goes on, slower and slower.

    An example
    ----------

        for x, y in loader:
            out, h = model(x, h)             # h still hangs on all batches before
            criterion(out, y).backward(retain_graph=True)
    """

    id: ClassVar[str] = "growing-graph"
    needs: ClassVar[tuple[str, ...]] = ("facts/growth",)
    follows: ClassVar[tuple[str, ...]] = ()

    steps: int = 10
    growths: int = 4
    unused: int = 256

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_first", "_grown", "_last")

    def __init__(self, detector: GrowingGraph) -> None:
        self._detector = detector
        self._first: tuple[int, int] | None = None  # step and depth at which it began to grow
        self._last: tuple[int, int] | None = None  # step, and how many steps backward reached back
        self._grown = 0

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["growth"]
        backward, kept = facts["backward"], facts["kept"]
        if facts["failed"]:
            return self._refused(reading, backward)
        if backward is not None and self._grows(reading.step, backward):
            return self._under_backward(reading, backward)
        return None if kept is None else self._aside(reading, kept)

    def _grows(self, step: int, chain: Mapping[str, Any]) -> bool:
        last, self._last = self._last, (step, chain["steps"])
        if last is not None and last[0] < step and chain["steps"] > last[1]:
            self._grown += 1
        else:
            self._grown, self._first = 0, (step, chain["depth"])
        limits = self._detector
        return bool(chain["steps"] >= limits.steps and self._grown >= limits.growths)

    def _under_backward(self, reading: Reading, chain: Mapping[str, Any]) -> Finding:
        first, depth = self._first or (reading.step, chain["depth"])
        each = (chain["depth"] - depth) / max(1, reading.step - first)
        message = (
            f"Backward runs over the graphs of the last {chain['steps']} steps, one more at each step: the longest way "
            f"through it is {chain['depth']:,} nodes"
            + (f", {each:.3g} more with each step" if each > 0 else "")
            + f", and {chain['old']:,} of its {chain['nodes']:,} nodes are of earlier steps."
        )
        return self._found(reading, Severity.CRITICAL, message + _carried(chain), chain, chain["steps"])

    def _aside(self, reading: Reading, chain: Mapping[str, Any]) -> Finding | None:
        limits = self._detector
        in_vain = chain["freed"] >= limits.steps // 2
        if chain["links"] < (limits.steps if in_vain else limits.unused):
            return None
        name = chain["through"]["name"]
        message = (
            f"`{name}` keeps the graphs of the last {chain['links']} steps, one more at each step ({chain['nodes']:,} "
            f"nodes, the longest way {chain['depth']:,}), and no backward runs over them: memory grows with every step."
        )
        return self._found(reading, Severity.WARNING, message, chain, chain["links"])

    def _refused(self, reading: Reading, chain: Mapping[str, Any]) -> Finding:
        name = chain["through"]["name"]
        message = (
            f"Backward was refused at step {reading.step}: `{name}` carries the graph of the step before into this, "
            + ("and what that needed is freed." if chain["freed"] else "and the optimizer has changed what that needs.")
        )
        return self._found(reading, Severity.CRITICAL, message, chain, chain["steps"])

    def _found(
        self, reading: Reading, severity: Severity, message: str, chain: Mapping[str, Any], steps: int
    ) -> Finding:
        through = chain["through"] or {}
        place = next((each for each in (through, chain["made"], chain.get("at")) if each and each["line"]), {})
        limits, failed = self._detector, reading.facts["growth"]["failed"]
        waits = severity is Severity.WARNING and chain["freed"] < limits.steps // 2
        evidence = {
            "steps": steps,
            "limit": 1 if failed else limits.unused if waits else limits.steps,
            **{key: chain[key] for key in ("depth", "nodes", "old") if key in chain},
            **({"variable": through["name"], "scope": through["scope"]} if through else {}),
            "refused": failed,
        }
        return found(
            self._detector,
            reading,
            severity,
            message,
            evidence,
            where=Where(phase="backward", file=place.get("file"), line=place.get("line"), code=place.get("code")),
            advice=_advice(through.get("name"), through.get("code"), severity, failed),
        )


def _carried(chain: Mapping[str, Any]) -> str:
    return (
        f" They hang on `{chain['through']['name']}`, which is carried from step to step." if chain["through"] else ""
    )


def _advice(name: str | None, code: str | None, severity: Severity, refused: bool) -> tuple[str, ...]:
    if severity is Severity.WARNING:
        first = f"Add up numbers, not graphs, in `{code}`: " if code else "Add up numbers, not graphs: "
        return (first + "`loss.item()`, or `loss.detach()` if it is to stay a tensor.",)
    plain = name is not None and name.replace(".", "").replace("_", "").isalnum()
    detached = (
        f"`{name} = {name}.detach()`" if plain else f"Detach {'what is carried' if name is None else f'`{name}`'}"
    )
    more = (
        "`retain_graph=True` would only hide it: each step would run over all steps before, slower and slower."
        if refused
        else "Take `retain_graph=True` away afterwards: nothing needs a graph twice any more."
    )
    return (f"{detached} before the next step uses it: its value goes on, its history ends.", more)
