"""Checkpoints: files that are whole or not there, and that hold tensors and plain values only.

They are read with `torch.load(weights_only=True)`: no pickled object is ever loaded.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from seismograd.complaints import complain

SCHEMA = 1
"""The number of what a checkpoint holds: raised when an older reader would misread a newer file."""

_FORMAT = "seismograd checkpoint"


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says which, why, and what to do."""


class CheckpointFolder:
    """The checkpoints of one run in its folder: `last.pt`, the one before it (`previous.pt`), and `best.pt`.

    A new one is written beside them and takes its place when all of it is on the disk. Files are never changed, only
    replaced, so that two names may share one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.last, self.previous, self.best = (self.folder / f"{name}.pt" for name in ("last", "previous", "best"))

    def __bool__(self) -> bool:
        """Whether there is one to go on from."""
        return self.last.is_file() or self.previous.is_file()

    def write(self, state: Mapping[str, Any], *, best: bool = False) -> None:
        """Keeps the state as the last one, and as the best if it is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / ".new.pt"
        new.unlink(missing_ok=True)  # left by a process that died, it may be one file with the best: not to write into
        try:
            with new.open("xb") as file:
                _write({"format": _FORMAT, "schema": SCHEMA, **_plain(state)}, file)
                file.flush()
                os.fsync(file.fileno())
            if best:
                _share(new, self.best)
            if self.last.exists():
                _share(self.last, self.previous)
            os.replace(new, self.last)
            _sync(self.folder)
        finally:
            with suppress(OSError):
                new.unlink(missing_ok=True)

    def newest(self) -> tuple[Path, dict[str, Any]]:
        """The last checkpoint, or the one before if that one is damaged, which is told."""
        try:
            return self.last, read(self.last)
        except CheckpointError as error:
            if not self.previous.is_file():
                raise
            complain(f"seismograd: {error}; going on from the one before it, {self.previous}")
            return self.previous, read(self.previous)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint holds, on the CPU; a `CheckpointError` if it is no whole checkpoint of ours."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {str(path)!r}")
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()  # torch does not look at the sums
        state = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else "nothing in it"
        raise CheckpointError(f"{path} is cut off, damaged or no checkpoint ({type(error).__name__}: {why})") from error
    if state is None:
        raise CheckpointError(f"{path} is damaged: the bytes of {damaged!r} are not those that were written")
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of Seismograd's trainer: load it by hand with torch.load")
    if not isinstance(state.get("schema"), int) or state["schema"] > SCHEMA:
        raise CheckpointError(
            f"{path} has the schema {state.get('schema')!r}, this version reads up to {SCHEMA}: update seismograd"
        )
    return state


def check_fit(path: Path, saved: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Raises a `CheckpointError` that names the keys if a model's saved state is not one of the present model."""
    wrong = [
        ("missing in the file", present.keys() - saved.keys()),
        ("not in the model", saved.keys() - present.keys()),
    ]
    both = [name for name in present if isinstance(saved.get(name), Tensor) and isinstance(present[name], Tensor)]
    shapes = [
        f"{name} {tuple(saved[name].shape)} for {tuple(present[name].shape)}"
        for name in both
        if saved[name].shape != present[name].shape
    ]
    told = [f"{what}: {_listed(sorted(names))}" for what, names in (*wrong, ("of other shapes", shapes)) if names]
    if told:
        raise CheckpointError(
            f"{path} does not fit the model ({'; '.join(told)}): it needs the model that the run was begun with"
        )


def _plain(value: Any, path: str = "") -> Any:
    """The value in plain containers; a `TypeError` that names the place if it holds what could only be pickled."""
    if value is None or isinstance(value, Tensor) or type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        items = {_plain(key, f"the keys of {path}"): _plain(item, f"{path}[{key!r}]") for key, item in value.items()}
        if type(value) not in (OrderedDict, Counter):
            return items
        made = type(value)(items)
        vars(made).update(vars(value))  # a model's state has its versions there
        return made
    if type(value) in (list, tuple, set):
        return type(value)([_plain(item, f"{path}[{at}]") for at, item in enumerate(value)])
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"the state to be saved has a {type(value).__module__}.{type(value).__qualname__} at {path}: checkpoints hold"
        " tensors, numbers, text, lists and dicts only, so that nothing has to be unpickled; let state_dict() or"
        " get_extra_state() return those"
    )


_PLAIN = (bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)


def _write(state: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(state, file)
    except RuntimeError as error:  # where a disk is full, torch's writer speaks of positions
        raise OSError(f"{file.name} could not be written, is the disk full? ({error})") from error


def _share(path: Path, other: Path) -> None:
    """Gives a file a second name, at once, in the place of what has it."""
    new = other.with_name(f".{other.name}")
    new.unlink(missing_ok=True)
    try:
        os.link(path, new)
    except OSError:  # a file system without links
        shutil.copyfile(path, new)
        with new.open("rb+") as file:
            os.fsync(file.fileno())
    os.replace(new, other)


def _sync(folder: Path) -> None:
    """Has the folder's names on the disk, too."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
