"""Records of the store as the plain values of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seismograd import folders, tally
from seismograd.records import Finding
from seismograd.reports.pages import Page, pages
from seismograd.reports.ranks import merged
from seismograd.store import Heat, Run, Series

_HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)


def state_of(run: Run) -> str:
    return "ended" if run.ended is not None else "live" if run.live else "lost"


def fits(run: Run, text: str, status: str, state: str) -> bool:
    """Whether the text is part of its name or id, and it is as wanted; what is empty does not matter."""
    named = text.casefold() in run.name.casefold() or text.casefold() in run.id
    return named and status in ("", run.status) and state in ("", state_of(run))


def row_of(run: Run, findings: Mapping[str, int]) -> dict[str, Any]:
    """A run as it is listed; `findings` is how many there are of each severity."""
    overhead = run.state.get("overhead") or {}
    exit_ = run.state.get("exit") or {}
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "state": state_of(run),
        "level": run.level,
        "budget": run.budget,
        "overhead": overhead.get("measured"),
        "steps": run.steps,
        "ranks": run.ranks,
        "started": run.started.isoformat(timespec="milliseconds"),
        "ended": None if run.ended is None else run.ended.isoformat(timespec="milliseconds"),
        "batch": run.batch,
        "findings": {severity: findings.get(severity, 0) for severity in ("critical", "warning", "info")},
        "bytes": run.bytes,
        "exit": {"code": exit_.get("code"), "exception": exit_.get("exception")},
    }


def counts_of(run: Run, rows: Mapping[str, int]) -> Mapping[str, int]:
    """How many findings of each severity a run has, if those that several ranks share count once; `rows` counts all."""
    if len(run.ranks) < 2 or sum(rows.values()) < 2:
        return rows
    counts: dict[str, int] = {}
    for finding in merged(run.findings()):
        counts[finding.severity.value] = counts.get(finding.severity.value, 0) + 1
    return counts


def attempts_of(run: Run) -> list[dict[str, Any]]:
    """The launches of a run, the first too; none where the store knows nothing of them."""
    return [attempt.to_dict() for attempt in getattr(run, "attempts", None) or ()]


def seconds(moment: str) -> float:
    """A time as answers have it, in seconds since 1970; 0 for none."""
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0


def curve_of(series: Series) -> dict[str, Any]:
    """A curve in columns."""
    columns = ("first", "steps", "low", "high", "mean", "last", "count", "bad", "times")
    return {**{name: getattr(series, name).tolist() for name in columns}, "width": series.width}


def points_of(series: Series, wanted: NDArray[np.bool_]) -> dict[str, list[Any]]:
    """Some of its points as single values, for a chart that grows: where one stands for many, its low and its high."""
    if series.width == 1:
        return {"steps": series.steps[wanted].tolist(), "values": series.last[wanted].tolist()}
    high = np.where(series.bad > 0, np.nan, series.high)  # a gap is what a chart shows of a value that is none
    steps = np.stack((series.first, series.steps), axis=1)[wanted].ravel()
    return {"steps": steps.tolist(), "values": np.stack((series.low, high), axis=1)[wanted].ravel().tolist()}


def heat_of(heat: Heat) -> dict[str, Any]:
    return {
        "kind": heat.kind,
        "column": heat.column,
        "names": list(heat.names),
        "steps": heat.steps.tolist(),
        "values": heat.values.tolist(),
    }


def findings_of(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as in the report, each with its page."""
    return [{**finding.to_dict(), "page": page_of(finding.id)} for finding in findings]


def page_of(finding: str) -> dict[str, str] | None:
    """What a person should know about such a finding, in short."""
    page = known_pages().get(finding)
    if page is None:
        return None
    parts = _HEADING.split(page.body)
    sections = {title.lower(): text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {"title": page.title, "why": sections.get("why it matters", ""), "try": sections.get("what to try", "")}


@cache
def known_pages() -> dict[str, Page]:
    return pages()


def captures_of(run: Run) -> list[dict[str, Any]]:
    return [{"step": each.step, "finding": each.finding, "path": folders.shown(each.path)} for each in run.captures()]


# -- counters ----------------------------------------------------------------------------------------------------------


def summary_of(run: Run | None, requests: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The counters of the training since they were last cleared: the live process counts, the store holds them."""
    told = {} if run is None or is_clearing(requests) else run.state.get("summary") or {}
    return tally.summary_of(told)


def is_clearing(requests: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the counters were asked to start again, and the process has not said yet that they did."""
    return any(each["kind"] == "clear" and None in (each["taken"], each["answer"]) for each in requests)
