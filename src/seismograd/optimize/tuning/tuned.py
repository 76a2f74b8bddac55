"""What tuning has to say: a table, a plot, the lines to paste, and all of it as plain values."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seismograd.amounts import duration, size
from seismograd.quiet_rich import Console, ConsoleOptions, RenderResult, Text
from seismograd.records import strict

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from seismograd.optimize.tuning.lanes import Interval
    from seismograd.optimize.tuning.parity import Parity

RECOMMENDED, FASTER, SAME, SLOWER = "recommended", "faster", "no faster", "slower"
CHANGES, FAILED, NOT_TRIED = "changes learning", "failed", "not tried"
UNSURE, UNCHECKED = "too few measurements", "parity not checked"

_COLUMNS = (
    ("variant", False),
    ("speed-up", True),
    ("95 %", True),
    ("step", True),
    ("memory", True),
    ("compile", True),
    ("pays off", True),
    ("parity", False),
    ("verdict", False),
)
"""Each with whether it holds numbers, which stand to the right and are never broken."""

_DISPENSABLE = ("step", "compile", "pays off")
_NARROW = 100
"""Columns of the terminal: with fewer, some of the table's are left out."""

_NOISY = 1.2
"""How many times as fast as itself the baseline may seem, in its middle or from end to end of its interval."""

_STYLES = {RECOMMENDED: "bold green", FASTER: "green", CHANGES: "red", FAILED: "red", SLOWER: "dim", NOT_TRIED: "dim"}


@dataclass
class Outcome:
    """What one variant brought, or why nothing is known of it."""

    name: str
    verdict: str = NOT_TRIED
    knobs: tuple[str, ...] = ()
    speedup: Interval | None = None
    execution_time: float | None = None
    """Seconds of a warm step."""
    memory: int | None = None
    memory_savings: float | None = None
    """The part of the baseline's memory that it does without; below zero it takes more."""
    amp_enabled: bool = False
    compile_time: float | None = None
    pays_off_after: int | None = None
    """Steps after which compiling has paid for itself."""
    parity: Parity | None = None
    error: str | None = None
    note: str | None = None
    code: str = ""

    @property
    def speedup_factor(self) -> float | None:
        return None if self.speedup is None else self.speedup.middle

    def to_dict(self) -> dict[str, Any]:
        interval = None if self.speedup is None else [self.speedup.low, self.speedup.high]
        return {
            "name": self.name,
            "verdict": self.verdict,
            "knobs": list(self.knobs),
            "speedup_factor": self.speedup_factor,
            "speedup_interval": interval,
            "pairs": 0 if self.speedup is None else self.speedup.pairs,
            "execution_time": self.execution_time,
            "memory": self.memory,
            "memory_savings": self.memory_savings,
            "amp_enabled": self.amp_enabled,
            "compile_time": self.compile_time,
            "pays_off_after": self.pays_off_after,
            "loss_parity": None if self.parity is None else self.parity.ok,
            "parity": None if self.parity is None else self.parity.to_dict(),
            "error": self.error,
            "note": self.note,
            "code": self.code,
        }


@dataclass
class Tuning:
    """What was tried, how fast it is, whether it still learns the same, and what to use."""

    outcomes: list[Outcome] = field(default_factory=list)
    """The baseline first, then in the order of the trials."""
    recommended: Outcome | None = None
    noise: Interval | None = None
    """The baseline against a copy of itself."""
    memory_measure: str = ""
    reference: str = ""
    """What outputs, gradients and losses are compared with."""
    curves: dict[str, list[float]] = field(default_factory=dict)
    """Short loss curves: of the reference, and of the baseline with each seed."""
    seconds: float = 0.0
    limit: float = 0.0
    stopped: str | None = None
    device: str = "cpu"
    threads: int = 1

    @property
    def baseline(self) -> Outcome:
        return self.outcomes[0]

    @property
    def reliable(self) -> bool:
        """Whether the baseline, measured against itself, was about as fast as itself."""
        noise = self.noise
        if noise is None or not noise.sure:
            return False
        return max(noise.high / noise.low, noise.middle, 1 / noise.middle) <= _NOISY

    @property
    def code(self) -> str:
        """The lines to paste."""
        if self.recommended is None:
            return f"# {self._verdict()}"
        return f"# {self._won(self.recommended)}\n{self.recommended.code}"

    def outcome(self, name: str) -> Outcome:
        """That of the variant of this name."""
        for one in self.outcomes:
            if one.name == name:
                return one
        raise KeyError(f"no variant is called {name!r}: there are {', '.join(one.name for one in self.outcomes)}")

    def to_dict(self) -> dict[str, Any]:
        """Everything as strict JSON."""
        told: dict[str, Any] = strict(
            {
                "recommended": None if self.recommended is None else self.recommended.name,
                "code": self.code,
                "variants": [one.to_dict() for one in self.outcomes],
                "noise": None if self.noise is None else [self.noise.low, self.noise.high],
                "reliable": self.reliable,
                "memory_measure": self.memory_measure,
                "reference": self.reference,
                "curves": self.curves,
                "seconds": round(self.seconds, 3),
                "limit": self.limit,
                "stopped": self.stopped,
                "device": self.device,
                "threads": self.threads,
            }
        )
        return told

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """The speed-ups with their intervals, and the loss curves; written to a page of its own if a path is given."""
        from seismograd.optimize.tuning.picture import figure_of

        figure = figure_of(self)
        if path is not None:
            figure.write_html(path, include_plotlyjs=True)
        return figure

    # -- as it is printed ----------------------------------------------------------------------------------------

    def __str__(self) -> str:
        from io import StringIO

        out = StringIO()
        Console(file=out, width=120, force_terminal=False).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        yield Text(self._head())
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        shown = [one for one in self.outcomes if one.verdict != NOT_TRIED]
        rows = [_row(one) for one in shown]
        narrow = options.max_width < _NARROW
        kept = [
            at
            for at, (name, _) in enumerate(_COLUMNS)
            if any(row[at] for row in rows) and not (narrow and name in _DISPENSABLE)
        ]
        for at in kept:
            name, right = _COLUMNS[at]
            words = [word for row in rows for word in row[at].split()] if at == 0 else []
            least = max(map(len, words), default=None)  # a name is broken between its words only
            table.add_column(name, justify="right" if right else "left", no_wrap=right, min_width=least)
        for one, row in zip(shown, rows, strict=True):
            table.add_row(*(Text(row[at]) for at in kept), style=_STYLES.get(one.verdict, ""))
        yield table
        for one in shown:
            if one.error:
                yield Text(f"  {one.name}: {one.error}", style="red")
            elif one.note:
                yield Text(f"  {one.name}: {one.note}")
        if self.memory_measure:
            yield Text(f"  memory: {self.memory_measure}; parity: against {self.reference}", style="dim")
        yield from self._left_out()
        yield Text("")
        if doubt := self._doubt():
            yield Text(doubt, style="yellow")
        yield Text(self._verdict(), style="bold")
        if self.recommended is not None:
            for line in self.recommended.code.splitlines():
                yield Text(f"    {line}")
        lean = self._leanest()
        if lean:
            yield Text(lean)

    def _head(self) -> str:
        tried = sum(one.verdict != NOT_TRIED for one in self.outcomes[1:])
        stopped = f", {self.stopped}" if self.stopped else ""
        told = f"tune: {tried} variants in {duration(self.seconds)} on {self.device}{stopped}"
        if self.noise is not None and self.noise.sure:
            told += f"; the baseline against itself: {self.noise.low:.2f}-{self.noise.high:.2f}"
        return told

    def _doubt(self) -> str:
        """What is to be said of the figures where they cannot be relied on."""
        noise = self.noise
        if noise is None or self.reliable:
            return ""
        what = f"seemed {noise.low:.2f} to {noise.high:.2f} times as fast as itself"
        if not noise.sure:
            what = f"could be measured against itself only {noise.pairs} time{'s' * (noise.pairs != 1)}"
        return (
            f"These figures are not reliable: the baseline {what}. Tune again when the machine has nothing else to do,"
            " with fewer threads than it has free processors, or give it more seconds."
        )

    def _left_out(self) -> list[Text]:
        reasons: dict[str, list[str]] = {}
        for one in self.outcomes:
            if one.verdict == NOT_TRIED:
                reasons.setdefault(one.note or "", []).append(one.name)
        return [Text(f"  not tried: {', '.join(names)} ({why})", style="dim") for why, names in reasons.items()]

    def _verdict(self) -> str:
        if self.recommended is None:
            first = max(
                (one for one in self.outcomes if one.verdict == FASTER),
                key=lambda one: one.speedup_factor or 0.0,
                default=None,
            )
            if self.stopped and first is not None:
                return f"Nothing is recommended yet: {first.name} was faster, but has not been measured once more."
            known = [one for one in self.outcomes[1:] if one.verdict not in (NOT_TRIED, UNSURE)]
            if not known and len(self.outcomes) > 1:
                why = self.stopped or "the time was up"
                return f"Nothing is known of any variant: {why} before one was measured. Give more seconds."
            return "Nothing is faster beyond the noise and learns the same: keep the loop as it is."
        return f"Use {self.recommended.name}: {self._won(self.recommended)}."

    def _won(self, one: Outcome) -> str:
        assert one.speedup is not None
        told = f"{one.speedup.middle:.2f}x as fast (95 %: {one.speedup.low:.2f}-{one.speedup.high:.2f})"
        if one.parity is not None:
            told += f", {one.parity.verdict} against {self.reference}"
        if one.pays_off_after:
            told += f", pays off after {_steps(one.pays_off_after)}"
        return told

    def _leanest(self) -> str:
        fair = [one for one in self.outcomes[1:] if one.parity is not None and one.parity.ok and one.memory_savings]
        best = max(fair, key=lambda one: one.memory_savings or 0.0, default=None)
        if best is None or best is self.recommended or (best.memory_savings or 0.0) < 0.1 or best.speedup is None:
            return ""
        return (
            f"If memory is short: {best.name} takes {best.memory_savings:.0%} less, at {best.speedup.middle:.2f}x the"
            " speed."
        )


def _row(one: Outcome) -> list[str]:
    speed = one.speedup
    memory = "" if one.memory is None else size(one.memory)
    if one.memory_savings is not None and abs(one.memory_savings) >= 0.005:
        memory += f" {-one.memory_savings:+.0%}"
    return [
        one.name,
        "" if speed is None else f"{speed.middle:.2f}x",
        "" if speed is None or not speed.sure else f"{speed.low:.2f}-{speed.high:.2f}",
        "" if one.execution_time is None or not math.isfinite(one.execution_time) else duration(one.execution_time),
        memory,
        "" if one.compile_time is None else duration(one.compile_time),
        "" if one.pays_off_after is None else _steps(one.pays_off_after),
        "" if one.parity is None else one.parity.verdict,
        one.verdict,
    ]


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"
