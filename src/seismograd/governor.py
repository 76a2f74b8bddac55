"""Keeps the watch's share of the time within its budget."""

from __future__ import annotations

import math

from seismograd.records import DebugLevel

BUDGETS = {DebugLevel.BASIC: 0.01, DebugLevel.ADVANCED: 0.05, DebugLevel.EXTREME: 0.15}
"""The share of a step that each level may take by default."""

_SPACING = {DebugLevel.ADVANCED: 10, DebugLevel.EXTREME: 1}
_FOR_TABLES = 0.4
"""The part of the budget that the dear tables may use, where the level takes them."""

_VISIBLE = 2 / 3
"""The part of the budget that may be spent by the clock: the rest is for what no timer sees, caches above all."""

GRACE = 2.0
"""Seconds of its own time that the watch may use before it has earned them."""

_RAREST = 4096
"""However dear the tables: one of so many steps has them, where ranks take them together."""

LONGEST_WAIT = 64
"""However short the steps: one of so many is read, or a broken run could look healthy."""


class Stride:
    """Of how many steps one is read, and one has its tables taken: powers of two, so that ranks that can afford less
    read steps that the others read, too. Settled every `LONGEST_WAIT` steps, from what was earned and spent in them.
    """

    def __init__(self, level: DebugLevel, share: float = 1.0) -> None:
        self.steps, self.tables = 1, _power(_SPACING.get(level, 1))
        self.share = share
        """The part of a processor that a rank has: where several stand in line for one, the watch of each holds all of
        them up, and each may take the less."""
        self._spent = False
        self._clear()

    def _clear(self) -> None:
        self._steps = self._reads = self._tables = 0
        self._floor = self._dear = self._income = 0.0

    def add(self, reads: bool, tables: bool, floor: float, dear: float, income: float) -> None:
        """A step is over: what was done in it, and what that took."""
        self._steps += 1
        self._reads += reads
        self._tables += tables
        self._floor += floor
        self._dear += dear
        self._income += income

    def adapt(self, level: DebugLevel, *, spent: bool) -> None:
        """`spent`: nothing is left of what was there from the start."""
        self._spent |= spent
        least = _power(_SPACING.get(level, 1))
        if self._spent and self._reads and self._income > 0:
            earned = self._income / self._steps
            dear = _FOR_TABLES * earned if level is not DebugLevel.BASIC else 0.0
            self.steps = min(LONGEST_WAIT, _power(self._floor / self._reads / (earned - dear)))
            if self._tables and dear:
                self.tables = min(_RAREST, max(least, _power(self._dear / self._tables / dear)))
        self.tables = max(self.tables, least, self.steps)
        self._clear()


def _power(number: float) -> int:
    """The next power of two."""
    return 1 << max(0, math.ceil(math.log2(max(1.0, number))))


class Governor:
    """Decides, step by step, whether to read at all (the floor) and whether to take the dear tables.

    Two purses fill with the budget's share of the time that passes, and everything the watch does is paid from them:
    whoever's purse is empty waits, though never for more than `LONGEST_WAIT` steps. `GRACE` seconds are there from the
    start, so that a short run is read in full, and no purse holds more than that, so that a pause is not made up for.
    """

    def __init__(self, level: DebugLevel, budget: float | None = None) -> None:
        self.level = level
        self._grace = GRACE
        self.budget = budget
        self.own = 0.0
        """Seconds spent by the watch, in all."""
        self.elapsed = 0.0
        """Seconds that the watched steps took, in all, the watch included."""
        self.steps = self.read_steps = 0
        self._floor_purse = self._table_purse = self._grace
        self._step_own = self._step_tables = 0.0
        self._decided, self._next_table, self._waited = -1, 0, 0
        self.reads = self.takes_tables = True
        self.insists = False
        """Whether the next steps are read whatever they cost: somebody asked for it."""
        self.reads_all = False
        """Whether every step is read whatever it costs: what is not read cannot be recovered from."""
        self.together: Stride | None = None
        """Where there are other ranks: what has all of them read the same steps."""

    @property
    def budget(self) -> float:
        """The share of the time; may be set while the run goes on, `None` for that of the level."""
        asked = self._asked  # another thread may set it meanwhile
        return BUDGETS[self.level] if asked is None else asked

    @budget.setter
    def budget(self, budget: float | None) -> None:
        if budget is not None and (
            isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget <= 1
        ):
            raise ValueError(f"budget {budget!r} is no share of a step: give a number above 0 and at most 1")
        self._asked = None if budget is None else float(budget)

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
        income = _VISIBLE * self.budget * seconds
        if self.together is not None:
            income *= self.together.share
            self.together.add(self.reads, self.takes_tables, own - tables, tables, income)
        if self.level is not DebugLevel.BASIC:
            self._table_purse += _FOR_TABLES * income - tables
            income -= _FOR_TABLES * income
            overflow = max(0.0, self._table_purse - self._grace)  # what the tables cannot use, the floor may
            self._table_purse -= overflow
            income += overflow
        else:
            own += tables
        self._floor_purse = min(self._floor_purse + income - (own - tables), self._grace)
        if step > self._decided:  # a GAN's two halves are one step: both are read, or none
            self._decided = step
            self.steps += 1
            self.read_steps += self.reads
            self._waited = 0 if self.reads else self._waited + 1
            if self.together is not None:
                self._decide_alike(step + 1)
                return
            due = self._waited >= LONGEST_WAIT - 1
            self.reads = self._floor_purse >= 0 or due or self.insists or self.reads_all
            self.takes_tables = self.reads and self._tables_are_due(step + 1)

    def _decide_alike(self, step: int) -> None:
        """Each rank waits for the slowest: what all do at the same steps costs once, and not once a rank."""
        together = self.together
        assert together is not None
        level = self.level
        if step % LONGEST_WAIT == 0:
            together.adapt(level, spent=min(self._floor_purse, self._table_purse) < 0)
        self.reads = step % together.steps == 0 or self.insists or self.reads_all
        early = step & (step - 1) == 0
        if level is DebugLevel.BASIC:
            self.takes_tables = self.reads and early and step <= 4
        else:
            self.takes_tables = self.reads and (early or step % together.tables == 0)

    def drain(self) -> None:
        """Takes away what is in the purses: from here on only what is earned is spent."""
        self._grace = self._floor_purse = self._table_purse = 0.0

    def _tables_are_due(self, step: int) -> bool:
        early = step & (step - 1) == 0  # 0, 1, 2, 4, 8, ...: most mistakes show in the first steps
        level = self.level  # another thread may set it meanwhile
        if level is DebugLevel.BASIC:
            return early and step <= 4
        if self._table_purse < 0 or not (early or step >= self._next_table):
            return False
        self._next_table = step + _SPACING[level]
        return True
