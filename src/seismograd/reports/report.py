"""The report of a run: one shape, strict JSON, findings in the order in which they should be read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import seismograd
from seismograd.judge import status_of
from seismograd.records import Finding, Severity, Where, strict
from seismograd.reports.ranks import merged

SCHEMA = 1

_RUN: dict[str, Any] = {
    "id": None,
    "name": None,
    "status": None,
    "steps": 0,
    "ranks": 1,
    "level": None,
    "started": None,
    "ended": None,
    "exit": {"code": None, "exception": None},
    "overhead": {"budget": None, "measured": None},
}


def build_report(
    *,
    run: Mapping[str, Any],
    findings: Iterable[Finding] = (),
    summary: Mapping[str, Any] | None = None,
    events: Iterable[Any] = (),
    memory: Iterable[Any] = (),
    performance: Mapping[str, Any] | None = None,
    ranks: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The report as strict JSON. What `run` leaves out is null, but its status, which follows from the findings.

    What several ranks have in common is told once; `ranks` are the `sides` of a run that has several.
    """
    in_order = merged(findings)
    about = {**_RUN, **run}
    about["exit"] = {**_RUN["exit"], **(run.get("exit") or {})}
    about["overhead"] = {**_RUN["overhead"], **(run.get("overhead") or {})}
    if about["status"] is None:
        about["status"] = "crashed" if about["exit"]["exception"] else status_of(in_order)
    report: dict[str, Any] = strict(
        {
            "schema": SCHEMA,
            "version": seismograd.__version__,
            "run": about,
            "findings": [finding.to_dict() for finding in in_order],
            "summary": summary or {},
            "events": list(events),
            "memory": list(memory),
            "performance": performance or {},
            **({"ranks": list(ranks)} if ranks else {}),
        }
    )
    return report


def join_reports(reports: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, Any]:
    """One report on several runs of one process: all findings, each with the number of its run, and the runs' own."""
    findings = []
    for number, report in enumerate(reports, 1):
        for data in report["findings"]:
            findings.append(finding_of({**data, "evidence": {**data["evidence"], "run": number}}))
    runs = [report["run"] for report in reports]
    measured = [each["overhead"]["measured"] for each in runs if each["overhead"]["measured"] is not None]
    overhead = {"budget": runs[0]["overhead"]["budget"], "measured": max(measured, default=None)}
    whole = build_report(
        run={
            "steps": sum(each["steps"] for each in runs),
            "ranks": max((each.get("ranks") or 1 for each in runs), default=1),
            "status": status_of(findings),
            "overhead": overhead,
            **run,
        },
        findings=findings,
        summary={"runs": len(runs)},
        events=[{**event, "run": number} for number, report in enumerate(reports, 1) for event in report["events"]],
    )
    return {**whole, "runs": [strict(report) for report in reports]}


def finding_of(data: Mapping[str, Any]) -> Finding:
    """The finding that a report's entry describes; its evidence stays as JSON has it."""
    return Finding(
        id=data["id"],
        severity=Severity(data["severity"]),
        step=data["step"],
        message=data["message"],
        rank=data.get("rank", 0),
        where=Where(**(data.get("where") or {})),
        evidence=data.get("evidence") or {},
        recommendations=tuple(data.get("recommendations") or ()),
        count=data.get("count", 1),
        last_step=data.get("last_step", data["step"]),
    )


def write_report(report: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Writes the report to `path`, whole or not at all, and makes its folder; an `OSError` says what is in the way."""
    return write_whole(json.dumps(strict(report), indent=2, allow_nan=False) + "\n", path)


def write_whole(text: str, path: str | os.PathLike[str], what: str = "report") -> Path:
    """Writes the text to `path`, whole or not at all, and makes its folder; an `OSError` says what is in the way."""
    target = Path(os.path.realpath(path))
    try:
        given = Path(path)
        if given.exists() and not given.is_file() and not given.is_dir():  # /dev/stdout, a pipe: no renaming there
            given.write_text(text, encoding="utf-8")
            return given
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        reason = error.strerror or error
        raise OSError(
            f"the {what} cannot be written to {os.fspath(path)!r} ({reason}): give a path to a file in a folder "
            "that can be written"
        ) from error
    return Path(path)


def read_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The report in the file; a `ValueError` says why it is none."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r} is not a report: {error}") from None
    if not isinstance(report, dict) or "schema" not in report or "run" not in report:
        raise ValueError(f"{os.fspath(path)!r} is not a report: it has no 'schema' and 'run'")
    if report["schema"] != SCHEMA:
        raise ValueError(
            f"{os.fspath(path)!r} has schema {report['schema']!r}, this Seismograd reads {SCHEMA}: "
            "use the version that wrote it"
        )
    return report
