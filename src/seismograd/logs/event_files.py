"""TensorBoard's event files, read without TensorFlow: a folder of them is a run."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seismograd.extras import need
from seismograd.logs.log import Entry, Log, LogError, listed

_MARK = "tfevents"
_SIDES = frozenset(("train", "training", "val", "valid", "validation", "eval", "evaluation", "test"))
"""Folders that hold one side of a run: so Keras and others keep training and validation apart."""
_HPARAMS = b"_hparams_/"
"""How the tags of TensorBoard's page of settings begin."""
_LARGEST = 1 << 30
_FOLDERS = 20_000
"""So many are looked through."""


def is_event_file(path: Path) -> bool:
    return _MARK in path.name and path.is_file()


def event_folders(folder: Path) -> dict[str, list[Path]]:
    """The folders below with event files, by their path from there on, with their files, the oldest first."""
    found: dict[str, list[Path]] = {}
    for at, (place, folders, names) in enumerate(os.walk(folder)):
        folders.sort()
        files = sorted(Path(place, name) for name in names if _MARK in name)
        if files:
            found[str(Path(place).relative_to(folder))] = files
        if at > _FOLDERS:
            break
    return found


def read_events(path: Path, run: str | None = None) -> Log:
    """The scalars of a run: an event file, a folder of them, or one of several in the folders below it."""
    need("tensorboard", "tensorboard")
    if path.is_file():
        log = Log(str(path), "tensorboard", name=path.parent.name or path.stem)
        return _filled(log, [("", _entries([path]))], path)
    folders = event_folders(path)
    if not folders:
        raise LogError(f"there is no event file of TensorBoard in {str(path)!r} or below it (*{_MARK}*)")
    runs = _runs(folders)
    chosen = _chosen(runs, folders, run, path)
    log = Log(str(path / chosen), "tensorboard", name=(path / chosen).resolve().name)
    if len(runs) > 1 and run is None:
        others = [name for name in runs if name != chosen]
        log.notes.append(f"of {len(runs)} runs the newest is read, {chosen!r}; run= takes another: {listed(others, 8)}")
    sides = [(name, _entries(folders[name])) for name in runs[chosen]]
    return _filled(log, [("" if name == chosen else _side(name, entries), entries) for name, entries in sides], path)


def _runs(folders: dict[str, list[Path]]) -> dict[str, list[str]]:
    """The folders that make up each run: its own, and those with its sides or its single curves."""
    runs: dict[str, list[str]] = {}
    for name in sorted(folders, key=lambda each: (len(Path(each).parts), each)):
        parent = str(Path(name).parent)
        if name != "." and parent in folders and _is_of_hparams(folders[name]):
            continue
        if name != "." and (Path(name).name.lower() in _SIDES or _is_curve(name, parent, folders)):
            runs.setdefault(parent, []).append(name)
        else:
            runs.setdefault(name, []).append(name)
    return runs


def _chosen(runs: dict[str, list[str]], folders: dict[str, list[Path]], run: str | None, path: Path) -> str:
    if run is None:
        return max(runs, key=lambda name: max(_changed(file) for each in runs[name] for file in folders[each]))
    for name in runs:
        if run in (name, Path(name).name, str(path / name)):
            return name
    raise LogError(f"there is no run {run!r} in {str(path)!r}: there {_are(list(runs))}")


def _are(names: list[str]) -> str:
    return f"is {names[0]!r}" if len(names) == 1 else f"are {listed(names)}"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_curve(name: str, parent: str, folders: dict[str, list[Path]]) -> bool:
    """Whether the folder holds one curve of the run above it."""
    return parent in folders and _key(name, _entries(folders[name])) is not None


def _is_of_hparams(files: Sequence[Path]) -> bool:
    """Whether `add_hparams` made the folder, below that of its run: settings, and at most one value of each metric."""
    if not any(_HPARAMS in record for file in files for record in _records(file)):
        return False
    tags = [tag for entry in _entries(files) for tag in entry.values]
    return len(tags) == len(set(tags))


def _key(name: str, entries: Sequence[Entry]) -> str | None:
    """`add_scalars("Loss", {"train": ...})` makes a folder `Loss_train` with one curve, `Loss`: its key is train."""
    tags = {tag for entry in entries for tag in entry.values}
    start = next(iter(tags)).replace("/", "_").replace(" ", "_") + "_" if len(tags) == 1 else "/"
    last = Path(name).name
    return last[len(start) :] if last.startswith(start) and last != start else None


def _side(name: str, entries: Sequence[Entry]) -> str:
    """What the curves of a folder are called by: `train/`, `val/`."""
    return (_key(name, entries) or Path(name).name) + "/"


def _filled(log: Log, sides: Sequence[tuple[str, list[Entry]]], path: Path) -> Log:
    found = []
    for side, entries in sides:
        for entry in entries:
            values = {side + tag: value for tag, value in entry.values.items()}
            found.append(Entry(values, entry.step, entry.time, entry.part))
    if len(sides) > 1:
        found.sort(key=lambda entry: entry.time or 0.0)
    if not found:
        raise LogError(f"there is no scalar in the event files of {str(path)!r}: nothing was logged with add_scalar")
    log.entries, log.steps_from = found, "step"
    return log


def _entries(files: Sequence[Path]) -> list[Entry]:
    return [entry for part, file in enumerate(files) for entry in _scalars(file, part)]


def _scalars(file: Path, part: int) -> Iterator[Entry]:
    event_pb2 = need("tensorboard.compat.proto.event_pb2", "tensorboard")
    for record in _records(file):
        try:
            event = event_pb2.Event.FromString(record)
        except Exception:  # protobuf's own error, whose place has changed over its versions
            raise LogError(f"{str(file)!r} is no event file of TensorBoard, or is damaged") from None
        values = {}
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                values[value.tag] = number
        if values:
            yield Entry(values, float(event.step), event.wall_time, part)


def _records(file: Path) -> Iterator[bytes]:
    """The records of a file: a length, its checksum, the bytes, their checksum. One that is cut off is the last."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise LogError(f"{str(file)!r} cannot be read: {error.strerror or error}") from None
    at, first = 0, True
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > _LARGEST or (first and at + 16 + length > len(data)):
            raise LogError(f"{str(file)!r} is no event file of TensorBoard, or is damaged")
        if at + 16 + length > len(data):
            return
        yield data[at + 12 : at + 12 + length]
        at, first = at + 16 + length, False
    if first and data:
        raise LogError(f"{str(file)!r} is no event file of TensorBoard, or is damaged")


def _number(value: Any) -> float | None:
    """A scalar in its old form or as a tensor; histograms, texts and images are none."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    tensor = value.tensor
    if any(each.size != 1 for each in tensor.tensor_shape.dim):
        return None
    for filled in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(filled) == 1:
            return float(filled[0])
    layout = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}.get(tensor.dtype)
    if layout is None or len(tensor.tensor_content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, tensor.tensor_content)[0])
