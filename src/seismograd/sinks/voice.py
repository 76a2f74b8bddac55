"""Who speaks on the terminal: of several ranks the first, and another only if nobody else would tell what it found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from seismograd.records import Finding, Severity
from seismograd.records import rank as own_rank

Leader = Callable[[Finding], bool]


class Voice:
    """Says of each finding whether this process tells it: once for all ranks, and again when it got worse.

    The first rank also tells what others have passed on to it. Another rank only tells what is a warning or worse, and
    only if `leader_tells`, where there is one, does not say that the first rank will.
    """

    def __init__(self, rank: int | None = None) -> None:
        self.rank = own_rank() if rank is None else rank
        self.leader_tells: Leader | None = None
        self._told: dict[tuple[Any, ...], int] = {}

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def speaker(self) -> str:
        """What stands in front of what it tells."""
        return "" if self.leads else f"rank {self.rank}"

    def tells(self, finding: Finding) -> bool:
        """Whether it is told now; if so it counts as told."""
        kind = kind_of(finding)
        if finding.severity.weight <= self._told.get(kind, -1):
            return False
        if not self.leads and (finding.severity is Severity.INFO or self._is_left_to_the_leader(finding)):
            return False
        self._told[kind] = finding.severity.weight
        return True

    def _is_left_to_the_leader(self, finding: Finding) -> bool:
        with suppress(Exception):  # the way to it is gone
            return self.leader_tells is not None and bool(self.leader_tells(finding))
        return False


def kind_of(finding: Finding) -> tuple[Any, ...]:
    """What is the same fault, on whichever rank: those of the ranks as such name who is to blame."""
    return (finding.id, finding.evidence.get("series"), finding.rank if finding.id.startswith("rank-") else None)
