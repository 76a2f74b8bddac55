"""What stands under `[tool.seismograd]` in the user's `pyproject.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

from seismograd.complaints import complain
from seismograd.protocols import Detector
from seismograd.records import Severity


@dataclass(frozen=True, slots=True)
class Config:
    """Defaults for a run: `level`, `budget`, ids to ignore, limits of detectors, whether bad steps are saved, store."""

    level: str | None = None
    budget: float | None = None
    ignore: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    path: Path | None = None
    capture: bool = True
    store: str | bool | None = None
    notify: tuple[str, ...] = ()
    notify_on: str = "warning"
    sinks: tuple[str, ...] = ()
    """Where readings and findings go besides the terminal and `logging`."""
    ranks: bool = True
    """Whether the ranks of a distributed training are compared."""

    def apply(self, detectors: Iterable[Detector]) -> tuple[Detector, ...]:
        """`detectors` with the limits that the file sets; a limit of what does not exist is warned of."""
        detectors = tuple(detectors)
        for each in detectors:
            if isinstance(each, type) or not isinstance(each, Detector):
                raise TypeError(f"{each!r} is not a detector: it needs id, needs, follows and start()")
        for wrong in sorted(set(self.limits) - {detector.id for detector in detectors}):
            complain(f"{self.path}: [tool.seismograd.limits.{wrong}] names no finding", stacklevel=5)
        return tuple(self._adjusted(detector) for detector in detectors)

    def _adjusted(self, detector: Detector) -> Detector:
        wanted = self.limits.get(detector.id)
        if not wanted:
            return detector
        known = {part.name for part in fields(detector)}  # type: ignore[arg-type]
        unknown = sorted(set(wanted) - known)
        for name, value in wanted.items():
            if name in known and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise ValueError(
                    f"{self.path}: [tool.seismograd.limits.{detector.id}] {name} is {value!r}, not a number"
                )
        if unknown:
            raise ValueError(
                f"{self.path}: [tool.seismograd.limits.{detector.id}] has no limit {unknown[0]!r}: "
                f"it has {', '.join(sorted(known)) or 'none'}"
            )
        adjusted: Detector = replace(detector, **wanted)  # type: ignore[type-var]
        return adjusted


def find_config(start: Path | None = None) -> Config:
    """The nearest `pyproject.toml` at or above `start` that has the table; an empty one if there is none."""
    try:
        folder = (start or Path.cwd()).resolve()
    except OSError:  # the working directory is gone
        return Config()
    for place in (folder, *folder.parents):
        path = place / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("seismograd")
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            return Config()  # not ours to complain about
        if table is not None:
            return _parse(table, path)
    return Config()


def _parse(table: Any, path: Path) -> Config:
    if not isinstance(table, Mapping):
        raise ValueError(f"{path}: [tool.seismograd] is {table!r}, not a table")
    known = {"level", "budget", "ignore", "limits", "capture", "store", "notify", "notify_on", "sinks", "ranks"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{path}: [tool.seismograd] has an unknown key {unknown[0]!r}: known are {sorted(known)}")
    ignore = table.get("ignore", [])
    if not isinstance(ignore, list) or not all(isinstance(item, str) for item in ignore):
        raise ValueError(f"{path}: [tool.seismograd] ignore is {ignore!r}: it takes a list of finding ids")
    budget = table.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, (int, float))):
        raise ValueError(f"{path}: [tool.seismograd] budget is {budget!r}, not a number")
    limits = table.get("limits", {})
    if not isinstance(limits, dict) or not all(isinstance(item, dict) for item in limits.values()):
        raise ValueError(f"{path}: [tool.seismograd.limits] takes a table for each finding id")
    capture = table.get("capture", True)
    if not isinstance(capture, bool):
        raise ValueError(f"{path}: [tool.seismograd] capture is {capture!r}: it takes true or false")
    store = table.get("store")
    if not isinstance(store, (str, bool, NoneType)):
        raise ValueError(f"{path}: [tool.seismograd] store is {store!r}: it takes a path, a URL, true or false")
    ranks = table.get("ranks", True)
    if not isinstance(ranks, bool):
        raise ValueError(f"{path}: [tool.seismograd] ranks is {ranks!r}: it takes true or false")
    told, sinks = _notify(table, path), _sinks(table, path)
    return Config(table.get("level"), budget, tuple(ignore), limits, path, capture, store, *told, sinks, ranks)


def _sinks(table: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The names of sinks; whether they are right is known where they are made."""
    sinks = table.get("sinks", [])
    sinks = [sinks] if isinstance(sinks, str) else sinks
    if not isinstance(sinks, list) or not all(isinstance(each, str) for each in sinks):
        raise ValueError(f"{path}: [tool.seismograd] sinks is {sinks!r}: it takes names, such as 'tensorboard:runs'")
    return tuple(sinks)


def _notify(table: Mapping[str, Any], path: Path) -> tuple[tuple[str, ...], str]:
    """Who is told of findings, and from which severity on. An address is a secret: it is not said back."""
    told, severity = table.get("notify", []), table.get("notify_on", "warning")
    told = [told] if isinstance(told, str) else told
    if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
        raise ValueError(f"{path}: [tool.seismograd] notify takes an address, module:function, or a list of them")
    if severity not in [known.value for known in Severity]:
        raise ValueError(
            f"{path}: [tool.seismograd] notify_on is {severity!r}: it takes 'info', 'warning' or 'critical'"
        )
    return tuple(told), severity
