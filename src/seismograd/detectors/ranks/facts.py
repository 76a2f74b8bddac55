"""How the facts about ranks are read: keys may be missing, and ranks are strings where the facts come from a store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seismograd.detectors.wording import found
from seismograd.protocols import Detector
from seismograd.records import Finding, Reading, Severity, Where

LISTED = 16
"""Ranks that are listed in the evidence, whatever their number."""
_NAMED = 4
"""Ranks that a sentence names; more are counted."""
_LONGEST = 200
"""Letters of a name or a line of code in the evidence."""

REPLICATED = ("ddp", "fsdp", "replicas")
"""The kinds of training in which all ranks train one model on data of their own."""


def mapping(facts: Mapping[str, Any], name: str) -> Mapping[Any, Any]:
    """What is told under this name; an empty one if nothing is."""
    told = facts.get(name)
    return told if isinstance(told, Mapping) else {}


def by_rank(told: Any) -> dict[int, Any]:
    """What is told of each rank, with ranks as numbers, in their order."""
    found_: dict[int, Any] = {}
    if isinstance(told, Mapping):
        for key, value in told.items():
            try:
                found_[int(key)] = value
            except (TypeError, ValueError):  # a word beside the ranks, such as `count`
                continue
    return dict(sorted(found_.items()))


def ranks_in(told: Any) -> list[int]:
    """The ranks of a list, or those of which something is told."""
    if isinstance(told, Mapping):
        return list(by_rank(told))
    if not isinstance(told, Sequence) or isinstance(told, str):
        return []
    return [each for each in told if isinstance(each, int)]


def groups_in(told: Any) -> list[list[int]]:
    """The groups of ranks in a list of lists; empty ones are left out."""
    if not isinstance(told, Sequence) or isinstance(told, str):
        return []
    return [group for each in told if (group := ranks_in(each))]


def amount(value: Any) -> float | None:
    """A number that is one: a store has NaN as a word."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def count(value: Any, default: int = 0) -> int:
    """A whole number, or what stands for one that is not told."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def words(told: Any) -> list[str]:
    """The names in a list."""
    if isinstance(told, str):
        return [told]
    return [str(each)[:_LONGEST] for each in told] if isinstance(told, Sequence) else []


def short(text: Any) -> str:
    """A text of bounded length."""
    return str(text)[:_LONGEST]


def who(ranks: Iterable[int], total: int | None = None) -> str:
    """`rank 2`, `ranks 0, 1 and 3`, `ranks 0 to 6`, `ranks 0, 1, 2 and 9,996 more`; `total`, where the list is cut."""
    listed = sorted(set(ranks))
    total = max(total or 0, len(listed))
    if not listed:
        return f"{total:,} ranks"
    if total == 1:
        return f"rank {listed[0]}"
    if total > 2 and listed[-1] - listed[0] + 1 == total == len(listed):
        return f"ranks {listed[0]} to {listed[-1]}"
    if total <= _NAMED and total == len(listed):
        return f"ranks {', '.join(map(str, listed[:-1]))} and {listed[-1]}"
    shown = listed[: _NAMED - 1]
    return f"ranks {', '.join(map(str, shown))} and {total - len(shown):,} more"


def capital(text: str) -> str:
    """The text as a sentence begins."""
    return text[:1].upper() + text[1:]


def are(ranks: Sequence[int], one: str, several: str) -> str:
    """The form of the verb that goes with so many ranks."""
    return one if len(ranks) == 1 else several


def blamed(
    detector: Detector,
    reading: Reading,
    severity: Severity,
    message: str,
    evidence: Mapping[str, Any],
    *,
    advice: Sequence[str],
    rank: int,
    where: Where | None = None,
    step: int | None = None,
) -> Finding:
    """The finding, laid on the rank whose fault it is; it goes on at this reading, if it began at an earlier `step`."""
    finding = found(detector, reading, severity, message, evidence, advice=advice, where=where, step=step)
    return replace(finding, rank=rank, last_step=max(reading.step, finding.step))
