"""`seismograd runs | show | diagnose | html | diff`: what the store has, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seismograd.cli.completing import runs_known
from seismograd.cli.mistakes import known_ids, stop, writable
from seismograd.cli.running import Grave
from seismograd.cli.stores import AsJson, Ignored, Where, Which, opened, say_json, state_of, terminal, waiting
from seismograd.records import Finding, Severity

if TYPE_CHECKING:
    from rich.console import Console

    from seismograd.store import Run, Store
    from seismograd.store.comparing import Comparison
    from seismograd.store.judging import Verdict

FAILED = 3
"""The exit code where something is as severe as `--fail-on` says."""
PARTED = 1
"""The exit code of two runs that are not the same."""


class Kind(str, Enum):
    """What runs can be listed by."""

    HEALTHY = "healthy"
    WARNING = "warning"
    CRITICAL = "critical"
    CRASHED = "crashed"
    LIVE = "live"
    ENDED = "ended"
    LOST = "lost"


def runs(
    store: Where = None,
    limit: Annotated[int, typer.Option(min=1, help="So many, the newest first.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    status: Annotated[
        list[Kind] | None, typer.Option(help="Only those that are so; again for more.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the recorded runs, newest first, with their state, verdict, last loss and its curve."""
    from seismograd.cli.overview import Row, table_of

    with opened(store) as found:
        chosen, total = _chosen(found, None if every else limit, {kind.value for kind in status or ()})
        rows = [Row.of(run) for run in chosen]
        if as_json:
            say_json({"store": found.shown, "total": total, "runs": [row.told() for row in rows]})
            return
        if not total:
            typer.echo(f"seismograd: there is no run in {found.shown} yet. Begin with: seismograd run train.py")
            return
        console = terminal()
        if rows:
            console.print(table_of(rows, console))
        if len(rows) < total:
            typer.echo(f"{len(rows)} of {total} runs in {found.shown}" + ("" if status else ", --all lists the rest"))


def _chosen(store: Store, limit: int | None, wanted: set[str]) -> tuple[list[Run], int]:
    """The newest runs that are as wanted, and how many there are at all."""
    total = store.count()
    if not wanted:
        return store.runs(limit), total
    found: list[Run] = []
    for offset in range(0, total, 200):
        found += [run for run in store.runs(200, offset) if {run.status, state_of(run)} & wanted]
        if limit is not None and len(found) >= limit:
            return found[:limit], total
    return found, total


def show(run: Which = "last", store: Where = None, as_json: AsJson = False) -> None:
    """Show a run: loss, gradient norm and learning rate as plots, time, memory, findings in brief, environment."""
    from seismograd.cli.overview import about_run, print_run
    from seismograd.store.store import option

    with opened(store) as found:
        one = found.run(run)
        if not as_json:
            print_run(one, terminal(), option(found.url))
            return
        rank = min(one.ranks, default=0)
        report = one.report()
        series = one.series(one.names(rank), points=100, rank=rank)
        say_json(
            {
                "run": {**about_run(one), "about": one.about, "budget": one.budget},
                "findings": [finding.to_dict() for finding in one.findings()],
                "series": {name: _columns(each) for name, each in series.items()},
                "tables": one.tables(rank),
                "whole": one.whole,
                "ranks": report.get("ranks") or [],
                "performance": report.get("performance") or {},
                "summary": report.get("summary") or {},
                "captures": [
                    {"path": str(each.path), "step": each.step, "finding": each.finding} for each in one.captures()
                ],
            }
        )


def _columns(series: Any) -> dict[str, Any]:
    return {name: getattr(series, name) for name in ("first", "steps", "low", "high", "mean", "last", "count", "bad")}


# -- the verdict -------------------------------------------------------------------------------------------------------


def diagnose(
    run: Which = "last",
    store: Where = None,
    again: Annotated[
        bool, typer.Option("--again", help="Judge the readings anew, with the limits that pyproject.toml has now.")
    ] = False,
    ignore: Ignored = None,
    fail_on: Annotated[
        Grave | None,
        typer.Option(help="Exit with 3 if something as severe was found.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a run's findings in full: place, evidence, advice. --again judges it anew."""
    from seismograd.judge import status_of
    from seismograd.reports.ranks import merged

    ignored = set(known_ids(ignore or []))
    with opened(store) as found:
        one = found.run(run)
        report, verdict = one.report(), None
        if again:
            verdict = _judged(one, ignored)
            findings = list(verdict.findings)
        else:
            findings = _without(one.findings(), ignored)
    status = "crashed" if one.status == "crashed" else status_of(findings)
    findings = merged(findings)
    report["findings"] = [finding.to_dict() for finding in findings]
    report["run"] = {**report["run"], "status": status}
    if as_json:
        say_json({**report, **({} if verdict is None else {"again": _again(verdict)})})
    else:
        print_verdict(report, findings, verdict, terminal())
    worst = max((finding.severity.weight for finding in findings), default=-1)
    if fail_on is not None and worst >= Severity(fail_on.value).weight:
        raise typer.Exit(FAILED)


def _judged(run: Run, ignored: set[str]) -> Verdict:
    from seismograd.config import find_config

    try:
        with waiting(f"judging {run.steps:,} steps"):
            return run.check(ignore=ignored, config=find_config())
    except ValueError as error:  # a limit in the user's pyproject.toml, or what is wrong with the store
        stop(str(error))


def _without(findings: Sequence[Finding], ignored: set[str]) -> list[Finding]:
    """The findings but for those, which then explain nothing either."""
    left = []
    for finding in findings:
        if finding.id not in ignored:
            evidence = dict(finding.evidence)
            if evidence.get("because") in ignored:
                del evidence["because"]
            left.append(replace(finding, evidence=evidence))
    return left


def _again(verdict: Verdict) -> dict[str, Any]:
    told = verdict.to_dict()
    return {name: told[name] for name in ("spans", "whole", "unrecorded", "kept", "gone", "new", "notes")}


def print_verdict(
    report: dict[str, Any], findings: Sequence[Finding], verdict: Verdict | None, console: Console
) -> None:
    """The verdict in full, and what the judge who looked again has to say."""
    from rich.text import Text

    from seismograd.reports.terminal import render_finding, render_verdict

    console.print(render_verdict(report, height=1_000_000))
    if all(finding.severity is Severity.INFO for finding in findings):
        for finding in findings:
            console.print()
            console.print(render_finding(finding, ranks=len(report.get("ranks") or (0,))))
    if verdict is None:
        return
    console.print()
    whole = "every reading was there" if verdict.whole else "; ".join(str(span) for span in verdict.spans)
    console.print(Text(f"judged again: {whole}"))
    for finding in verdict.new:
        console.print(Text(f"note: {finding.id} of step {finding.step:,} was not found live"))
    for note in verdict.notes:
        console.print(Text(f"note: {note}"))


# -- a page, a comparison ----------------------------------------------------------------------------------------------


def html(
    run: Which = "last",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to; - is stdout.", show_default="seismograd-RUN.html"
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    store: Where = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's report page: one file that needs no network."""
    from seismograd.reports.report import write_whole

    to_stdout = output is not None and str(output) == "-"
    if to_stdout and as_json:
        stop("stdout takes the page or the JSON, not both: name a file with --output, or leave --json out")
    with opened(store) as found:
        one = found.run(run)
        if to_stdout:
            typer.echo(one.html().encode())  # it says of itself that it is UTF-8
            return
        path = writable(output or Path(f"seismograd-{one.id}.html"), "the page")
        text = one.html()
    try:
        write_whole(text, path, "page")
    except OSError as error:
        stop(str(error))
    if as_json:
        say_json({"run": one.id, "path": str(path), "bytes": len(text.encode())})
    else:
        from seismograd import folders

        typer.echo(folders.shown(path))
    if open_it:
        typer.launch(path.as_uri())


def diff(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run: its id, how it begins, its name, or last.", autocompletion=runs_known
        ),
    ],
    other: Annotated[str, typer.Argument(metavar="RUN", help="The other one.", autocompletion=runs_known)],
    rtol: Annotated[
        float, typer.Option(min=0.0, metavar="SHARE", help="What differs by no more, relative to its size, is equal.")
    ] = 1e-5,
    atol: Annotated[float, typer.Option(min=0.0, help="What differs by no more is equal.")] = 0.0,
    store: Where = None,
    as_json: AsJson = False,
) -> None:
    """Say where two runs part: the first step, quantity and layer, and how they went on.

    Exits with 0 if they are the same within the tolerance, with 1 if they are not.
    """
    with opened(store) as found:
        one, two = found.run(run), found.run(other)
        with waiting(f"comparing {one.id} and {two.id}"):
            compared = one.compare(two, rtol=rtol, atol=atol)
    if as_json:
        say_json(compared.to_dict())
    else:
        _print_comparison(compared, terminal())
    raise typer.Exit(0 if compared.same else PARTED)


def _print_comparison(found: Comparison, console: Console) -> None:
    from rich.text import Text

    styles = {"bit-equal": "bold green", "equal": "bold green", "parted": "bold yellow", "incomparable": "bold red"}
    console.print(Text.assemble((found.verdict, styles[found.verdict]), f": {found.runs[0]} and {found.runs[1]}"))
    console.print(Text(str(found)))
    for title, lines in _tables(found):
        console.print()
        console.print(Text(title, "bold"))
        for line in lines:
            console.print(Text(f"  {line}"), no_wrap=True, overflow="ellipsis", crop=True)
    if found.notes:
        console.print()
    for note in found.notes:
        console.print(Text(f"note: {note}"))


def _tables(found: Comparison) -> Iterator[tuple[str, Iterable[str]]]:
    if len(found.quantities) > 1:
        width = max(map(len, found.quantities))
        yield "when each quantity parts", [f"{name:{width}}  step {step:,}" for name, step in found.quantities.items()]
    if found.growth:
        yield "how far apart they are", [f"step {step:<10,} {far:.2e}" for step, far in found.growth]
    if found.settings:
        width = max(map(len, found.settings))
        lines = []
        for name, (one, other) in found.settings.items():
            lines += [f"{name:{width}}  {_short(one)}", f"{'':{width}}  {_short(other)}"]
        yield "what is set differently", lines


def _short(value: Any) -> str:
    text = "-" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text or "-"
