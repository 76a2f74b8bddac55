"""`read_log`: from a file, a folder or an address to a run that has been judged."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seismograd import folders
from seismograd.config import find_config
from seismograd.detectors import DEFAULT
from seismograd.logs.csv_files import read_csv
from seismograd.logs.event_files import event_folders, is_event_file, read_events
from seismograd.logs.json_files import read_json
from seismograd.logs.log import Log, LogError
from seismograd.logs.mlflow_runs import is_database, is_run_folder, read_mlflow, read_run_folder
from seismograd.logs.names import Columns, columns_of
from seismograd.logs.ordering import Course, course_of
from seismograd.logs.recording import recorded
from seismograd.masking import without_secrets
from seismograd.protocols import Detector
from seismograd.store import Run

FORMATS = ("tensorboard", "mlflow", "csv", "json")

JUDGED: dict[str, tuple[str, ...]] = {
    "nonfinite-loss": ("loss",),
    "loss-explosion": ("loss",),
    "loss-spike": ("loss",),
    "loss-oscillation": ("loss",),
    "loss-plateau": ("loss",),
    "overfitting": ("loss", "val_loss"),
    "nonfinite-gradient": ("grad/norm",),
    "gradient-explosion": ("grad/norm",),
    "lr-jump": ("lr/0",),
}
"""The findings that numbers alone can show, and the scalars that each is judged by."""

_FEWEST = {
    "loss-explosion": 5,
    "loss-spike": 52,
    "loss-oscillation": 129,
    "loss-plateau": 50,
    "overfitting": 8,
    "gradient-explosion": 6,
}
"""Of the last scalar that stands there: with fewer values the finding cannot come, whatever they are."""


def read_log(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 (what the user calls it)
    run: str | None = None,
    loss: str | None = None,
    val_loss: str | None = None,
    step: str | None = None,
    names: Mapping[str, str] | None = None,
    detectors: Iterable[Detector] | None = None,
    ignore: Iterable[str] | str = (),
    store: Any = False,
    name: str | None = None,
) -> Run:
    """Judges a run that Seismograd did not watch, by its log, with the detectors that need no model.

    - `path`: an event file or folder of TensorBoard, an MLflow tracking URI (`sqlite:///mlflow.db`) or folder, a CSV
      file, a file of JSON lines, Hugging Face's `trainer_state.json` or a folder with one of these.
    - `format`: `"tensorboard"`, `"mlflow"`, `"csv"` or `"json"`, where it cannot be seen.
    - `run`: which one, where there are several: a folder's name, a run's id or name, an experiment; else the newest.
    - `loss`, `val_loss`, `step`, `names={"grad/norm": "my/gnorm"}`: columns, where they are not called as usual.
    - `detectors`, `ignore`: as `sg.watch` has them. `store`: `True`, a folder, a `.db` file or a URL records the run.

    The result is a run as the store has it: `findings()`, `status`, `series()`, `report()`, `check()`, `html()`.
    What could not be judged stands in `report()["events"]`. A `LogError` says what is wrong with a log.
    """
    log = _log(path, format, run, step)
    columns = columns_of(log, loss, val_loss, names)
    course = course_of(log, columns)
    config = find_config()
    chosen = config.apply(DEFAULT if detectors is None else detectors)
    there = {scalar for reading, _ in course.readings for scalar in reading.plain().scalars}
    notes = [*log.notes, *course.notes, *_remarks(log, columns, course)]
    ignored = {*([ignore] if isinstance(ignore, str) else ignore), *config.ignore}
    if detectors is None and not log.ours:
        judged = [each for each in chosen if each.id in JUDGED and set(JUDGED[each.id]) <= there]
        if course.begins_late:
            judged = [each for each in judged if each.id != "loss-plateau"]
        notes += _too_short(judged, course)
        notes += _unjudged(judged, there)
        ignored |= {each.id for each in chosen if each.id in JUDGED and each not in judged}
    else:
        judged = list(chosen)
    return recorded(
        course,
        judged,
        ignore=ignored,
        where=folders.store(store, config.store) if store is not False else False,
        name=name or log.name or "log",
        about=_about(log, columns, notes),
        notes=notes,
    )


def _log(path: str | os.PathLike[str], format_: str | None, run: str | None, step: str | None) -> Log:
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise LogError(f"the log's path is {text!r}: give a file, a folder or a tracking URI")
    if format_ is not None and format_ not in FORMATS:
        raise LogError(f"format {format_!r} is unknown: use one of {', '.join(map(repr, FORMATS))}")
    if "://" in text or text == "databricks" or text.startswith("sqlite:"):
        if format_ not in (None, "mlflow"):
            raise LogError(f"{format_!r} is read from files: {text!r} is an address")
        return read_mlflow(text, run)
    place = Path(text).expanduser()
    try:
        if not place.exists():
            raise LogError(f"there is no file or folder {text!r}")
        kind = format_ or _kind(place)
        if place.is_dir() and kind in ("csv", "json"):
            place = _file_in(place, kind)
    except OSError as error:
        raise LogError(f"{text!r} cannot be read: {error.strerror or error}") from None
    if step is not None and kind in ("tensorboard", "mlflow"):
        raise LogError(f"step={step!r}: {kind} has steps of its own, leave it out")
    try:
        if kind == "tensorboard":
            return read_events(place, run)
        if kind == "mlflow":
            return read_run_folder(place, run) if place.is_dir() else read_mlflow(str(place), run)
        return read_csv(place, step, run) if kind == "csv" else read_json(place, step, run)
    except OSError as error:
        raise LogError(f"{text!r} cannot be read: {error.strerror or error}") from None


_ENDINGS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_USUAL = ("trainer_state.json", "metrics.csv", "*.jsonl", "*.csv", "*.ndjson")


def _kind(place: Path) -> str:
    """What the log is, by its name or how it begins."""
    if place.is_dir():
        if event_folders(place):
            return "tensorboard"
        if is_run_folder(place):
            return "mlflow"
        found = _candidates(place)
        if found:
            return _ENDINGS[found[0].suffix]
        if next(place.rglob("*.wandb"), None) is not None:
            raise _of_wandb(place)
        raise LogError(
            f"no log was found in {str(place)!r}: it has no event files of TensorBoard (*tfevents*), no MLflow run, no "
            "trainer_state.json, metrics.csv or .jsonl. Give the file itself"
        )
    if is_event_file(place):
        return "tensorboard"
    if is_database(place):
        return "mlflow"
    if place.suffix.lower() == ".wandb":
        raise _of_wandb(place)
    if place.suffix.lower() in _ENDINGS:
        return _ENDINGS[place.suffix.lower()]
    with place.open("rb") as file:
        begin = file.read(4096)
    if not begin.strip():
        raise LogError(f"{str(place)!r} is empty: nothing was logged to it")
    if b"\0" in begin:
        raise LogError(
            f"{str(place)!r} is no log that is known here: give format=, one of {', '.join(map(repr, FORMATS))}"
        )
    return "json" if b"{" in begin else "csv"


def _of_wandb(place: Path) -> LogError:
    return LogError(
        f"{str(place)!r} is W&B's own format, which is not read here: export the run, as with "
        'wandb.Api().run("ENTITY/PROJECT/RUN").history().to_csv("run.csv") (after wandb sync, if it was offline)'
    )


def _candidates(folder: Path) -> list[Path]:
    """Logs below the folder, the newest of the most usual kind first."""
    for pattern in _USUAL:
        found = [path for path in folder.rglob(pattern) if path.is_file()]
        if found:
            return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    return []


def _file_in(folder: Path, kind: str) -> Path:
    found = [path for path in _candidates(folder) if _ENDINGS[path.suffix] == kind]
    if not found:
        raise LogError(f"there is no {kind} file in {str(folder)!r}")
    return found[0]


def _remarks(log: Log, columns: Columns, course: Course) -> Iterable[str]:
    """How the log was understood, where that is not plain."""
    loss = columns.theirs("loss")
    if loss is not None:
        told = [f"{theirs!r} as {ours}" for theirs, ours in columns.names.items() if _is_asked_for(ours, theirs)]
        if told:
            yield f"read {', '.join(told)}"
        if columns.left_out:
            yield f"{', '.join(map(repr, columns.left_out))} could be a loss too, and was not taken for it"
        if log.nulls.get(loss):
            yield f"{log.nulls[loss]:,} rows have null as their {loss!r} and are left out: some writers mean NaN by it"
    bad = [reading.step for reading, _ in course.readings if not math.isfinite(reading.scalars.get("val_loss", 0.0))]
    if bad:
        yield f"the validation loss is not finite at {len(bad):,} steps, first at step {bad[0]:,}"
    if course.gap > 1:
        yield f"the loss was logged every {course.gap:,} steps: what happened in between is not known"
    if course.begins_late:
        yield "the log does not begin with the run: whether the loss has come down since is not judged"


def _is_asked_for(ours: str, theirs: str) -> bool:
    return ours != theirs and (ours in ("loss", "val_loss", "grad/norm") or ours.startswith("lr/"))


def _too_short(judged: Sequence[Detector], course: Course) -> Iterable[str]:
    """What the verdict does not speak of, as there is too little of it."""
    counts = Counter(name for reading, _ in course.readings for name in reading.plain().scalars)
    lacking: dict[str, list[str]] = {}
    for each in judged:
        name = JUDGED[each.id][-1]
        if counts[name] < _FEWEST.get(each.id, 1):
            lacking.setdefault(name, []).append(each.id)
    for name, findings in lacking.items():
        values = "one value" if counts[name] == 1 else f"{counts[name]} values"
        yield f"not judged, as the log has only {values} of {name}: {', '.join(findings)}"


def _unjudged(judged: Sequence[Detector], there: set[str]) -> Iterable[str]:
    """What the verdict does not speak of, and why."""
    known = {each.id for each in judged}
    lacking: dict[str, list[str]] = {}
    for finding, needs in JUDGED.items():
        missing = [need for need in needs if need not in there]
        if missing and finding not in known:
            lacking.setdefault(" and ".join(missing), []).append(finding)
    for missing_ones, findings in lacking.items():
        yield f"not judged, as the log has no {missing_ones}: {', '.join(findings)}"
    yield f"not judged, as they need the model or the loop: {len(DEFAULT) - len(JUDGED)} other findings"


def _about(log: Log, columns: Columns, notes: Sequence[str]) -> dict[str, Any]:
    from seismograd import __version__

    used = {ours: theirs for theirs, ours in columns.names.items() if _is_asked_for(ours, theirs)}
    return {
        "log": without_secrets(log.source),
        "format": log.format,
        **({"columns": used} if used else {}),
        "seismograd": __version__,
        "notes": list(notes),
    }
