"""Writes a run as lines of JSON."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seismograd import __version__
from seismograd.complaints import complain as say
from seismograd.records import Finding, Reading, strict
from seismograd.records import rank as own_rank
from seismograd.sinks.relay import FIRST_WAIT, MOST, writes


class JSONLines:
    """A sink that appends one line of strict JSON for each reading, finding, change, event, and for the end.

    Each line is written in one piece, at once. `kind` says what it is, `run` whose. A file that ends in the middle of
    a line, as after a crash, gets its end of line first. `every=10` writes every tenth reading, `tables=True` also the
    statistics of tensors. While the disk is full, or the file cannot be opened, lines wait; it is said once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: int = 1,
        tables: bool = False,
        rank: int | None = 0,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every is {every!r}: it takes 1 for each reading, 10 for every tenth")
        self._writes, self._rank = writes(rank), own_rank()
        self.path = Path(os.path.abspath(path))
        if rank is None and self._rank:
            self.path = self.path.with_name(f"{self.path.stem}.rank{self._rank}{self.path.suffix}")
        if self._writes and self.path.is_dir():
            raise IsADirectoryError(f"lines cannot be written to {str(self.path)!r}: it is a folder, give a file")
        self.every, self.tables = every, tables
        self._file: int | None = None
        self._run: Mapping[str, Any] = {}
        self._read = 0
        self._last: dict[tuple[Any, ...], Finding] = {}
        self._pid = os.getpid()
        self._waiting: deque[tuple[str, bytes]] = deque()
        """Lines that are not in the file; of the first, a part may be."""
        self.trouble: str | None = None
        """Why nothing can be written at present."""
        self._again = 0.0
        self._left_out = 0
        self._complained = False
        self._complain: Callable[[str], None] = say

    def __repr__(self) -> str:
        return f"<JSONLines {self.path}>"

    def begin(self, run: Mapping[str, Any], note: Callable[..., None], complain: Callable[[str], None]) -> None:
        """Learns which run it is."""
        self._run, self._read, self._complain = run, 0, complain
        self._last.clear()
        self._write("begin", {"name": run.get("name"), "rank": self._rank, "schema": 1, "version": __version__})

    def write_reading(self, reading: Reading) -> None:
        if not reading.scalars and not (self.tables and reading.tensors):
            return
        self._read += 1
        if (self._read - 1) % self.every and "val_loss" not in reading.scalars:
            return
        told: dict[str, Any] = {"step": reading.step, "rank": reading.rank}
        if reading.series is not None:
            told["series"] = reading.series
        if reading.marks:
            told["marks"] = sorted(reading.marks)
        told["scalars"] = strict(reading.scalars)
        if self.tables and reading.tensors:
            told["tables"] = {
                kind: {"names": list(table.names), **strict(table.columns)} for kind, table in reading.tensors.items()
            }
        self._write("reading", told)

    def write_finding(self, finding: Finding) -> None:
        self._last[finding.key] = finding
        self._write("finding", strict(finding.to_dict()))

    def update_finding(self, finding: Finding) -> None:
        """What changed of it. Of mere repeats the 2nd, 4th, 8th, 16th is told; the end tells the last count."""
        last = self._last.get(finding.key)
        if last is None:
            self.write_finding(finding)
            return
        before, now = strict(last.to_dict()), strict(finding.to_dict())
        changed = {name for name in now if now[name] != before.get(name)}
        if changed <= {"count", "last_step", "message", "evidence"} and finding.count & (finding.count - 1):
            return
        self._last[finding.key] = finding
        same = {"id": finding.id, "rank": finding.rank, "series": finding.evidence.get("series")}
        self._write("change", {**same, **{name: now[name] for name in now if name in changed}})

    def write_event(self, event: Mapping[str, Any]) -> None:
        self._write("event", strict(dict(event)))

    def close(self, report: dict[str, Any]) -> None:
        self._again = 0.0
        self._write("end", {"status": (report.get("run") or {}).get("status"), "report": strict(report)})
        if not self._writes or os.getpid() != self._pid:
            return
        if missing := len(self._waiting) + self._left_out:
            self._complain(
                f"seismograd: {missing:,} lines are missing from {self.path} ({self.trouble or 'it was full'})"
            )
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _write(self, kind: str, told: Mapping[str, Any]) -> None:
        if not self._writes or os.getpid() != self._pid:
            return
        line = {"kind": kind, "run": self._run.get("id"), "time": round(time.time(), 6), **told}
        self._waiting.append((kind, json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"))
        if len(self._waiting) > MOST:
            self._thin()
        if self.trouble is None or time.monotonic() >= self._again:
            self._pour()
        if self.trouble is not None and not self._complained and kind not in ("begin", "end"):
            self._complained = True
            self._complain(f"seismograd: {self.path} cannot be written at present, training goes on ({self.trouble})")

    def _pour(self) -> None:
        """Writes what waits, as far as it can be written: a disk that is full takes a part."""
        try:
            if self._file is None:
                self._file = _opened(self.path)
            while self._waiting:
                kind, data = self._waiting[0]
                written = os.write(self._file, data)
                if written < len(data):
                    self._waiting[0] = (kind, data[written:])
                else:
                    self._waiting.popleft()
        except OSError as error:
            place = f": {error.filename}" if error.filename else ""
            self.trouble = f"{error.strerror or type(error).__name__}{place}"
            self._again = time.monotonic() + FIRST_WAIT
        else:
            self.trouble = None

    def _thin(self) -> None:
        """Every second reading goes, and of anything else only what is too much even so."""
        first, *rest = self._waiting
        kept = [line for at, line in enumerate(rest) if line[0] != "reading" or at % 2]
        kept = kept[-MOST // 2 :] if len(kept) >= MOST else kept
        self._left_out += len(rest) - len(kept)
        self._waiting = deque([first, *kept])


def _opened(path: Path) -> int:
    """The file, at its end, which is the end of a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
    except BaseException:
        os.close(file)
        raise
    return file
