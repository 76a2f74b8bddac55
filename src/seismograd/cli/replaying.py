"""`seismograd replay`: a captured step, run again with a model that the user's own code builds."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seismograd import folders
from seismograd.cli.mistakes import stop
from seismograd.cli.named import called, named
from seismograd.cli.stores import Where, terminal
from seismograd.places import written
from seismograd.records import Finding, strict

if TYPE_CHECKING:
    from seismograd.replay.again import Capture, Replayed

NOT_REPRODUCED = 1
"""The exit code of a second run in which everything was finite."""


def replay(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The run's id, how it begins, its name, last, or the path of a capture."),
    ] = "",
    step: Annotated[int | None, typer.Option(help="Which step, if several were saved.", show_default=False)] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="What builds the model: model.py:Net, package.models:make. It is called without arguments.",
            show_default=False,
        ),
    ] = "",
    store: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a bad step again, with your code as it is now, and say where it goes bad.

    Exits with 0 if it does, with 1 if everything is finite this time: the fault is mended.

    Example: seismograd replay 20260102-101500-c0ffee --model train.py:Net
    """
    try:
        path = _saved(run, step, store)
    except (ValueError, OSError) as error:
        stop(str(error))
    if not model:
        stop("say with --model what builds the model", hint="--model train.py:Net, --model package.models:make_model")
    from seismograd.replay.again import Capture, CaptureError, rerun

    try:
        capture = Capture.load(path)
        with contextlib.redirect_stdout(sys.stderr):  # what user code prints is not the result
            replayed = rerun(capture, _built(model))
        finding = _finding(capture, replayed)
    except CaptureError as error:
        stop(str(error))
    if as_json:
        typer.echo(json.dumps(_told(capture, replayed, finding), indent=2, allow_nan=False))
    else:
        _show(capture, replayed, finding)
    raise typer.Exit(0 if replayed.found or _was_sound(capture) else NOT_REPRODUCED)


def _saved(run: str, step: int | None, store: str | None) -> Path:
    """The saved step that is meant: by its path or the run's id, else as the store knows the run."""
    from seismograd.store import StoreError, open_store
    from seismograd.store.store import place

    unknown: ValueError | None = None
    if store is None or not run:
        try:
            return folders.find(run, step)
        except folders.NoCaptureError as error:
            unknown = error
    try:
        with open_store(place(store)) as opened:
            return folders.chosen(opened.run(run).captures(), run, step)
    except StoreError as error:
        raise unknown or error from None


# -- the model ---------------------------------------------------------------------------------------------------------


def _built(model: str) -> Any:
    """What the user's factory returns."""
    found = named(model, "--model", "factory", "train.py:Net or package.models:make")
    if _is_module(found):
        return found
    if not callable(found):
        stop(f"{model!r} is {found!r}: give a function or a class that builds the model")
    made = called(found, model, "give a function without any that builds the model as it was in the run")
    if not _is_module(made):
        stop(f"{model!r} returned {type(made).__name__}, not an nn.Module")
    return made


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


# -- what is said ------------------------------------------------------------------------------------------------------


def _finding(capture: Capture, replayed: Replayed) -> Finding | None:
    """What the detectors say of the step with that origin; `None` if there is none."""
    from dataclasses import replace

    from seismograd.detectors import DEFAULT
    from seismograd.detectors.numerics.origins import FINDINGS
    from seismograd.replay.again import CaptureError

    wanted = FINDINGS.get(replayed.origin.phase)
    reading = replace(capture.reading, origin=replayed.origin)
    try:
        for detector in DEFAULT:
            if detector.id == wanted:
                return detector.start().check(reading)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise CaptureError(f"{folders.shown(capture.path)} is damaged: {error}") from None
    return None


def _verdict(capture: Capture, replayed: Replayed) -> str:
    """In a sentence, how it went."""
    from seismograd.replay.investigation import FINITE

    stored = capture.origin.where
    place = written(stored.file, stored.line) if stored.file else stored.module or "elsewhere"
    if replayed.same:
        return "the same origin as in the run"
    if _was_sound(capture) and not replayed.found:
        return "everything is finite, as in the run"
    if replayed.outside and replayed.origin.phase != "input":
        return "the model itself is clean: what went bad in the run was outside of it, and cannot be run again"
    if not replayed.found and capture.origin.phase and replayed.origin.note == FINITE:
        return f"everything is finite now: what went bad in the run ({place}) is mended, or not in what was saved"
    if not replayed.found:
        return f"not reproduced: {replayed.origin.note or 'everything was finite this time'}"
    return f"another origin than in the run, where it was {place}" if capture.origin.phase else "found only now"


def _was_sound(capture: Capture) -> bool:
    """Whether nothing was wrong with the step: somebody asked for it."""
    from seismograd.replay.capture import ASKED

    return capture.finding == ASKED and not capture.origin.phase


def _show(capture: Capture, replayed: Replayed, finding: Finding | None) -> None:
    from seismograd.reports.terminal import render_finding

    if finding is not None:
        terminal().print(render_finding(finding))
        typer.echo("")
    typer.echo(f"seismograd: step {capture.step} of {capture.run}: {_verdict(capture, replayed)}")
    for note in replayed.notes:
        typer.echo(f"seismograd: note: {note}")


def _told(capture: Capture, replayed: Replayed, finding: Finding | None) -> dict[str, Any]:
    from seismograd.replay.capture import origin_told

    told: dict[str, Any] = strict(
        {
            "schema": 1,
            "capture": folders.shown(capture.path),
            "run": capture.run,
            "step": capture.step,
            "found": replayed.found,
            "same": replayed.same,
            "outside": replayed.outside,
            "verdict": _verdict(capture, replayed),
            "origin": origin_told(replayed.origin),
            "stored": origin_told(capture.origin),
            "finding": None if finding is None else finding.to_dict(),
            "notes": replayed.notes,
        }
    )
    return told
