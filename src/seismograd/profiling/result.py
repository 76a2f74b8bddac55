"""What a profile showed, as plain values: tables of ops, modules and lines, and the verdict. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seismograd.amounts import size
from seismograd.records import strict


@dataclass(frozen=True, slots=True)
class OpCost:
    """All calls of one op. Its own time is without that of the ops that it calls; shares are of the whole time."""

    name: str
    calls: int
    seconds: float
    share: float
    device_seconds: float = 0.0
    device_share: float = 0.0
    """Of the time in which the device was at work."""
    allocated: int = 0
    """Bytes."""
    flops: int = 0
    """0 where they are not known."""
    shapes: str = ""
    """Of the inputs of its dearest call."""
    line: str = ""
    """The line of the user's that most of its time was called from."""


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """All calls of one module. Its own time is without that of the modules in it."""

    name: str
    kind: str
    calls: int
    forward: float
    backward: float
    own: float
    """Seconds, forward and backward together."""
    share: float
    """Of its own time in the whole; on a device in the device's time."""
    device_seconds: float = 0.0
    op: str = ""
    """The op that takes most of its own time."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """A line of the user's, with what it called but for other lines of the user's."""

    file: str
    line: int
    code: str
    calls: int
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """What a profile showed. Seconds are of the time that was recorded."""

    seconds: float = 0.0
    steps: int = 0
    """Of the optimizer, while it was recorded."""
    events: int = 0
    device: str | None = None
    """The accelerator, if one was at work: `cuda`."""
    device_busy: float | None = None
    """The share of the time in which it was."""
    phases: dict[str, float] = field(default_factory=dict)
    """Shares of `data`, `forward`, `backward`, `optimizer` and the `rest`."""
    ops: Sequence[OpCost] = ()
    modules: Sequence[ModuleCost] = ()
    lines: Sequence[LineCost] = ()
    verdict: Sequence[str] = ()
    """Sentences, the weightiest first."""
    notes: Sequence[str] = ()
    """What the reader should know about how it was recorded."""
    trace: str | None = None
    """The file of the trace."""

    def to_dict(self) -> dict[str, Any]:
        """The result as strict JSON."""
        told: dict[str, Any] = strict(asdict(self))
        return told

    def __str__(self) -> str:
        parts = [self._head(), *(f"  {sentence}" for sentence in (*self.verdict, *self.notes))]
        if self.ops:
            parts += ["", *self._ops()]
        if self.modules:
            parts += ["", *self._modules()]
        if self.lines:
            parts += ["", *self._lines()]
        return "\n".join(parts)

    def _head(self) -> str:
        steps = f", {self.steps} step{'s' if self.steps != 1 else ''}" if self.steps else ""
        where = f", trace in {self.trace}" if self.trace else ""
        return f"Profile of {seconds(self.seconds)}{steps}{where}"

    def _ops(self) -> list[str]:
        device = self.device is not None
        titles = ["op", "calls", "own time", "share"]
        titles += [self.device or "", "share"] if device else []
        rows = []
        for op in self.ops:
            row = [op.name, f"{op.calls:,}", seconds(op.seconds), percent(op.share)]
            row += [seconds(op.device_seconds), percent(op.device_share)] if device else []
            rows.append([*row, size(op.allocated) if op.allocated else "", _flops(op.flops), op.shapes[:48]])
        return table([*titles, "allocated", "FLOPs", "largest input"], rows, right=range(1, len(titles) + 2))

    def _modules(self) -> list[str]:
        rows = [
            [
                title(each),
                f"{each.calls:,}",
                seconds(each.forward),
                seconds(each.backward),
                seconds(each.device_seconds if self.device else each.own),
                percent(each.share),
                each.op,
            ]
            for each in self.modules
        ]
        own = f"own {self.device}" if self.device else "own time"
        return table(["module", "calls", "forward", "backward", own, "share", "dearest op"], rows, right=range(1, 6))

    def _lines(self) -> list[str]:
        rows = [
            [f"{each.file}:{each.line}", f"{each.calls:,}", seconds(each.seconds), percent(each.share), each.code[:60]]
            for each in self.lines
        ]
        return table(["line", "calls", "time", "share", "code"], rows, right=range(1, 4))


def title(module: ModuleCost) -> str:
    """Its name and its class; the outermost one is named after it."""
    return module.name if module.name.startswith(module.kind) else f"{module.name} ({module.kind})"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Lines of columns that stand below one another; empty columns are left out."""
    kept = [at for at in range(len(titles)) if any(row[at] for row in rows)]
    widths = {at: max(len(row[at]) for row in (titles, *rows)) for at in kept}
    return [
        "  ".join(row[at].rjust(widths[at]) if at in right else row[at].ljust(widths[at]) for at in kept).rstrip()
        for row in (titles, *rows)
    ]


def seconds(value: float) -> str:
    """`1.24 s`, `3.4 ms`, `12 us`."""
    for unit, whole in (("s", 1.0), ("ms", 1e-3)):
        if value >= whole:
            return f"{value / whole:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else "<1 %"


def _flops(value: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.3g} {unit}".rstrip() if value else ""
        value /= 1000
    return f"{value:.3g} P"
