"""What `seismograd run` shows on stderr while a script trains: how it goes, in one line, and what is found."""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO, cast

from seismograd.protocols import Sink
from seismograd.records import Finding, Reading, Severity
from seismograd.sinks.curve import ASCII, BLOCKS, BROKEN, Curve, sparkline
from seismograd.sinks.voice import Leader, Voice, kind_of

if TYPE_CHECKING:
    from seismograd.quiet_rich import RenderableType

_BETWEEN_DRAWS = 0.2
_PACE_OVER = 5.0
_LINES_AT = (5.0, 15.0, 30.0, 60.0)
"""Seconds after which a line is written where there is no terminal; then each minute."""

_FEWEST_ROWS = 4
_LONGEST_CURVE, _SHORTEST_CURVE = 60, 4

_BOLD, _DIM, _RED, _YELLOW, _GREEN, _CYAN = "1", "2", "1;31", "1;33", "32", "36"
_SAVE, _RESTORE, _ALL_SCROLLS, _CLEAR_BELOW = "\x1b7", "\x1b8", "\x1b[r", "\x1b[J"
_ROOM_BELOW = "\x1bD\x1b[A"
"""Down and up again: if the cursor was in the last row, its text has moved up by one, and the cursor with it."""


class Display:
    """One for the process, over its stderr: at the foot of a terminal a live line, elsewhere a plain line now and then.

    The script's own output scrolls above the live line. Nothing here raises: a stream that is closed or broken is
    written to no more. It starts no thread and holds no lock, so that `end` may be called from a signal handler.
    `quiet` leaves only what `print` is given. That of a `rank` other than 0 draws nothing, and tells what the first
    rank will not.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        quiet: bool = False,
        rank: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._quiet, self._clock, self.rank = stream, quiet, clock, rank
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._levels = BLOCKS if _can_write(BLOCKS, self._encoding) else ASCII
        self._terminal = _is_terminal(stream)
        self._foot = Foot.of(stream, self._encoding) if self._terminal else None
        self._pid = os.getpid()
        self._started = clock()
        self._due, self._line_due = -math.inf, _LINES_AT[0]
        self._runs = 0
        self._found: Counter[Severity] = Counter()
        self._over = self._broken = self._spoke = False

    def sink(self, label: str | None = None) -> Sink:
        """The sink of one training run. Of several the one that read last is shown, with its label (`run 2`)."""
        self._runs += 1
        return _Run(self, label or f"run {self._runs}")

    def print(self, renderable: RenderableType) -> None:
        """Prints above the live line, after a blank line: on a terminal the cursor may stand in mid-line."""
        if self._broken:
            return
        try:
            self._write(("\n" if self._terminal or self._spoke else "") + self._rendered(renderable))
        except Exception:
            self._broken = True

    def end(self) -> None:
        """Gives the terminal back, the cursor where the script's output ended. From now on only `print` is heard."""
        self._over = True
        if self._foot is not None and self._pid == os.getpid():
            self._foot.give_back()

    # -- for its sinks -------------------------------------------------------------------------------------------

    def _read(self, run: _Run, *, last: bool = False) -> None:
        now = self._clock()
        if now < self._due and not last:
            return
        silent = self._quiet or self.rank or self._over or self._broken
        if silent or self._pid != os.getpid():  # a fork has no part in the terminal
            self._due = math.inf
            return
        run.pace.add(now, run.steps)
        try:
            if self._foot is not None:
                self._due = now + _BETWEEN_DRAWS
                self._draw(self._foot, run, now - self._started)
            else:
                self._due = now + 1.0
                self._write_line(run, now - self._started)
        except Exception:
            self._broken = True

    def _tell(self, run: _Run, finding: Finding, before: Severity | None) -> None:
        if before is not None:
            self._found[before] -= 1
        self._found[finding.severity] += 1
        if finding.severity is not Severity.INFO and not (self._quiet or self._over or self._broken):
            from seismograd.reports.terminal import render_finding

            label = run.label if self._runs > 1 else None
            self.print(render_finding(finding, brief=True, run=label, speaker=run.voice.speaker))

    # -- inside --------------------------------------------------------------------------------------------------

    def _draw(self, foot: Foot, run: _Run, elapsed: float) -> None:
        size = foot.size()
        if size is None:
            return
        foot.draw(self._line(run, elapsed, size.columns - 1), size)
        if self._over:  # a signal handler ended it while it was being drawn
            foot.give_back()

    def _line(self, run: _Run, elapsed: float, width: int) -> str:
        """The live line, coloured: the curve takes the room that is left, and what does not fit is left out."""
        steps = _many(run.steps, "step") + run.pace.text()
        counts = [(_many_found(number, severity), severity) for severity, number in _in_order(self._found)]
        pieces = {
            "name": _Piece(("seismograd", _BOLD)),
            "label": _Piece((run.label if self._runs > 1 else "", _BOLD)),
            "steps": _Piece((steps, "")),
            "loss": _Piece((f"loss {_figure(run.loss)}" if run.loss is not None else "", "")),
            "found": _Piece(*_joined(counts)) if counts else _Piece(("nothing found", _GREEN)),
            "elapsed": _Piece((_duration(elapsed), _DIM)),
        }
        shown = {name: piece for name, piece in pieces.items() if piece.length}
        for name in ("elapsed", "label", "found", "loss", "name"):
            if _length(shown) > width:
                shown.pop(name, None)
        room = min(width - _length(shown) - 1, _LONGEST_CURVE)
        if "loss" in shown and room >= _SHORTEST_CURVE:
            shown["loss"].parts += [(" ", ""), *_coloured(sparkline(run.curve.points(room), self._levels))]
        if _length(shown) > width:
            return ""
        colour = not os.environ.get("NO_COLOR")
        return "  ".join(piece.paint(colour) for piece in shown.values())

    def _write_line(self, run: _Run, elapsed: float) -> None:
        if elapsed < self._line_due:
            return
        self._line_due = next((at for at in _LINES_AT if at > elapsed), elapsed + _LINES_AT[-1])
        facts = [run.label] if self._runs > 1 else []
        facts.append(_many(run.steps, "step") + run.pace.text())
        if run.loss is not None:
            facts.append(f"loss {_figure(run.loss)}")
        facts += [_many_found(number, severity) for severity, number in _in_order(self._found)] or ["nothing found"]
        self._write(f"seismograd: {', '.join(facts)}\n")

    def _rendered(self, renderable: RenderableType) -> str:
        """The text for this stream, coloured if it wants that; rich would write to it even what was captured."""
        from seismograd.quiet_rich import Console

        size = self._foot.size() if self._foot else None
        seen = Console(file=self._stream, width=size and size.columns, height=size and size.lines)
        text = StringIO()
        Console(
            file=text,
            force_terminal=seen.is_terminal,
            color_system=cast(Any, seen.color_system),
            width=seen.width,
            height=seen.height,
            highlight=False,
        ).print(renderable)
        return text.getvalue()

    def _write(self, text: str) -> None:
        self._spoke = True
        data = text.encode(self._encoding, "replace")
        try:
            self._stream.write(data.decode(self._encoding))
            self._stream.flush()
        except RuntimeError:  # a signal came in the middle of a write to this very stream, and its handler is here
            _send(self._stream.fileno(), data)


class _Run:
    """The sink of one training run: what the line says of it."""

    def __init__(self, display: Display, label: str) -> None:
        self.label = label
        self.steps = 0
        self.loss: float | None = None
        self.curve = Curve()
        self.pace = Pace()
        self.voice = Voice(display.rank)
        self._display = display
        self._series: str | None = None
        self._severities: dict[tuple[Any, ...], Severity] = {}

    def write_reading(self, reading: Reading) -> None:
        self.steps = max(self.steps, reading.step + 1)
        name = "loss" if reading.series is None else f"loss/{reading.series}"
        loss = reading.scalars.get(name)
        if loss is not None and (self._series is None or name <= self._series):
            if name != self._series:  # of several optimizers the first
                self._series, self.curve = name, Curve()
            self.loss = loss
            self.curve.add(reading.step, loss)
        self._display._read(self)

    @property
    def leader_tells(self) -> Leader | None:
        """Whether the first rank will tell a finding of this one; the watch gives it."""
        return self.voice.leader_tells

    @leader_tells.setter
    def leader_tells(self, leader_tells: Leader | None) -> None:
        self.voice.leader_tells = leader_tells

    def write_finding(self, finding: Finding) -> None:
        if not self.voice.tells(finding):
            return
        kind = kind_of(finding)
        before = self._severities.get(kind)
        self._severities[kind] = finding.severity
        self._display._tell(self, finding, before)

    def update_finding(self, finding: Finding) -> None:
        self.write_finding(finding)

    def hear_finding(self, finding: Finding) -> None:
        """Takes what another rank has found, which it leaves to the first one to tell."""
        self.write_finding(finding)

    def close(self, report: dict[str, Any]) -> None:
        if self.steps:
            self._display._read(self, last=True)


class Foot:
    """The last row of a terminal, kept out of what scrolls. Each draw is one write, past all buffers."""

    def __init__(self, fd: int, encoding: str) -> None:
        self.fd, self.encoding = fd, encoding
        self._kept: os.terminal_size | None = None
        """The terminal's size when the row was last drawn; None while the script has the whole of it."""

    @classmethod
    def of(cls, stream: TextIO, encoding: str) -> Foot | None:
        """None where the terminal is not known to obey."""
        if os.name == "nt" or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
            return None
        try:
            fd = stream.fileno()
            return cls(fd, encoding) if os.get_terminal_size(fd).lines >= _FEWEST_ROWS else None
        except (OSError, ValueError):
            return None

    def size(self) -> os.terminal_size | None:
        """The terminal's size now; None if it is gone or too small, or this is a job in the background."""
        try:
            size = os.get_terminal_size(self.fd)
        except OSError:
            return None
        if size.lines < _FEWEST_ROWS:
            self.give_back()
            return None
        return size if _in_foreground(self.fd) else None

    def draw(self, line: str, size: os.terminal_size) -> None:
        prepare = ""
        if self._kept is None:
            prepare = _ROOM_BELOW
        elif self._kept != size:  # what is below the cursor is ours, and no longer where it was
            prepare = _SAVE + _ALL_SCROLLS + _RESTORE + _CLEAR_BELOW + _ROOM_BELOW
        self._kept = size
        region, last = f"\x1b[1;{size.lines - 1}r", f"\x1b[{size.lines};1H\x1b[0m\x1b[2K"
        no_wrap, wrap = "\x1b[?7l", "\x1b[?7h"
        with suppress(OSError):  # the terminal is gone, or takes nothing just now
            self._send(f"{prepare}{_SAVE}{region}{last}{no_wrap}{line}{wrap}{_RESTORE}")
        self._kept = size  # also if a signal handler gave the row back in between

    def give_back(self) -> None:
        """Clears the row and lets everything scroll again; the cursor stays."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        with suppress(OSError):
            if os.get_terminal_size(self.fd) == kept:
                self._send(f"{_SAVE}{_ALL_SCROLLS}\x1b[{kept.lines};1H\x1b[0m\x1b[2K{_RESTORE}")
            else:
                self._send(_SAVE + _ALL_SCROLLS + _RESTORE + _CLEAR_BELOW)

    def _send(self, text: str) -> None:
        _send(self.fd, text.encode(self.encoding, "replace"))


class Pace:
    """Steps per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, steps: int) -> None:
        self._seen.append((now, steps))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _PACE_OVER:
            self._seen.popleft()

    def text(self) -> str:
        """`, 85/s`, or `, 3.1 s each`; empty while it is not known."""
        if len(self._seen) < 2:
            return ""
        (start, before), (end, after) = self._seen[0], self._seen[-1]
        if end <= start or after <= before:
            return ""
        pace = (after - before) / (end - start)
        if pace < 1:
            return f", {_short(1 / pace)} s each"
        return f", {_short(pace)}/s"


class _Piece:
    """A part of the live line: texts, each with its style."""

    def __init__(self, *parts: tuple[str, str]) -> None:
        self.parts = list(parts)

    @property
    def length(self) -> int:
        return sum(len(text) for text, _ in self.parts)

    def paint(self, colour: bool) -> str:
        return "".join(f"\x1b[{style}m{text}\x1b[0m" if style and colour else text for text, style in self.parts)


def _length(pieces: Mapping[str, _Piece]) -> int:
    return sum(piece.length for piece in pieces.values()) + 2 * (len(pieces) - 1)


def _joined(counts: list[tuple[str, Severity]]) -> list[tuple[str, str]]:
    styles = {Severity.CRITICAL: _RED, Severity.WARNING: _YELLOW, Severity.INFO: _CYAN}
    parts: list[tuple[str, str]] = []
    for text, severity in counts:
        parts += [(", ", ""), (text, styles[severity])]
    return parts[1:]


def _coloured(curve: str) -> list[tuple[str, str]]:
    parts = re.split(f"({BROKEN}+)", curve)
    return [(part, _RED if part[0] == BROKEN else _CYAN) for part in parts if part]


def _in_order(found: Mapping[Severity, int]) -> list[tuple[Severity, int]]:
    order = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
    return [(severity, found[severity]) for severity in order if found.get(severity)]


def _many_found(number: int, severity: Severity) -> str:
    if severity is Severity.CRITICAL:
        return f"{number} critical"
    return _many(number, "warning" if severity is Severity.WARNING else "remark")


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _figure(value: float) -> str:
    """Four digits, always as wide, so that the line does not jump."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Inf" if value > 0 else "-Inf")
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:#.4g}".rstrip(".")
    return f"{value:.3e}"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def _in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not the terminal that controls this process
        return True


def _send(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
