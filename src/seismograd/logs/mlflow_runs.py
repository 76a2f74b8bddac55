"""MLflow: a run at a tracking URI, or in a folder `mlruns`, whose files are read as they are."""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seismograd.extras import need
from seismograd.logs.log import Entry, Log, LogError, listed
from seismograd.sinks.knocking import knock

_LARGEST = 1.7976931348623157e308
"""What MLflow's databases keep of an infinity."""


def is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def is_run_folder(path: Path) -> bool:
    """Whether it is a folder of MLflow's file store: of all experiments, of one, or of a run."""
    return any(next(path.glob(pattern), None) is not None for pattern in _FOLDERS)


_FOLDERS = ("metrics/*", "*/metrics/*", "*/*/metrics/*")


def read_mlflow(uri: str, run: str | None = None) -> Log:
    """A run at a tracking URI: by its id, its name, or the newest of an experiment; of all, if none is named."""
    path = _file_of(uri)
    if path is not None:
        if not path.exists():
            raise LogError(f"there is no database {str(path)!r}: MLflow would make an empty one, so it is not asked")
        _check_tables(path)
        uri = f"sqlite:///{path.absolute()}"
    tracking = need("mlflow.tracking", "mlflow")
    try:
        knock(uri)
    except ConnectionError as error:
        raise LogError(str(error)) from None
    try:
        with _quiet():
            client = tracking.MlflowClient(tracking_uri=uri)
            found = _found(client, run, uri)
            names = [name for name in found.data.metrics if not name.startswith("system/")]
            logged = [(name, each) for name in names for each in client.get_metric_history(found.info.run_id, name)]
    except LogError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise LogError(f"MLflow cannot read {_shown(uri)!r}: {type(error).__name__}: {text}") from None
    log = Log(_shown(uri), "mlflow", name=found.info.run_name or found.info.run_id)
    log.notes.append(f"run {found.info.run_id} ({log.name})")
    if found.info.status == "FAILED":
        log.notes.append("MLflow says that the run failed")
    return _filled(log, ((name, m.timestamp, m.value, m.step) for name, m in logged))


def read_run_folder(folder: Path, run: str | None = None) -> Log:
    """A run in MLflow's file store; its newest if none is named. MLflow itself is not needed for that."""
    found = {path.parent.parent for pattern in _FOLDERS for path in folder.glob(pattern)}
    places = sorted(found, key=lambda place: max(each.stat().st_mtime for each in (place / "metrics").iterdir()))
    chosen = places[-1:] if run is None else [each for each in places if each.name.startswith(run)]
    if len(chosen) != 1:
        raise LogError(f"there is no run {run!r} in {str(folder)!r}: there is {listed([p.name for p in places])}")
    log = Log(str(chosen[0]), "mlflow", name=chosen[0].name)
    if len(places) > 1 and run is None:
        log.notes.append(f"of {len(places)} runs the newest is read, {chosen[0].name!r}; run= takes another")
    return _filled(log, _lines(chosen[0] / "metrics"))


def _lines(folder: Path) -> Iterator[tuple[str, float, float, float]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            parts = line.split()
            try:
                time, value, step = float(parts[0]), float(parts[1]), float(parts[2]) if len(parts) > 2 else 0.0
            except (ValueError, IndexError):
                continue
            yield str(path.relative_to(folder)), time, value, step


def _filled(log: Log, logged: Iterable[tuple[str, float, float, float]]) -> Log:
    rows = sorted(logged, key=lambda each: each[1])
    if not rows:
        raise LogError(f"the run {log.name!r} of {log.source!r} has no metrics: nothing was logged with log_metric")
    counted = any(step for _, _, _, step in rows)
    for name, time, value, step in rows:
        known = math.copysign(math.inf, value) if abs(value) >= _LARGEST else float(value)
        log.entries.append(Entry({name: known}, float(step) if counted else None, time / 1000.0))
    log.steps_from = "step" if counted else ""
    return log


def _found(client: Any, run: str | None, uri: str) -> Any:
    if run is not None:
        with contextlib.suppress(Exception):
            return client.get_run(run)
    experiments = {each.name: each.experiment_id for each in client.search_experiments()}
    if run in experiments or run in experiments.values():
        wanted, query = [experiments.get(run or "", run)], ""
    else:
        quoted = (run or "").replace("'", "")
        wanted, query = list(experiments.values()), f"attributes.run_name = '{quoted}'" if run is not None else ""
    newest = client.search_runs(wanted, filter_string=query, max_results=1, order_by=["attributes.start_time DESC"])
    if newest:
        return newest[0]
    if run is None:
        raise LogError(f"there is no run in {_shown(uri)!r}")
    known = [each.info.run_name for each in client.search_runs(list(experiments.values()), max_results=10)]
    raise LogError(
        f"there is no run or experiment {run!r} in {_shown(uri)!r}: "
        f"runs are {listed(known) or 'none'}, experiments {listed(list(experiments))}"
    )


def _file_of(uri: str) -> Path | None:
    """The file of a database in SQLite; `None` for anything else."""
    if uri.startswith("sqlite:"):
        return Path(uri.partition("sqlite:///")[2] or uri.partition("sqlite:")[2])
    return None if "://" in uri else Path(uri)


def _check_tables(path: Path) -> None:
    if not is_database(path):
        raise LogError(f"{str(path)!r} is no database of SQLite, as MLflow keeps its runs in")
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    except sqlite3.Error as error:
        raise LogError(f"the database {str(path)!r} cannot be read: {error}") from None
    if "seismograd_runs" in tables:
        raise LogError(f"{str(path)!r} is a store of Seismograd: its runs are shown by seismograd runs --store {path}")
    if not {"runs", "metrics"} <= tables:
        raise LogError(f"{str(path)!r} is a database, but none of MLflow: it has no table of runs and metrics")


def _shown(uri: str) -> str:
    """The address without a password."""
    before, found, behind = uri.partition("://")
    return f"{before}://{behind.rpartition('@')[2]}" if found else uri


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """MLflow and Alembic speak of their own doings at each opening."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
