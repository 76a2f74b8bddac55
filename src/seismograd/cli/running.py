"""`seismograd run`: reads the command line, and prepares the run; the script starts when typer is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from seismograd.cli.completing import ignored_known, sinks_known
from seismograd.cli.mistakes import known_ids, stop, store_named, writable
from seismograd.records import DebugLevel, Severity

then: list[Callable[[], NoReturn]] = []
"""What is to be done when the command line has been read: a script runs with as little of ours below it as can be."""


class Grave(str, Enum):
    """The severities that a run can be ended for."""

    WARNING = "warning"
    CRITICAL = "critical"


class UpToTheScript(TyperCommand):
    """Everything behind the script, or behind `-m MODULE`, is the script's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        valued = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
            if args[at].startswith("-m"):
                args = [*args[:at], "--module", *([args[at][2:]] if args[at] != "-m" else []), *args[at + 1 :]]
                at += 2
                break
            at += 2 if args[at] in valued else 1
        if at <= len(args) and args[at : at + 1] != ["--"]:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def run(
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT.py|-m MODULE [ARGS]...", help="What to run, with arguments of its own.", show_default=False
        ),
    ] = None,
    module: Annotated[str | None, typer.Option("--module", hidden=True)] = None,
    level: Annotated[
        DebugLevel | None,
        typer.Option(envvar="SEISMOGRAD_LEVEL", help="How much is read.", show_default="advanced"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            envvar="SEISMOGRAD_BUDGET",
            metavar="SHARE",
            help="The share of the time that the watch may take.",
            show_default="0.01, 0.05 or 0.15 by level",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            envvar="SEISMOGRAD_IGNORE",
            metavar="ID",
            help="A finding that is not to be reported; again for more, or a,b.",
            show_default=False,
            autocompletion=ignored_known,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            envvar="SEISMOGRAD_REPORT", metavar="FILE.json", help="Write the report to this file.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            envvar="SEISMOGRAD_HTML",
            metavar="FILE.html",
            help="Write the report page to this file: it needs no network.",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[
        Grave | None,
        typer.Option(
            envvar="SEISMOGRAD_FAIL_ON",
            help="Exit with 3, where it would be 0, if something as severe was found.",
            show_default=False,
        ),
    ] = None,
    stop_on: Annotated[
        Grave | None,
        typer.Option(
            envvar="SEISMOGRAD_STOP_ON",
            help="End the script, as Ctrl-C would, after the step at which something as severe is found.",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            envvar="SEISMOGRAD_REPLAY",
            help="Run a step that is not finite a second time, to say where it went bad.",
        ),
    ] = True,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight",
            envvar="SEISMOGRAD_PREFLIGHT",
            help="Check the model on its first batch, for some seconds on a copy of it, and go on.",
        ),
    ] = False,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture/--no-capture",
            envvar="SEISMOGRAD_CAPTURE",
            help="Save bad steps in .seismograd, for seismograd replay.",
        ),
    ] = True,
    ranks: Annotated[
        bool | None,
        typer.Option(
            "--ranks/--no-ranks",
            help="Compare the ranks of a distributed training with each other.",
            show_default="on, unless SEISMOGRAD_RANKS=0",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="SEISMOGRAD_STORE",
            metavar="PATH|URL|off",
            callback=store_named,
            help="Where the run is recorded: a folder, a .db file, or postgresql://...",
            show_default=".seismograd",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            envvar="SEISMOGRAD_NAME", metavar="NAME", help="What the run is called.", show_default="the script's name"
        ),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            envvar="SEISMOGRAD_NOTIFY",
            metavar="URL|MODULE:FUNCTION",
            help="Tell of findings while the script runs: a webhook, or a function that takes one; again for more.",
            show_default=False,
        ),
    ] = None,
    notify_on: Annotated[
        Severity | None,
        typer.Option(envvar="SEISMOGRAD_NOTIFY_ON", help="How severe they have to be.", show_default="warning"),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            envvar="SEISMOGRAD_SINK",
            metavar="NAME[:WHERE]",
            help="Where readings and findings go besides the terminal: tensorboard:FOLDER, mlflow, wandb, trackio, "
            "prometheus:PORT, otel:URL, jsonl:FILE, logging; again for more.",
            show_default=False,
            autocompletion=sinks_known,
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            envvar="SEISMOGRAD_QUIET",
            help="Say nothing but a verdict, and only if something is wrong.",
        ),
    ] = False,
) -> None:
    """Run a script as python would, watch whatever it trains, and say what is wrong with it.

    Arguments, output, exit code and weights of the script are those under plain python. Seismograd speaks on stderr.

    Example: seismograd run --report out.json train.py --lr 0.1
    """
    from seismograd.config import find_config
    from seismograd.run.script import Script
    from seismograd.run.supervisor import Options
    from seismograd.run.supervisor import run as start

    given = script or []
    if module is None and not given:
        stop("there is no script to run", hint="seismograd run train.py, or seismograd run -m package.train")
    what = Script(module=module, args=tuple(given)) if module else Script(path=given[0], args=tuple(given[1:]))
    if problem := what.problem():
        stop(problem)
    if budget is not None and not 0 < budget <= 1:
        stop(f"--budget {budget:g} is no share of the time: give a number above 0 and at most 1, such as 0.05")
    try:
        config = find_config()
        if config.level is not None:
            DebugLevel.of(config.level)
        if config.limits:
            from seismograd.detectors import DEFAULT

            config.apply(DEFAULT)
    except ValueError as error:
        stop(str(error))
    if config.store is not None or store is not None or "SEISMOGRAD_STORE_LIMIT" in os.environ:
        _check_store(store, config.store)
    for receiver in notify or ():
        _check_receiver(receiver)
    options = Options(
        level=level,
        budget=budget,
        ignore=known_ids(ignore or []),
        report=None if report is None else writable(report),
        html=None if html is None else writable(html, "the page"),
        fail_on=None if fail_on is None else Severity(fail_on.value),
        stop_on=None if stop_on is None else Severity(stop_on.value),
        quiet=quiet,
        replay=replay,
        preflight=preflight,
        capture=capture,
        ranks=ranks,
        store=store,
        name=name,
        notify=tuple(notify or ()),
        notify_on=None if notify_on is None else notify_on.value,
        sinks=_known_sinks(sink or config.sinks, f"{config.path}: sinks" if not sink else "--sink"),
        config=config,
    )
    then.append(partial(start, what, options))


def _check_store(store: str | None, configured: str | bool | None) -> None:
    """Says what is wrong with the address or the limit before the script starts."""
    from seismograd import folders

    try:
        where = folders.store(store, configured)
        if where is not False:
            from seismograd.store.schema import limit_of, url_of

            url_of(where)
            limit_of()
    except (ValueError, TypeError) as error:
        stop(str(error))


def _known_sinks(given: Iterable[str], told: str) -> tuple[str, ...]:
    """The sinks, with whole paths; what is wrong with them, or missing, is said before the script starts."""
    if not given:
        return ()
    from seismograd.sinks.named import settled

    found = []
    for each in given:
        try:
            found.append(settled(each))
        except (ValueError, ModuleNotFoundError) as error:
            stop(f"{told}: {error}")
    return tuple(found)


def _check_receiver(receiver: str) -> None:
    """Says what is wrong with it before the script starts; its function is looked for when the script trains."""
    from seismograd.sinks.notify import is_name
    from seismograd.sinks.webhook import Webhook

    try:
        if not is_name(receiver):
            Webhook(receiver)
    except ValueError as error:
        stop(str(error).replace("notify", "--notify", 1), hint="https://..., or package.module:function")
