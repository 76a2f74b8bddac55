"""Where captures lie: a folder for each, in one for each run. Standard library only."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

JSON_FILE = "capture.json"
TENSORS_FILE = "tensors.safetensors"

_NAME = re.compile(r"step-(\d{6,18})-([a-z-]+(?:-rank-\d{1,9})?)")


def home() -> Path:
    """The folder of all runs: what `SEISMOGRAD_HOME` says, else `.seismograd` in the working directory."""
    return Path(os.path.abspath(os.environ.get("SEISMOGRAD_HOME") or ".seismograd"))


def made(base: Path, run: str) -> Path:
    """The folder of a run, which is there from now on; what is in it is nobody's to commit."""
    new = not base.exists()
    folder = base / run
    folder.mkdir(parents=True, exist_ok=True)
    if new:
        (base / ".gitignore").write_text("*\n", encoding="utf-8")
    return folder


def wanted() -> bool:
    """Whether captures are to be made, as far as the environment says."""
    return os.environ.get("SEISMOGRAD_CAPTURE", "").strip().lower() not in _OFF


_OFF = ("0", "false", "no", "off")


def store(asked: object = None, configured: str | bool | None = None) -> str | os.PathLike[str] | Literal[False]:
    """Where runs are to be recorded: as asked, else as `SEISMOGRAD_STORE` says, else as `pyproject.toml` does, else in
    the folder of all runs.

    `False`: nowhere.
    """
    if asked is None or asked is True:
        usual = configured if isinstance(configured, str) or (configured is False and asked is None) else home()
        asked = os.environ.get("SEISMOGRAD_STORE", "").strip() or usual
    if asked is False or (isinstance(asked, str) and asked.strip().lower() in _OFF):
        return False
    if not isinstance(asked, (str, os.PathLike)) or not os.fspath(asked):
        raise TypeError(f"store is {asked!r}: it takes a folder, a .db file, a postgresql:// URL, or False for none")
    return asked


def folder_name(step: int, finding: str) -> str:
    return f"step-{step:06}-{finding}"


def shown(path: Path) -> str:
    """The path from the working directory on, if it lies there."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def named(folder: PurePath) -> str:
    """What to call a run's folder by: its id, or its path where it is in another place than usual."""
    usual = home()
    return folder.name if folder.parent in (usual, PurePath(shown(usual))) else str(folder)


@dataclass(frozen=True, slots=True)
class Kept:
    """A capture on disk, by the name of its folder."""

    path: Path
    run: str
    step: int
    finding: str

    def __str__(self) -> str:
        return f"{self.run}  step {self.step}  {self.finding}"


class NoCaptureError(ValueError):
    """What was asked for is not there, or is not one capture; the message says what there is."""


def captures_in(folder: Path) -> list[Kept]:
    """The captures of one run, by step."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.fullmatch(path.name)
        if match is not None and (path / JSON_FILE).is_file():
            found.append(Kept(path, folder.name, int(match[1]), match[2]))
    return found


def find(run: str, step: int | None = None, where: Path | None = None) -> Path:
    """The one capture that `run` means: the path of its folder, a run's id, or how that begins."""
    if not run:
        raise NoCaptureError(f"no run was named: {_all_of(where or home())}")
    given = Path(run)
    if given.name == JSON_FILE:
        given = given.parent
    if (given / JSON_FILE).is_file():
        number = _step_of(given)
        if step is not None and number != step:
            raise NoCaptureError(f"the capture {run!r} is of step {number}, not of step {step}")
        return given
    if given.is_dir() and captures_in(given):
        return chosen(captures_in(given), run, step)
    base = where or home()
    names = sorted(path.name for path in base.iterdir() if path.is_dir()) if base.is_dir() else []
    matches = [name for name in names if name == run] or [name for name in names if name.startswith(run)]
    found = [kept for name in matches for kept in captures_in(base / name)]
    if not found:
        if (given / TENSORS_FILE).exists() or given.is_dir():
            raise NoCaptureError(f"{run!r} is no capture: there is no {JSON_FILE} in it")
        raise NoCaptureError(f"there is no capture of a run {run!r}: {_all_of(base)}")
    return chosen(found, run, step)


def chosen(found: list[Kept], run: str, step: int | None) -> Path:
    """The one of a run's captures that is meant."""
    if not found:
        raise NoCaptureError(f"no step of the run {run!r} was saved: only a bad one is, or one that was asked for")
    of_step = [kept for kept in found if step is None or kept.step == step]
    if len(of_step) == 1:
        return of_step[0].path
    if not of_step:
        raise NoCaptureError(f"the run {run!r} has no capture of step {step}:{_listed(found)}")
    how = "more of the run's id" if len({kept.run for kept in of_step}) > 1 else "--step, or the folder's path"
    raise NoCaptureError(f"{run!r} means {len(of_step)} captures, say which with {how}:{_listed(of_step)}")


def _step_of(folder: Path) -> int | None:
    match = _NAME.fullmatch(folder.resolve().name)
    if match is not None:
        return int(match[1])
    try:
        number = json.loads((folder / JSON_FILE).read_text(encoding="utf-8")).get("step")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return number if isinstance(number, int) else None


def _all_of(base: Path) -> str:
    runs = sorted((path for path in base.iterdir() if path.is_dir()), reverse=True) if base.is_dir() else []
    found = [kept for path in runs for kept in captures_in(path)]
    return f"in {shown(base)} there is" + (_listed(found) if found else " none")


def _listed(found: list[Kept]) -> str:
    lines = [f"\n  {kept}" for kept in found[:20]]
    return "".join(lines) + (f"\n  and {len(found) - 20} more" if len(found) > 20 else "")
