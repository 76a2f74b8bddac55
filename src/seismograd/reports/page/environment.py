"""Where, when and how the run ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from seismograd.amounts import duration, size
from seismograd.reports.page.markup import Html, joined, tag
from seismograd.reports.page.material import Material
from seismograd.reports.words import SHORT, seconds_of

_ABOUT = {
    "command": "Command",
    "script": "Script",
    "cwd": "Folder",
    "host": "Machine",
    "platform": "System",
    "cpus": "Processors",
    "devices": "Devices",
    "device": "Device",
    "cuda": "CUDA",
    "world_size": "Processes",
    "python": "Python",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "seismograd": "Seismograd",
    "parameters": "Parameters",
    "pid": "Process id",
}
_AS_CODE = frozenset(("command", "script", "cwd"))


def environment(material: Material) -> Html:
    """All that is recorded about the run, as names and values."""
    rows = [*_run(material), *_about(material.about)]
    return tag("dl", *(joined((tag("dt", name), tag("dd", value))) for name, value in rows), cls="facts")


def moment(text: Any) -> str:
    """`16 November 2026, 17:25:46 UTC`."""
    try:
        when = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        return str(text)
    return f"{when.day} {when:%B %Y, %H:%M:%S} {when.tzname() or ''}".rstrip()


def _run(material: Material) -> Iterable[tuple[str, object]]:
    run = material.run
    if run.get("id"):
        yield "Run", tag("code", run["id"])
    if run.get("started"):
        yield "Started", moment(run["started"])
    if run.get("ended"):
        seconds = seconds_of(run)
        yield "Ended", moment(run["ended"]) + (f" (after {duration(seconds)})" if math.isfinite(seconds) else "")
    exit_ = run.get("exit") or {}
    if exit_.get("code") is not None:
        yield "Exit code", str(exit_["code"])
    if exit_.get("exception"):
        yield "Ended by", str(exit_["exception"])
    if run.get("level"):
        yield "Level", str(run["level"])
    overhead = run.get("overhead") or {}
    if isinstance(overhead.get("measured"), (int, float)):
        told = f"{overhead['measured']:.1%} of the time"
        if isinstance(overhead.get("budget"), (int, float)):
            told += f", budget {overhead['budget']:.0%}"
        if seconds_of(run) < SHORT:
            told += " (the first seconds, in which more is looked at, are not held to it)"
        yield "Share of the watch", told
    stored = material.stored
    if stored is not None:
        address = (run.get("store") or {}).get("address")
        yield "Stored", size(stored.bytes) + (f" in {address}" if address else "")


def _about(about: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    for name in (*_ABOUT, *(name for name in about if name not in _ABOUT)):
        value = about.get(name)
        if value is None or value in ("", [], {}) or (name == "world_size" and value == 1):
            continue
        text = _text(value)
        yield _ABOUT.get(name, name.replace("_", " ").capitalize()), tag("code", text) if name in _AS_CODE else text


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(each)}" for key, each in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value >= 100_000 else str(value)
