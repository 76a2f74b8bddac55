"""What the ranks of a training know of a step between them, where something is to be done about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seismograd.recovery.policies import STRENGTH, Policy, made_of


@dataclass(frozen=True)
class View:
    """What one rank knows: plain values, which may be sent."""

    policy: list[Any] | None
    """What it would do, as plain values; `None`: nothing."""
    knows: bool
    """Whether it has met the trouble itself."""
    suspected: bool
    fresh: bool
    """Whether the weights have no part in the trouble, as far as it can see."""
    sound: bool
    """Whether its weights are finite."""
    finite: bool
    squares: float
    """Its part of the square of the gradient's norm."""
    norm: float
    """Of what it holds of the gradient."""
    usual: float | None
    """What that usually is."""
    states: list[int]
    """The steps to which it may go back."""

    def told(self) -> dict[str, Any]:
        return asdict(self)


class Views:
    """Those of all ranks, or of the only one: alike on each of them, and so is what follows from them."""

    def __init__(self, told: Sequence[dict[str, Any]]) -> None:
        self._all = [View(**each) for each in told]
        self._knowing = [each for each in self._all if each.knows] or self._all

    @property
    def policy(self) -> Policy | None:
        """The strongest that any of them is for."""
        wanted = [each.policy for each in self._all if each.policy is not None]
        return made_of(max(wanted, key=lambda each: STRENGTH.index(each[0]))) if wanted else None

    @property
    def suspected(self) -> bool:
        return all(each.suspected for each in self._knowing)

    @property
    def spares(self) -> bool:
        """Whether leaving out this step is all that there is to be undone."""
        fresh = all(each.suspected or each.fresh for each in self._knowing)
        return fresh and (self.suspected or all(each.sound for each in self._all))

    @property
    def is_finite(self) -> bool:
        return all(each.finite for each in self._all)

    @property
    def norm(self) -> float:
        """Of the whole model's gradient."""
        if len(self._all) == 1:
            return self._all[0].norm
        return math.sqrt(total) if (total := sum(each.squares for each in self._all)) >= 0 else math.nan

    @property
    def usual_norm(self) -> float | None:
        """What that usually is: the norm is as many times too large as it is where that is worst."""
        if len(self._all) == 1:
            return self._all[0].usual
        times = [each.norm / each.usual for each in self._all if each.usual]
        return self.norm / worst if times and (worst := max(times)) > 0 else None

    @property
    def states(self) -> set[int]:
        """The steps to which all of them may go back."""
        return set.intersection(*(set(each.states) for each in self._all))
