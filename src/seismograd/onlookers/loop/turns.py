"""One optimizer's turn: what its gradients went through from one of its steps to the next."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seismograd import places
from seismograd.probes.pack import Pack, Values
from seismograd.stats.tensors import dense, norms, there

NONE, SAME, CHANGED = "none", "same", "changed"
"""The gradients are gone; are as they were; or someone wrote into them, or put others in their place."""

_LONGEST = 24
"""So much of the order is kept."""

_SAMPLED = 256
"""So many elements of a parameter are compared to see whether it moved."""


@dataclass(slots=True)
class Turn:
    """What happened to one optimizer's gradients since its last step."""

    whole: bool = True
    """Whether it was followed from its beginning."""
    order: list[str] = field(default_factory=list)
    backwards: int = 0
    """Backwards that gave it gradients."""
    rounds: int = 0
    """How often gradients were cleared that no step had used."""
    thrown: int = 0
    """How often that was followed by a backward on another batch, the weights being the same."""
    kept: int = 0
    """Backwards whose gradients have not been cleared since."""
    fresh: int = 0
    """Those of them that saw another batch than the backward before."""
    inputs: int = 0
    """Those of them whose model was called on another tensor."""
    fetched: int = 0
    """Batches that came since the last step."""
    loaders: set[int] = field(default_factory=set)
    """Where these came from."""
    losses: set[str | None] = field(default_factory=set)
    """How the losses of these were reduced, of those that were looked at; `None` where it is not known."""
    divisors: set[tuple[int, ...]] = field(default_factory=set)
    """The whole numbers that these were divided by."""
    sources: set[tuple[int, int]] = field(default_factory=set)
    """The parameters that they went through, and the loader that their batches came from."""
    lines: set[Any] = field(default_factory=set)
    """Where all the backwards of the turn were called, as far as it was looked at."""
    uncleared: bool = False
    """Nothing has cleared the gradients of the step before."""
    grew: bool = False
    """A backward added to those."""
    cleared: str | None = None
    """Who called `zero_grad` since the last backward: `optimizer` or `module`."""
    clearer: str | None = None
    """Who called it, at any time in the turn."""
    strange: int = 0
    """Calls of `zero_grad` on other optimizers."""
    empty: bool = False
    """There was no gradient left when the step began, although a backward had given some."""
    handmade: bool = False
    """The gradients were written to before the step by something else than backward, clipping and a scaler."""
    scaled: bool = False
    unscaled: bool = False
    tried: bool = False
    """A `GradScaler` was asked to step."""
    clips: list[str] = field(default_factory=list)
    limit: float = 0.0
    schedules: int = 0
    scheduled_early: bool = False
    """A scheduler stepped between the last backward and the step."""
    left: list[Tensor] = field(default_factory=list)
    """Norms of the gradients that were still there when the first backward began, where they were measured."""
    used: list[Tensor] = field(default_factory=list)
    """Norms at the step, where they were measured."""
    moved: list[Tensor] = field(default_factory=list)
    """Whether the weights moved between two backwards, where that was looked at."""
    scale: Tensor | None = None

    def fetched_ahead(self) -> bool:
        """Whether as many batches of one loader came as backwards saw new inputs: a Trainer fetches all at once."""
        return self.fetched == self.inputs == self.kept == self.backwards and len(self.loaders) == 1

    def note(self, what: str) -> None:
        if len(self.order) < _LONGEST and (what in _COUNTED or not self.order or self.order[-1] != what):
            self.order.append(what)

    def send(self, pack: Pack, name: str) -> None:
        """Puts into the pack what is still on the device."""
        for part in ("left", "used", "moved"):
            if values := getattr(self, part):
                pack.add(f"{name}/{part}", values)
        if self.scale is not None:
            pack.add(f"{name}/scale", [self.scale])

    def tell(self, values: Values, name: str) -> dict[str, Any]:
        """The turn in plain values."""
        left, used = values.get(f"{name}/left"), values.get(f"{name}/used")
        scale = values.get(f"{name}/scale")
        return {
            "whole": self.whole,
            "order": turned(self.order),
            "backwards": self.backwards,
            "kept": self.kept,
            "fresh": self.fresh,
            "thrown": self.thrown,
            "moved": any(values.get(f"{name}/moved", ())),
            "mean": self.losses == {"mean"},
            "divisors": list(next(iter(self.divisors))) if len(self.divisors) == 1 else [],
            "alike": len(self.sources) == 1,
            "one_line": len(self.lines - {None}) == 1,
            "uncleared": self.uncleared and self.grew and (left is None or any(left)),
            "left": sum(left) if left else None,
            "strange": self.strange,
            "empty": self.empty or (used is not None and not any(used)),
            "handmade": self.handmade,
            "clips": self.clips,
            "limit": self.limit,
            "scale": scale[0] if scale else None,
            "scheduled_early": self.scheduled_early,
        }


_COUNTED = ("backward", "step")


def turned(order: Sequence[str]) -> list[str]:
    """The order as the loop has it: what comes right after a step belongs to that step, and stands at its end."""
    at = 0
    while at < len(order) and order[at] in ("clip", "scheduler"):
        at += 1
    return [*order[at:], *order[:at]]


class Lane:
    """Follows the gradients of one optimizer: a few of them, which stand for all."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.kind = ""
        self.steps = 0
        self.clears = 0
        self.turn = Turn(whole=False)
        self.places: dict[str, dict[str, Any]] = {}
        """Where in the user's code things were done, the first time."""
        self.suspect = 0
        """Turns in which more has to be measured to be sure."""
        self.next_tell = 8
        self._few: list[tuple[weakref.ref[Tensor], weakref.ref[Tensor] | None, int]] = []
        self._copies: list[tuple[weakref.ref[Tensor], Tensor]] = []
        self._between: list[tuple[weakref.ref[Tensor], Tensor]] = []

    def place(self, what: str, spot: places.Spot | None = None) -> None:
        """Notes the user's line that does this, once: this one, or that which is being executed."""
        if what not in self.places:
            spot = spot or places.caller()
            self.places[what] = (
                {} if spot is None else {"file": spot.file, "line": spot.line, "code": (spot.source or "").strip()}
            )

    def condition(self) -> str:
        """How the gradients are, compared with how they were when last looked at."""
        gone = 0
        for reference, known, version in self._few:
            parameter = reference()
            gradient = None if parameter is None else parameter.grad
            if gradient is None:
                gone += 1
            elif known is None or gradient is not known() or _version(gradient) != version:
                return CHANGED
        if gone:
            return NONE if gone == len(self._few) else CHANGED
        return SAME if self._few else NONE

    def remember(self) -> None:
        """Notes how the gradients are now."""
        self._few = [_seen(parameter) for reference, _, _ in self._few if (parameter := reference()) is not None]

    def choose(self, optimizer: Optimizer) -> bool:
        """Notes how a few gradients are after a backward; False if this optimizer has none."""
        self.remember()
        if not self._few or any(known is None for _, known, _ in self._few):
            self._few = [_seen(parameter) for parameter in spread(_with_gradients(optimizer), 3)]
        return bool(self._few)

    def gradients(self) -> list[Tensor]:
        """Those that are followed."""
        held = [reference() for reference, _, _ in self._few]
        return [parameter.grad for parameter in held if parameter is not None and parameter.grad is not None]

    def norms(self) -> list[Tensor]:
        return norms(self.gradients())

    def has_none(self, optimizer: Optimizer) -> bool:
        return all(parameter.grad is None for group in optimizer.param_groups for parameter in group["params"])

    # -- do the weights move? ------------------------------------------------------------------------------------

    def watch_weights(self, optimizer: Optimizer) -> None:
        """Keeps a few numbers of a few parameters, once for each turn."""
        if not self._copies:
            self._copies = _copies(spread(_with_gradients(optimizer), 8))

    def weights_moved(self) -> Tensor | None:
        """Whether they moved since; `None` if nobody looked."""
        return _moved(self._copies)

    def mark_weights(self) -> None:
        self._between = _copies([p for reference, _, _ in self._few if (p := reference()) is not None])

    def weights_moved_between(self) -> Tensor | None:
        marked, self._between = self._between, []
        return _moved(marked)

    # -- the end of a turn ---------------------------------------------------------------------------------------

    def begin(self, *, whole: bool = True) -> None:
        self.turn = Turn(whole=whole)
        self._copies, self._between = [], []
        self.next_tell = 8
        if whole:
            self.remember()
            self.turn.uncleared = self.condition() == SAME
        else:
            self._few = []

    def forget(self) -> None:
        self.begin(whole=False)


def spread(parameters: Sequence[Tensor], count: int) -> list[Tensor]:
    """So many of them, from the first to the last."""
    if len(parameters) <= count:
        return list(parameters)
    return [parameters[at * (len(parameters) - 1) // (count - 1)] for at in range(count)]


def _with_gradients(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def _seen(parameter: Tensor) -> tuple[weakref.ref[Tensor], weakref.ref[Tensor] | None, int]:
    gradient = parameter.grad
    if gradient is None:
        return weakref.ref(parameter), None, 0
    return weakref.ref(parameter), weakref.ref(gradient), _version(gradient)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _copies(parameters: Iterable[Tensor]) -> list[tuple[weakref.ref[Tensor], Tensor]]:
    return [(weakref.ref(p), _sample(p).clone()) for p in parameters if there(p)]


def _sample(parameter: Tensor) -> Tensor:
    flat = dense(parameter).reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLED)][:_SAMPLED]


def _moved(copies: Sequence[tuple[weakref.ref[Tensor], Tensor]]) -> Tensor | None:
    differ = [
        (_sample(parameter).to(then.device) != then).any()
        for reference, then in copies
        if (parameter := reference()) is not None and there(parameter) and _sample(parameter).shape == then.shape
    ]
    if not differ:
        return None
    first = differ[0].device
    return torch.stack([one.to(first, non_blocking=True) for one in differ]).any()
