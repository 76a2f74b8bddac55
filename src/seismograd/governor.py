"""Keeps the watch's share of the time within its budget."""

from __future__ import annotations

import math

from seismograd.records import DebugLevel

BUDGETS = {DebugLevel.BASIC: 0.01, DebugLevel.ADVANCED: 0.05, DebugLevel.EXTREME: 0.15}
"""The share of a step that each level may take by default."""

_SPACING = {DebugLevel.ADVANCED: 10, DebugLevel.EXTREME: 1}
_SEVEN_EIGHTHS = 0.875
_RARELY = 1024


class Governor:
    """Decides, step by step, whether to read at all (the floor) and whether to take the dear tables.

    It knows what the watch spent and how long steps take, both as moving averages. `grace` seconds of own time are
    free, so that a short run is read in full; from then on the share of every further step is held to the budget.
    """

    def __init__(self, level: DebugLevel, budget: float | None = None, *, grace: float = 0.25) -> None:
        self.grace = grace
        self._asked = budget
        self.level = level
        self.own = 0.0
        """Seconds spent by the watch, in all."""
        self.elapsed = 0.0
        """Seconds that the watched steps took, in all, the watch included."""
        self._step_own = 0.0
        self._step_tables = 0.0
        self._floor_cost = 0.0
        self._table_cost = 0.0
        self._step_time = 0.0
        self._next_table = 0
        self.every = 1
        """The floor is read every so many steps."""
        self.reads, self.takes_tables = True, True

    @property
    def budget(self) -> float:
        return BUDGETS[self.level] if self._asked is None else self._asked

    @property
    def share(self) -> float:
        """The measured share of the watch in the run's time."""
        return self.own / self.elapsed if self.elapsed else 0.0

    def spend(self, seconds: float) -> None:
        self._step_own += seconds

    def spend_on_tables(self, seconds: float) -> None:
        """Part of what `spend` hears of too."""
        self._step_tables += seconds

    def stepped(self, step: int, seconds: float) -> None:
        """A step is over: `seconds` is its whole length. Decides about the step after it."""
        own, tables = self._step_own, self._step_tables
        self._step_own = self._step_tables = 0.0
        self.own += own
        self.elapsed += seconds
        self._step_time = _blend(self._step_time, max(seconds - own, 1e-9))
        if self.reads:
            self._floor_cost = _blend(self._floor_cost, own - tables)
        if tables:
            self._table_cost = _blend(self._table_cost, tables)
        self._decide(step + 1)

    def _decide(self, step: int) -> None:
        allowed = self.budget * self._step_time
        free = self.own < self.grace
        self.every = 1 if free or self._floor_cost <= allowed else min(_RARELY, math.ceil(self._floor_cost / allowed))
        self.reads = step % self.every == 0
        self.takes_tables = self.reads and self._tables_are_due(step, allowed, free)

    def _tables_are_due(self, step: int, allowed: float, free: bool) -> bool:
        early = step & (step - 1) == 0  # 0, 1, 2, 4, 8, ...: most mistakes show in the first steps
        if self.level is DebugLevel.BASIC:
            return early and step <= 4
        if early and free:
            return True
        if step < self._next_table:
            return False
        left = max(allowed - self._floor_cost / self.every, 0.1 * allowed)
        affordable = 1 if free else math.ceil(self._table_cost / left) if left > 0 else _RARELY
        self._next_table = step + max(_SPACING[self.level], affordable)
        return True


def _blend(old: float, new: float) -> float:
    """A moving average that a single slow step does not carry away."""
    if not old:
        return new
    return _SEVEN_EIGHTHS * old + (1 - _SEVEN_EIGHTHS) * min(new, 4 * old)
