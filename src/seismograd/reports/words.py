"""What is said of a run and of its findings in words, whoever shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any

from seismograd import folders
from seismograd.places import written
from seismograd.records import Finding, Severity, strict
from seismograd.reports.picture import DRAWN
from seismograd.reports.ranks import which_ranks

_LONGEST = 100
"""Of an exception's first line: all of it stands in the traceback."""

SHORT = 30.0
"""Seconds: in a shorter run the watch lives off its grace, and its share of the time says nothing about longer ones."""

_TOLD_ELSEWHERE = {"because", "began_on", "rank_count", "ranks", "recovery", "revision", "run", "series"}


def seconds_of(run: Mapping[str, Any]) -> float:
    """How long the run took; NaN if that is not known."""
    try:
        return (datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])).total_seconds()
    except (KeyError, TypeError, ValueError):
        return math.nan


def was_stopped(run: Mapping[str, Any]) -> bool:
    """Whether it was ended from outside, by Ctrl-C or a signal."""
    return any(each.startswith("stopped by ") for each in ended_by(run))


def ended_by(run: Mapping[str, Any]) -> list[str]:
    """What ended the run, in the words of a person; nothing if it came to its end."""
    told = str((run.get("exit") or {}).get("exception") or "").strip()
    name, _, text = (told.splitlines() or [""])[0].partition(":")
    if name == "KeyboardInterrupt":
        return ["stopped by Ctrl-C"]
    if name.startswith("SIG"):
        return [f"stopped by {name}"]
    if name == "SystemExit":
        return [f"sys.exit({text.strip()})"] if text.strip() not in {"", "0", "None"} else []
    first = f"{name}:{text}" if text else name
    return [first if len(first) <= _LONGEST else first[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"] if first else []


def tally(findings: Sequence[Finding]) -> str:
    """`2 critical, 1 warning`; remarks are named, since a healthy run does not show them."""
    parts = []
    for severity in (Severity.CRITICAL, Severity.WARNING):
        if number := sum(finding.severity is severity for finding in findings):
            parts.append(f"{number} {severity}")
    noted = dict.fromkeys(finding.id for finding in findings if finding.severity is Severity.INFO)
    if noted:
        parts.append(f"{many(len(noted), 'remark')} ({', '.join(noted)})")
    return ", ".join(parts)


def many(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def which_runs(numbers: Sequence[int]) -> str:
    """`run 2`, `runs 2, 3 and 4`, `runs 2, 3, 4 and 6 more`."""
    if len(numbers) == 1:
        return f"run {numbers[0]}"
    shown = [str(number) for number in numbers]
    if len(shown) > 8:
        shown = [*shown[:7], f"{len(shown) - 7} more"]
    return f"runs {', '.join(shown[:-1])} and {shown[-1]}"


def describe_place(finding: Finding, run: str | None = None, ranks: int = 1) -> str:
    """File and line, module, parameter and op as far as they are known, then run, optimizer, rank and steps.

    `ranks` is how many the run has: of one, its rank is not worth a word.
    """
    where = finding.where
    parts = []
    if where.file is not None:
        parts.append(written(where.file, where.line))
    if where.parameter is not None:
        parts.append(f"parameter {where.parameter}")
    elif where.module is not None:
        parts.append(f"module {where.module or '(the model itself)'}")
    if where.op is not None:
        parts.append(f"op {where.op} in {where.phase}" if where.phase else f"op {where.op}")
    elif where.phase is not None:
        parts.append(where.phase)
    if run is not None or isinstance(number := finding.evidence.get("run"), int):
        parts.append(run or f"run {number}")
    if isinstance(series := finding.evidence.get("series"), int):
        parts.append(f"optimizer {series}")
    if told := which_ranks(finding, ranks):
        parts.append(told)
    if finding.last_step > finding.step:
        parts.append(f"steps {finding.step} to {finding.last_step} ({many(finding.count, 'time')})")
    else:
        parts.append(f"step {finding.step}")
    return ", ".join(parts)


def remarks(finding: Finding, brief: bool = False) -> Iterable[tuple[str, str]]:
    """What stands below the picture: the cause, the first bad element, and how it was found."""
    evidence = finding.evidence
    if evidence.get("because") is not None:
        yield "because", str(evidence["because"])
    if isinstance(evidence.get("recovery"), Mapping):
        done = [f"{_DONE.get(action, action)} {_times(times)}" for action, times in evidence["recovery"].items()]
        yield "recovery", ", ".join(done)
    if brief or "origin" not in evidence:
        return
    if evidence.get("first_bad"):
        yield "first bad", str(evidence["first_bad"])
    note = str(evidence.get("note") or "")
    if note and note.rstrip(".").lower() not in finding.message.lower():
        yield "note", note
    if evidence.get("library"):
        yield "note", f"inside a library, at {evidence['library']}"
    if evidence.get("compiled"):
        yield "note", "found by running the model without torch.compile"
    if evidence.get("capture_note"):
        yield "note", str(evidence["capture_note"])
    if evidence.get("capture"):
        run = folders.named(PurePath(str(evidence["capture"])).parent)
        yield "saved", f"seismograd replay {run} --model FILE.py:CLASS"


_DONE = {
    "continue": "the training was let go on",
    "skip": "the update was skipped",
    "clip": "the gradient was clipped",
    "lower-lr": "the learning rate was lowered",
    "rollback": "the training went back",
    "stop": "the training was stopped",
}
"""What a policy did, in words."""


def _times(times: Any) -> str:
    return "once" if times == 1 else f"{times} times"


def describe_evidence(evidence: Mapping[str, Any]) -> str:
    """The evidence in one line: `norm=3.2e+08, limit=100`. What the picture of an origin tells is left out."""
    return ", ".join(f"{name}={describe_value(value)}" for name, value in evidence_left(evidence).items())


def evidence_left(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence that message, place, picture and notes do not tell already."""
    told = _TOLD_ELSEWHERE | DRAWN if "origin" in evidence else _TOLD_ELSEWHERE
    return {name: value for name, value in evidence.items() if name not in told}


def describe_value(value: Any) -> str:
    """One value of the evidence; of long lists the beginning."""
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(strict(value))
    if isinstance(value, Mapping):
        return "{" + _few([f"{key}: {describe_value(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + _few([describe_value(item) for item in value]) + "]"
    return " ".join(str(value).split())


def _few(items: Sequence[str]) -> str:
    shown = ", ".join(items[:3])
    return shown if len(items) <= 3 else f"{shown}, and {len(items) - 3} more"
