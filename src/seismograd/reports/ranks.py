"""The ranks of a run side by side, and what was found on several of them told once. Plain values in, plain values out.

`sides` is the list that a report has under `ranks`: a dict for each rank. `merged` makes one finding of those that
several ranks have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from seismograd.judge import STATUSES, across_ranks, is_located, is_mere_remark, is_shared, launch_of, ranked, spreads
from seismograd.records import Finding, Severity

NAMED = 16
"""So many ranks are named in the evidence of what they share; `rank_count` tells how many there are."""

_ACROSS = "rank-"
"""Ids that begin so are one judge's word on all ranks: two of them with different ranks are two faults."""

WORST = (*STATUSES, "crashed")

Side = Mapping[str, Any]


# -- findings ----------------------------------------------------------------------------------------------------------


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """What is the same on several ranks as one finding, in the order in which they should be read.

    It is told by the rank that knows where it began, else by the one on which it is worst, the lowest of several.
    `evidence.ranks` names them. What follows from a fault of another rank says so in `evidence.because`.
    """
    given = list(findings)
    if len({finding.rank for finding in given}) < 2 and not any(each.id.startswith(_ACROSS) for each in given):
        return ranked(given)
    groups: dict[Any, list[Finding]] = {}
    for finding in across_ranks(given):
        own = finding.rank if finding.id.startswith(_ACROSS) else None
        key = (finding.id, finding.evidence.get("series"), launch_of(finding), own)
        groups.setdefault(key, []).append(finding)
    told = [_told(group) for group in groups.values()]
    return ranked(_linked(told))


def _told(group: Sequence[Finding]) -> Finding:
    """The one that speaks for all."""
    teller = min(group, key=lambda each: (not is_located(each), -each.severity.weight, each.rank))
    if len(group) == 1:
        return teller
    evidence = dict(teller.evidence)
    if "because" not in evidence:
        causes = (each.evidence["because"] for each in group if each.evidence.get("because") is not None)
        cause = None if is_located(teller) else next(causes, None)
        if cause is not None:
            evidence["because"] = cause
    numbers = sorted({number for each in group for number in ranks_of(each)})
    count = max(len(numbers), *(_count_of(each) for each in group))
    if count > 1:
        evidence["ranks"] = numbers[:NAMED]
        if count > NAMED:
            evidence["rank_count"] = count
        if evidence.get("because") is None and _began_here(teller, group):
            evidence["began_on"] = teller.rank
    worst = max((each.severity for each in group), key=lambda severity: severity.weight)
    return replace(teller, severity=worst, evidence=evidence)


def _began_here(teller: Finding, group: Sequence[Finding]) -> bool:
    """Whether the others have it from the one that tells it."""
    others = [each for each in group if each is not teller]
    return is_located(teller) and all(not is_located(each) and each.step >= teller.step for each in others)


def ranks_of(finding: Finding) -> list[int]:
    """The ranks on which it was found, the first few of very many."""
    told = None if finding.id.startswith(_ACROSS) else finding.evidence.get("ranks")
    if isinstance(told, (list, tuple)) and told and all(isinstance(each, int) for each in told):
        return list(told)
    return [finding.rank]


def _count_of(finding: Finding) -> int:
    count = finding.evidence.get("rank_count")
    return count if isinstance(count, int) else len(ranks_of(finding))


def which_ranks(finding: Finding, world: int = 1) -> str:
    """`rank 3`, `rank 3, then 2 more`, `ranks 0, 1 and 3`, `all 4 ranks`; empty where there is but one rank."""
    numbers, count = ranks_of(finding), _count_of(finding)
    if count == 1:
        return f"rank {numbers[0]}" if world > 1 or numbers[0] else ""
    if isinstance(first := finding.evidence.get("began_on"), int):
        rest = [number for number in numbers if number != first]
        return f"rank {first}, then " + (f"rank {rest[0]}" if count == 2 and rest else f"{count - 1:,} more")
    if count >= world > 1:
        return f"all {count:,} ranks"
    shown = [str(number) for number in numbers]
    if count > 8:
        shown = [*shown[:7], f"{count - 7:,} more"]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


def _linked(findings: Sequence[Finding]) -> list[Finding]:
    """Says of what has no cause on its own rank that it follows from a fault on another, where it does."""
    ids = {(finding.id, launch_of(finding)) for finding in findings}
    because = {finding.id: finding.evidence.get("because") for finding in findings}
    told = []
    for finding in findings:
        cause_id = finding.evidence.get("because", "")
        if cause_id is None or (cause_id, launch_of(finding)) in ids:
            told.append(finding)
            continue
        evidence = {key: value for key, value in finding.evidence.items() if key != "because"}  # that is not there
        causes = [
            cause for cause in findings if _spreads(cause, finding) and not _leads_to(cause.id, finding.id, because)
        ]
        if causes:
            cause = min(causes, key=lambda each: (not each.id.startswith(_ACROSS), each.step))
            because[finding.id] = cause.id
            told.append(replace(finding, evidence={**evidence, "because": cause.id}))
        else:
            told.append(replace(finding, evidence=evidence))
    return told


def _spreads(cause: Finding, effect: Finding) -> bool:
    """Whether a fault of one rank explains what another has found: they share gradients, and wait for each other.

    Who is to blame for what happens between ranks is named by the first; why, that rank itself may know.
    """
    if cause.id == effect.id or launch_of(cause) != launch_of(effect) or is_shared(cause, effect):
        return False
    if is_mere_remark(cause, effect):
        return False
    if effect.id.startswith(_ACROSS):
        concerns = cause.id.startswith(_ACROSS) or effect.rank in ranks_of(cause)
        return concerns and cause.id in _follows().get(effect.id, ())
    if cause.rank == effect.rank or cause.step > effect.step:
        return False
    return is_located(cause) and not is_located(effect) and spreads(cause, effect)


def _leads_to(start: str, end: str, because: Mapping[str, str | None]) -> bool:
    at: str | None = start
    for _ in because:
        if at == end:
            return True
        at = because.get(at) if at is not None else None
    return False


@cache
def _follows() -> dict[str, frozenset[str]]:
    from seismograd.detectors import DEFAULT

    return {detector.id: frozenset(detector.follows) for detector in DEFAULT}


# -- side by side ------------------------------------------------------------------------------------------------------


def sides(states: Mapping[int, Mapping[str, Any]], findings: Iterable[Finding] = ()) -> list[dict[str, Any]]:
    """Each rank as a report has it, in their order; none for a run of one rank.

    `states` is what each told last (the store's `state`, with `ended` and, where it is known, `life`: `live`, `ended`
    or `lost`); `findings` are those of all ranks, not merged.
    """
    if len(states) < 2:
        return []
    found: dict[int, dict[str, int]] = {}
    for finding in findings:
        counts = found.setdefault(finding.rank, dict.fromkeys(("critical", "warning", "info"), 0))
        counts[finding.severity.value] += 1
    none = dict.fromkeys(("critical", "warning", "info"), 0)
    return [_side(rank, states[rank], found.get(rank, none)) for rank in sorted(states)]


def _side(rank: int, state: Mapping[str, Any], found: Mapping[str, int]) -> dict[str, Any]:
    steps = int(state.get("steps") or 0)
    last = (state.get("summary") or {}).get("last") or {}
    names = (name for name in last if name == "loss" or name.startswith("loss/"))
    performance = state.get("performance") or {}
    exit_ = state.get("exit") or {}
    return {
        "rank": rank,
        "host": state.get("host"),
        "pid": state.get("pid"),
        "attempt": state.get("attempt") or 0,
        "life": state.get("life"),
        "status": state.get("status") or "healthy",
        "steps": steps,
        "last_step": state.get("last_step", steps - 1),
        "loss": last.get(min(names, default=""), None),
        "seconds": performance.get("seconds_per_reading") or last.get("time/step"),
        "overhead": (state.get("overhead") or {}).get("measured"),
        "exit": {"code": exit_.get("code"), "exception": exit_.get("exception")},
        "ended": state.get("ended"),
        "findings": dict(found),
    }


def with_ranks(report: Mapping[str, Any], of_all: Mapping[str, Any]) -> dict[str, Any]:
    """One rank's report with what another, of the same run, knows of all ranks."""
    from seismograd.reports.report import finding_of

    own, others = (each.get("findings") or () for each in (report, of_all))
    every = {(found := finding_of(data)).key: found for data in (*others, *own)}  # its own are the newest
    for data in others:
        told = finding_of(data)
        if (known := every[told.key]) is not told and len(ranks_of(told)) > len(ranks_of(known)):
            spread = {name: told.evidence[name] for name in ("ranks", "rank_count") if name in told.evidence}
            every[told.key] = replace(known, evidence={**known.evidence, **spread})
    run, whole = report["run"], of_all["run"]
    status = max((str(each.get("status") or "healthy") for each in (run, whole)), key=_place)
    number = max(run.get("ranks") or 1, whole.get("ranks") or 1)
    told_ranks = of_all.get("ranks") or report.get("ranks")
    return {
        **report,
        "run": {**run, "status": status, "ranks": number},
        **({"ranks": told_ranks} if told_ranks else {}),
        "findings": [finding.to_dict() for finding in merged(every.values())],
    }


def _place(status: str) -> int:
    return WORST.index(status) if status in WORST else 0


def gravest_first(ranks: Iterable[Side]) -> list[Side]:
    """The ranks as somebody looks at them who wants to know which is ill: by status, life, lag, findings, and how far
    their loss and the time of their step are from the others'."""
    every = list(ranks)
    far = {name: _distances([number_of(side.get(name)) for side in every]) for name in ("loss", "seconds")}
    most = max((side.get("last_step") or -1 for side in every), default=-1)

    def weight(at: int) -> tuple[Any, ...]:
        side = every[at]
        found = side.get("findings") or {}
        lag = most - (side.get("last_step") or -1)
        return (
            -_place(str(side.get("status"))),
            side.get("life") != "lost",
            -(lag if lag > 1 else 0),
            -(found.get("critical") or 0),
            -(found.get("warning") or 0),
            -max(far["loss"][at], far["seconds"][at]),
            side["rank"],
        )

    return [every[at] for at in sorted(range(len(every)), key=weight)]


def _distances(values: Sequence[float | None]) -> list[float]:
    """How far each is from the middle, in units of the usual spread; what is not finite is farthest."""
    finite = sorted(value for value in values if value is not None and math.isfinite(value))
    if not finite:
        return [0.0] * len(values)
    middle = finite[len(finite) // 2]
    usual = sorted(abs(value - middle) for value in finite)[len(finite) // 2]
    least = max(usual, 0.01 * abs(middle), 1e-12)
    return [
        0.0 if value is None else math.inf if not math.isfinite(value) else abs(value - middle) / least
        for value in values
    ]


def number_of(value: Any) -> float | None:
    """A number as a report has it: of strict JSON `"NaN"` too."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def counted(findings: Mapping[str, int]) -> str:
    """`2 critical, 1 warning`; empty where nothing was found."""
    words = ((Severity.CRITICAL, "critical"), (Severity.WARNING, "warning"), (Severity.INFO, "info"))
    return ", ".join(f"{findings[each.value]} {word}" for each, word in words if findings.get(each.value))
