"""The command line. Starting it imports neither torch nor the detectors: each command fetches what it needs."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import seismograd
from seismograd.cli import asking, benching, doctoring, pruning, reading, recorded, replaying, running, serving
from seismograd.cli.completing import demos_known, findings_known
from seismograd.cli.mistakes import stop, writable
from seismograd.cli.stores import AsJson, say_json

app = typer.Typer(
    name="seismograd",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Runs the command line."""
    hook = sys.excepthook
    try:
        app(prog_name="seismograd")
    except SystemExit as end:
        if end.code or not running.then:
            raise
    sys.excepthook = hook  # typer has put its own there
    running.then.pop()()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seismograd {seismograd.__version__}")
        raise typer.Exit


@app.callback()
def about(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The debugger for PyTorch training: notices what goes wrong, finds where it began, says what to do."""
    if context.invoked_subcommand not in ("run", "demo") and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has every letter; a script's stdout is its own


app.command(cls=running.UpToTheScript)(running.run)
app.command()(recorded.runs)
app.command()(recorded.show)
app.command()(recorded.diagnose)
app.command()(recorded.html)
app.command()(recorded.diff)
app.command()(reading.read)
app.command()(replaying.replay)
app.command()(benching.bench)
app.command()(pruning.prune)
app.command()(serving.ui)
app.command()(asking.mcp)
app.command()(doctoring.doctor)


@app.command()
def demo(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Which one; the first if left out.", show_default=False, autocompletion=demos_known
        ),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the demos and exit.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report, as JSON, to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report page to this file.")] = None,
) -> None:
    """Watch a sick training run and see it diagnosed."""
    from seismograd.cli.demos import FIRST, gallery, run

    demos = gallery()
    if list_them:
        _print_table((each.name, f"{each.kind:7}  {each.title}") for each in demos.values())
        return
    name = name or FIRST
    if name not in demos:
        stop(f"there is no demo {name!r}", name, demos, "seismograd demo --list shows all of them")
    files = (None if report is None else writable(report), None if html is None else writable(html, "the page"))
    running.then.append(partial(run, demos[name], *files))


@app.command()
def explain(
    finding: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The finding's id, as printed.", show_default=False, autocompletion=findings_known
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a finding means, why it matters, what to try, and its limits. Without an id: list all."""
    import rich.console
    from rich.markdown import Markdown

    from seismograd.reports.pages import groups, pages

    known = pages()
    if finding is not None and finding not in known:
        stop(f"there is no finding {finding!r}", finding, known, "seismograd explain lists all of them")
    if as_json:
        wanted = known.values() if finding is None else [known[finding]]
        say_json({"findings": [{**asdict(page), "markdown": page.markdown()} for page in wanted]})
        return
    if finding is None:
        width = max(map(len, known))
        for name, own in groups().items():
            typer.echo(f"{name}:")
            for page in own:
                typer.echo(f"  {page.id:{width}}  {page.title}")
        return
    out = rich.console.Console()
    if out.is_terminal:
        out.print(Markdown(known[finding].markdown()), width=min(out.width, 100))
    else:
        typer.echo(known[finding].markdown(), nl=False)


def _print_table(rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        typer.echo(f"{name:{width}}  {text}")


for command in app.registered_commands:  # typer would break the lines of a paragraph where the source does
    about_it = inspect.getdoc(command.callback) or ""
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in about_it.split("\n\n"))
