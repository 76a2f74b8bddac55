"""Stored runs as a terminal shows them: all in a table, or one with its curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from seismograd import folders
from seismograd.amounts import duration, number, size
from seismograd.cli.stores import seconds_of, state_of
from seismograd.records import Finding, Severity
from seismograd.reports.plots import Line, Plot
from seismograd.reports.rank_table import rank_lines
from seismograd.reports.ranks import merged
from seismograd.reports.report import finding_of
from seismograd.reports.terminal import render_finding
from seismograd.reports.words import SHORT, many
from seismograd.sinks.curve import ASCII, BLOCKS, Curve, sparkline

if TYPE_CHECKING:
    from rich.console import Console

    from seismograd.store import Run, Series

_STYLES = {
    "healthy": "green",
    "warning": "yellow",
    "critical": "bold red",
    "crashed": "bold red",
    "live": "bold cyan",
    "lost": "red",
    "ended": "",
}
_CURVE = 24
_POINTS = 200
"""Of a curve in a plot, at most."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run as the list of runs has it."""

    run: Run
    findings: list[Finding]
    curve: list[float]
    loss: float | None

    @classmethod
    def of(cls, run: Run) -> Row:
        name = loss_of(run)
        series = None if name is None else run.series(name, points=_POINTS).get(name)
        curve = [] if series is None else _curve(series)
        return cls(run, merged(run.findings()), curve, None if series is None else float(series.last[-1]))

    def told(self) -> dict[str, Any]:
        return {
            **about_run(self.run),
            "loss": self.loss,
            "curve": self.curve,
            "findings": counted(self.findings),
            "first_finding": self.findings[0].id if self.findings else None,
        }


def about_run(run: Run) -> dict[str, Any]:
    """A run as plain values."""
    return {
        "id": run.id,
        "name": run.name,
        "state": state_of(run),
        "status": run.status,
        "level": run.level,
        "steps": run.steps,
        "ranks": run.ranks,
        "attempts": attempts_of(run),
        "started": run.started.isoformat(timespec="milliseconds"),
        "ended": None if run.ended is None else run.ended.isoformat(timespec="milliseconds"),
        "seconds": round(seconds_of(run), 3),
        "bytes": run.bytes,
    }


def attempts_of(run: Run) -> int:
    """How often it was begun: ranks that are started again go on with the same run."""
    attempts = getattr(run, "attempts", None)
    return attempts if isinstance(attempts, int) else max(1, len(attempts or ()))


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    counts = {severity.value: 0 for severity in reversed(Severity)}
    for finding in findings:
        counts[finding.severity.value] += 1
    return counts


def loss_of(run: Run) -> str | None:
    """The name of the run's first loss: of a GAN it is `loss/0`."""
    names = run.names(min(run.ranks, default=0))
    return next((name for name in names if name == "loss" or name.startswith("loss/")), None)


def _curve(series: Series) -> list[float]:
    curve = Curve()
    for step, mean, bad in zip(series.steps.tolist(), series.mean.tolist(), series.bad.tolist(), strict=True):
        curve.add(step, math.nan if bad else mean)
    return curve.points(_CURVE)


# -- all runs ----------------------------------------------------------------------------------------------------------


def table_of(rows: Sequence[Row], console: Console) -> Table:
    """The runs, a line for each; what does not fit the width is left out, the least important first."""
    levels = ASCII if console.options.ascii_only else BLOCKS
    cells = [_cells(row, levels) for row in rows]
    wanted = [name for name in _COLUMNS if name != "ranks" or any(each[name].plain for each in cells)]
    for column in _DROPPED:
        if _width(cells, wanted) <= console.width:
            break
        if column in wanted:
            wanted.remove(column)
    widths = _widths(cells, wanted, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False, header_style="bold")
    for column in wanted:
        right = column in ("steps", "ranks", "took", "loss")
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=widths[column],
        )
    for each in cells:
        table.add_row(*(each[column] for column in wanted))
    return table


_COLUMNS = ("run", "name", "state", "status", "steps", "ranks", "started", "took", "loss", "curve", "findings")
_DROPPED = ("took", "started", "state", "curve", "ranks", "steps", "name", "loss", "findings")
"""In this order, where there is no room."""


_SHORTENED = {"name": 12, "findings": 21}
"""Columns that may be cut, and how far: most findings have a shorter name."""
_LONGEST_NAME = 24


def _longest(cells: Sequence[Mapping[str, Text]], column: str) -> int:
    longest = max([len(column), *(each[column].cell_len for each in cells)])
    return min(longest, _LONGEST_NAME) if column == "name" else longest


def _width(cells: Sequence[Mapping[str, Text]], wanted: Sequence[str]) -> int:
    """How wide the table gets, with the names and findings cut to what still says something."""
    total = 0
    for column in wanted:
        longest = _longest(cells, column)
        total += min(longest, _SHORTENED.get(column, longest))
    return total + 2 * (len(wanted) - 1)


def _widths(cells: Sequence[Mapping[str, Text]], wanted: Sequence[str], width: int) -> dict[str, int]:
    """How wide each column is: what is left after the others goes to the findings, then to the names."""
    widths = {column: _longest(cells, column) for column in wanted}
    over = sum(widths.values()) + 2 * (len(wanted) - 1) - width
    for column, shortest in _SHORTENED.items():
        if over > 0 and column in widths:
            less = min(over, max(0, widths[column] - shortest))
            widths[column] -= less
            over -= less
    return widths


def _cells(row: Row, levels: str) -> dict[str, Text]:
    run, state = row.run, state_of(row.run)
    texts = {
        "run": Text(plain(run.id)),
        "name": Text(plain(run.name)),
        "state": Text(state, _STYLES[state]),
        "status": Text(run.status, _STYLES.get(run.status, "")),
        "steps": Text(f"{run.steps:,}"),
        "ranks": Text(_ranks(run)),
        "started": Text(f"{run.started.astimezone():%Y-%m-%d %H:%M}"),
        "took": Text(duration(seconds_of(run))),
        "loss": Text("" if row.loss is None else number(row.loss)),
        "curve": Text(sparkline(row.curve, levels), "cyan"),
        "findings": Text(_named(row.findings)),
    }
    return texts


def _ranks(run: Run) -> str:
    """`4`, or `4 x2` for those that were begun twice; nothing for a run of one."""
    attempts = attempts_of(run)
    again = f" x{attempts:,}" if attempts > 1 else ""
    return f"{len(run.ranks):,}{again}" if len(run.ranks) > 1 or again else ""


def _named(findings: Sequence[Finding]) -> str:
    """The first, and how many more."""
    if not findings:
        return "-"
    return findings[0].id + (f" +{len(findings) - 1}" if len(findings) > 1 else "")


def plain(text: str) -> str:
    """A name in one line, without what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


# -- one run -----------------------------------------------------------------------------------------------------------


def print_run(run: Run, console: Console, there: str = "") -> None:
    """A run: how it is, its curves, where its time went, what was found, where it ran.

    `there` is what a command needs to come to its store.
    """
    report, state = run.report(), state_of(run)
    findings = [finding_of(data) for data in report.get("findings") or ()] if len(run.ranks) > 1 else run.findings()
    title = Text.assemble((plain(run.id), "bold"), "  ", plain(run.name), "  ", (state, _STYLES[state]), "  ")
    title.append(run.status, _STYLES.get(run.status, ""))
    console.print(title)
    console.print(_facts(run))
    if lines := rank_lines(report.get("ranks") or (), console.width):
        console.print()
        for line in lines:
            console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    for plot in _plots(run):
        console.print()
        console.print(plot)
    for lines in (
        _phases(report.get("performance") or {}, seconds_of(run) < SHORT),
        _memory(run),
        _environment(run),
        _captures(run),
    ):
        if lines:
            console.print()
            for line in lines:
                console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    console.print()
    if not findings:
        console.print(Text("nothing was found", "green"))
    for finding in findings:
        console.print(render_finding(finding, brief=True, ranks=len(run.ranks)))
    if findings:
        console.print()
        console.print(Text(f"in full: seismograd diagnose {plain(run.id)}{there}", "dim"))


def _facts(run: Run) -> Text:
    parts = [many(run.steps, "step"), f"level {run.level}" if run.level else "", duration(seconds_of(run))]
    if len(run.ranks) > 1:
        parts.append(f"{len(run.ranks):,} ranks")
    if (attempts := attempts_of(run)) > 1:
        parts.append(f"{attempts:,} attempts")
    parts += [f"started {run.started.astimezone():%Y-%m-%d %H:%M:%S}"]
    parts += [f"{size(run.bytes)} in the store"] if run.bytes else []
    return Text(", ".join(part for part in parts if part))


def _plots(run: Run) -> Iterable[Plot]:
    """The losses (with validation as points), the gradient's norm, and the learning rate."""
    names = run.names(min(run.ranks, default=0))
    losses = [name for name in names if name == "loss" or name.startswith("loss/")]
    norms = [name for name in names if name == "grad/norm" or name.startswith("grad/norm/")]
    rates = [name for name in names if name.startswith("lr/")]
    wanted = [*losses[:4], *norms[:4], *rates[:1]]
    found = run.series([*wanted, "val_loss"], points=_POINTS, rank=min(run.ranks, default=0))
    validation = found.pop("val_loss", None)
    for name in wanted:
        if name not in found:
            continue
        series = found[name]
        points = None if validation is None or name != losses[0] else _line(validation)
        style = "cyan" if name in losses else "blue" if name in norms else "green"
        title = _title(run, series)
        if points is not None and validation is not None:
            title += f"   o {_title(run, validation)}"
        yield Plot(_line(series), points, title, style, height=3 if name in rates else 7 if name in losses else 5)


def _line(series: Series) -> Line:
    low = [math.nan if bad else float(value) for value, bad in zip(series.low, series.bad, strict=True)]
    high = [math.nan if bad else float(value) for value, bad in zip(series.high, series.bad, strict=True)]
    steps = series.first.tolist()
    return Line(series.name, [*steps[:-1], int(series.steps[-1])], low, high)


def _title(run: Run, series: Series) -> str:
    at_first = run.series(series.name, stop=int(series.first[0]), rank=min(run.ranks, default=0)).get(series.name)
    first, last = float((at_first or series).last[0]), float(series.last[-1])  # a point may stand for several steps
    span = dict.fromkeys((number(first), number(last)))  # once, if they are the same: NaN is not equal to NaN
    told = f"{series.name}  {' to '.join(span)}"
    bad = int(series.bad.sum())
    return told + (f", {bad:,} not finite" if bad else "")


def _phases(performance: Mapping[str, Any], short: bool) -> list[Text]:
    """Where the time of a step went, as bars."""
    seconds = {name: float(value) for name, value in (performance.get("seconds") or {}).items() if value}
    whole = sum(seconds.values())
    if not whole:
        return []
    pace = performance.get("steps_per_second")
    lines = [
        Text.assemble(("time of a step", "bold"), f"  {duration(whole)}" + (f", {pace:.3g} steps/s" if pace else ""))
    ]
    for name, value in sorted(seconds.items(), key=lambda each: -each[1]):
        if value >= 0.005 * whole:
            bar = "#" * max(1, round(30 * value / whole))
            lines.append(Text.assemble(f"  {name:12} {value / whole:4.0%} {duration(value):>8}  ", (bar, "blue")))
    if short and seconds.get("watch", 0.0) > 0.05 * whole:
        lines.append(Text("  a short run: the watch's first two seconds are not counted against its budget"))
    return lines


def _memory(run: Run) -> list[Text]:
    """The process's memory and the accelerator's: at first, at last, at most."""
    rank = min(run.ranks, default=0)
    names = [name for name in run.names(rank) if name.startswith("memory/")]
    lines = []
    for name, series in sorted(
        run.series(names, points=_POINTS, rank=rank).items(), key=lambda each: "after" in each[0]
    ):
        told = f"{size(series.last[0])} to {size(series.last[-1])}, at most {size(float(np.nanmax(series.high)))}"
        lines.append(Text(f"  {name.removeprefix('memory/').replace('_', ' '):14} {told}"))
    return [Text("memory", "bold"), *lines] if lines else []


_SHOWN = ("command", "cwd", "host", "platform", "devices", "python", "torch", "cuda", "seismograd", "parameters")


def _environment(run: Run) -> list[Text]:
    lines = []
    for name in _SHOWN:
        value = run.about.get(name)
        if value not in (None, [], ""):
            told = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(Text(f"  {name:12} {f'{told:,}' if isinstance(told, int) else plain(str(told))}"))
    return [Text("environment", "bold"), *lines] if lines else []


def _captures(run: Run) -> list[Text]:
    kept = run.captures()
    if not kept:
        return []
    lines = [Text(f"  step {each.step:,}  {each.finding}") for each in kept[:10]]
    name = plain(folders.named(PurePath(folders.shown(kept[0].path.parent))))
    return [
        Text.assemble(("saved steps", "bold"), f"  seismograd replay {name} --model FILE.py:CLASS"),
        *lines,
    ]
