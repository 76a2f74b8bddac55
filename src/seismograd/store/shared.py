"""Where the ranks of one run write, if the store is a folder: each into a file of its own, one folder for all of them.

SQLite is not safe with several writers over a network, and its log (WAL) not at all. So a file has one writer; whatever
ranks and readers have to tell each other lies beside them in small files that appear whole or not at all.

    STORE/ranks/RUN/rank-3.db               the record of a rank
    STORE/ranks/RUN/attempt-1.json          a launch after the first, as the ranks agreed on it
    STORE/ranks/RUN/requests/7.json         what somebody asks of the run
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from seismograd.store import schema

_RANK = re.compile(r"rank-(\d{1,9})\.db")
_ATTEMPT = re.compile(r"attempt-(\d{1,9})\.json")
_REQUEST = re.compile(r"(\d{1,9})\.json")
_COUNTER = slice(24, 28)
"""Where SQLite counts the changes of a file."""


def home_of(url: sa.URL) -> Path | None:
    """The folder of all such runs of a store; none for a server."""
    file = schema.file_of(url)
    if file is None:
        return None
    return file.parent / ("ranks" if file.name == schema.FILE else f"{file.stem}.ranks")


def is_empty(url: sa.URL) -> bool:
    """Whether nothing was ever recorded in the store of a folder."""
    file, home = schema.file_of(url), home_of(url)
    return file is not None and home is not None and not file.is_file() and not home.is_dir()


class GoneError(OSError):
    """The folder that all share is not there at present."""


class Folder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._device: int | None = None

    @classmethod
    def of(cls, url: sa.URL, run: str) -> Folder | None:
        home = home_of(url)
        if home is None or Path(run).name != run or run in (".", ".."):
            return None
        return cls(home / run)

    def exists(self) -> bool:
        return self.path.is_dir()

    def prepare(self) -> None:
        """Makes it. Where the store's own folder has gone since then, it is not made anew: it may come back."""
        store = self.path.parent.parent
        if self._device is None:
            schema.make_folder(store)
        else:
            try:
                device = store.stat().st_dev
            except FileNotFoundError:
                raise GoneError(f"the folder {store} is gone") from None
            if device != self._device and not self.path.is_dir():
                raise GoneError(f"the folder {store} is on another disk now")
        self.path.mkdir(parents=True, exist_ok=True)
        self._device = store.stat().st_dev

    # -- the files of ranks ----------------------------------------------------------------------------------------

    def file(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.db"

    def url(self, rank: int) -> sa.URL:
        return sa.URL.create("sqlite", database=str(self.file(rank)))

    def ranks(self) -> dict[int, Path]:
        """The files that are there, by rank."""
        with os.scandir(self.path) as entries:
            found = {int(match[1]): Path(entry.path) for entry in entries if (match := _RANK.fullmatch(entry.name))}
        return dict(sorted(found.items()))

    # -- attempts ----------------------------------------------------------------------------------------------------

    def attempts(self) -> dict[int, dict[str, Any]]:
        """What the ranks agreed on, by the attempt's number."""
        return dict(_read(self.path, _ATTEMPT))

    def agree(self, number: int, told: Mapping[str, Any]) -> dict[str, Any]:
        """What holds for an attempt: what the first said who said something."""
        _make(self.path / f"attempt-{number}.json", told)
        return self.attempts()[number]

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def _asked(self) -> Path:
        return self.path / "requests"

    def ask(self, told: Mapping[str, Any]) -> int:
        """Puts a request there; its number."""
        self._asked.mkdir(exist_ok=True)
        number = max(self.requests(), default=0) + 1
        while not _make(self._asked / f"{number}.json", told):
            number += 1
        return number

    def requests(self, after: int = 0) -> dict[int, dict[str, Any]]:
        """What was asked of the run, by number, from some number on."""
        return dict(sorted(_read(self._asked, _REQUEST, after)))


def counter_of(file: Path) -> tuple[int, bytes] | None:
    """Changes whenever something was written to an SQLite file without a log; none if there is none, or nothing in it.

    A file is opened for it: only then is it sure, over a network, that what is read is not what was there before.
    """
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        head = os.read(handle, _COUNTER.stop)
        return (os.fstat(handle).st_ino, head[_COUNTER]) if len(head) == _COUNTER.stop else None
    except OSError:
        return None
    finally:
        os.close(handle)


def _read(folder: Path, pattern: re.Pattern[str], after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if (match := pattern.fullmatch(name)) is None or int(match[1]) <= after:
            continue
        with contextlib.suppress(OSError, ValueError, RecursionError):
            told = json.loads((folder / name).read_text(encoding="utf-8"))
            if isinstance(told, dict):
                yield int(match[1]), told


def _make(path: Path, told: Mapping[str, Any]) -> bool:
    """Writes a file that is there whole or not at all, unless it is there already; whether it was we."""
    draft = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        draft.write_text(json.dumps(told), encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError:  # a disk without links
            if path.exists():
                return False
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return True
