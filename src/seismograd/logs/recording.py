"""A log judged, and written into a store, so that it is a run like any other."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seismograd.judge import Judge
from seismograd.logs.ordering import Course
from seismograd.protocols import Detector
from seismograd.records import Finding, Reading, run_id
from seismograd.reports.report import build_report
from seismograd.store import Run, open_store
from seismograd.store.recorder import Batch
from seismograd.store.schema import LIMIT, file_of, limit_of, shown, url_of
from seismograd.store.writing import Writing
from seismograd.tally import Tally, summary_of

_BATCH = 4096


def recorded(
    course: Course,
    detectors: Sequence[Detector],
    *,
    ignore: Iterable[str],
    where: Any,
    name: str,
    about: Mapping[str, Any],
    notes: Sequence[str],
) -> Run:
    """The run, judged and in the store; in one of its own that goes when the run does, if `where` is `False`."""
    failures: list[str] = []
    ignored = set(ignore)
    judge = Judge(
        detectors,
        ignore=ignored,
        on_failure=lambda part, error: failures.append(f"{part} failed ({type(error).__name__}: {error})"),
    )
    tally = Tally()
    for reading, _ in course.readings:
        seen = judge.observe(reading)
        tally.take(reading)
        tally.count(seen, reading.step)
    folder = Path(tempfile.mkdtemp(prefix="seismograd-log-")) if where is False else None
    try:
        url = url_of(where if folder is None else folder)
        number = run_id()
        steps = 1 + max(reading.step for reading, _ in course.readings)
        state = {
            "status": judge.status,
            "level": None,
            "budget": None,
            "steps": steps,
            "ignored": sorted(ignored),
            "summary": {**summary_of(tally.counts), "last": dict(tally.latest)},
        }
        for rank in sorted({reading.rank for reading, _ in course.readings}):
            own = [(reading, when) for reading, when in course.readings if reading.rank == rank]
            findings = [finding for finding in judge.findings if finding.rank == rank]
            writing = Writing(
                url, number, name, rank=rank, limit=limit_of() if folder is None else LIMIT, about=dict(about)
            )
            told = {"id": number, "name": name, "address": shown(url)}
            said = [*notes, *failures] if not rank else []
            _write(writing, readings=own, findings=findings, state=state, notes=said, about=told)
        store = open_store(str(file_of(url) or url.render_as_string(hide_password=False)))
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if folder is not None:
        weakref.finalize(store, shutil.rmtree, folder, True)
    return store.run(number)


def _write(
    writing: Writing,
    *,
    readings: Sequence[tuple[Reading, float | None]],
    findings: Sequence[Finding],
    state: Mapping[str, Any],
    notes: Sequence[str],
    about: Mapping[str, str],
) -> None:
    now = time.time()
    events = [{"time": now, "event_type": "log", "message": note, "level": "info"} for note in notes]
    try:
        for at in range(0, len(readings), _BATCH):
            part = [(reading, now if when is None else when) for reading, when in readings[at : at + _BATCH]]
            writing.write(Batch(readings=part, state=dict(state)))
            writing.thin()
        started = min((when for _, when in readings if when is not None), default=None)
        ended = max((when for _, when in readings if when is not None), default=None)
        report = build_report(
            run={
                "id": about["id"],
                "name": about["name"],
                "status": state["status"],
                "steps": state["steps"],
                "started": _moment(started),
                "ended": _moment(ended),
                "store": {"address": about["address"], "written": len(readings), "thinned": 0, "missing": None},
            },
            findings=findings,
            summary=state["summary"],
            events=events,
        )
        told = {finding.key: finding for finding in findings}
        writing.write(Batch(findings=told, events=events, report=report, state=dict(state)))
    finally:
        writing.disconnect()


def _moment(seconds: float | None) -> str | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return None
