"""`seismograd read`: the verdict on a run that Seismograd did not watch, by its log."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from seismograd.cli.mistakes import known_ids, stop, writable
from seismograd.cli.recorded import FAILED, print_verdict
from seismograd.cli.running import Grave
from seismograd.cli.stores import AsJson, Ignored, Where, say_json, terminal
from seismograd.records import Severity


class Format(str, Enum):
    """What a log can be."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    CSV = "csv"
    JSON = "json"


def read(
    path: Annotated[
        str, typer.Argument(metavar="PATH|URI", help="A file, a folder, or a tracking URI: sqlite:///mlflow.db.")
    ],
    format_: Annotated[Format | None, typer.Option("--format", help="What it is.", show_default="as it looks")] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which run, where there are several.", show_default="the newest"),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The training loss.", show_default="by its name")
    ] = None,
    val_loss: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The validation loss.", show_default="by its name")
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The steps, of CSV and JSON.", show_default="by its name")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help="Another column by the name that Seismograd has for it: grad/norm=gnorm, lr/0=rate; again for more.",
            show_default=False,
        ),
    ] = None,
    ignore: Ignored = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the report to this file.", show_default=False)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write the report page to this file.", show_default=False)
    ] = None,
    fail_on: Annotated[
        Grave | None, typer.Option(help="Exit with 3 if something as severe was found.", show_default=False)
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record it as a run, for seismograd show, diff and ui.")
    ] = False,
    store: Where = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the run is called.", show_default="as the log is")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge a run that was not watched, by its log: TensorBoard, MLflow, CSV or JSON lines.

    Example: seismograd read runs/, seismograd read metrics.csv --loss my_loss --fail-on critical
    """
    from seismograd.logs import LogError, read_log
    from seismograd.reports.report import write_report
    from seismograd.store import StoreError

    files = (None if report is None else writable(report), None if html is None else writable(html, "the page"))
    ids = known_ids(ignore or [])
    try:
        found = read_log(
            path,
            format=None if format_ is None else format_.value,
            run=run,
            loss=loss,
            val_loss=val_loss,
            step=step,
            names=_columns(column or []),
            ignore=ids,
            store=store if store is not None else record,
            name=name,
        )
        told = found.report()
        if files[0] is not None:
            write_report(told, files[0])
        if files[1] is not None:
            found.html(files[1])
    except (LogError, StoreError, ModuleNotFoundError, ValueError, OSError) as error:
        stop(_with_options(str(error)))
    if as_json:
        say_json(told)
    else:
        _print(told, found)
        if record or store is not None:
            typer.echo(f"seismograd: recorded as {found.id}", err=True)
    worst = max((finding.severity.weight for finding in found.findings()), default=-1)
    if fail_on is not None and worst >= Severity(fail_on.value).weight:
        raise typer.Exit(FAILED)


def _print(told: dict[str, Any], found: Any) -> None:
    from rich.text import Text

    console = terminal()
    print_verdict(told, found.findings(), None, console)
    notes = [event["message"] for event in told["events"] if event["event_type"] == "log"]
    if notes:
        console.print()
    for note in notes:
        console.print(Text(f"note: {note}"))


def _columns(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        ours, equals, theirs = each.partition("=")
        if not equals or not ours or not theirs:
            stop(f"--column {each!r} names no column", hint="NAME=COLUMN, such as grad/norm=gnorm")
        found[ours] = theirs
    return found


def _with_options(text: str) -> str:
    """What Python calls `loss=` is `--loss` here."""
    for python, option in (
        ("loss=", "--loss "),
        ("val_--loss ", "--val-loss "),
        ("run=", "--run "),
        ("step=", "--step "),
        ("format=", "--format "),
    ):
        text = text.replace(python, option)
    return text.replace("--loss ;", "--loss;").replace("--format ,", "--format,")
