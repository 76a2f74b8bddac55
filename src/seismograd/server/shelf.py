"""The store that is served. It may not be there yet when the server starts, and may go away and come back."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from fastapi import Request

from seismograd.store import NoRunError, Run, Store, open_store
from seismograd.store.schema import NoStoreError, file_of, shown, url_of
from seismograd.store.shared import is_empty
from seismograd.store.store import place


class Shelf:
    """Opens the store when it is first asked for something; `read_only`, so that nothing can change it."""

    def __init__(self, where: str | os.PathLike[str] | None = None, *, read_only: bool = False) -> None:
        self._where = place(where)
        self._read_only = read_only
        self._url = url_of(self._where)
        self.shown = shown(self._url)
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._opened: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever recorded there; a `StoreError` if that cannot be seen."""
        if file_of(self._url) is not None:
            return is_empty(self._url)
        try:
            self.open()
        except NoStoreError:
            return True
        return False

    def open(self) -> Store:
        """The store; a `StoreError` says what is in the way."""
        with self._lock:
            file = self._file()
            if file != self._opened:  # another one lies in its place
                self._forget()
            if self._store is None:
                self._store, self._opened = open_store(self._where, read_only=self._read_only), file
            return self._store

    def runs(self, limit: int | None = None, offset: int = 0) -> list[Run]:
        """Runs, newest first; none where there is no store yet."""
        return [] if self.is_empty else self.open().runs(limit, offset)

    def count(self) -> int:
        return 0 if self.is_empty else self.open().count()

    def live(self) -> list[Run]:
        """The runs that go on."""
        return [] if self.is_empty else self.open().live()

    def severities(self, runs: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """How many findings of each severity runs have."""
        return {} if self.is_empty else self.open().severities(runs)

    def run(self, name: str) -> Run:
        """The run of that id, or how it begins, or `last`."""
        if self.is_empty:
            raise NoRunError(f"there is no run {name!r}: nothing is recorded in {self.shown} yet")
        return self.open().run(name)

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _file(self) -> tuple[int, int] | None:
        """Which file it is, whatever its name."""
        path = file_of(self._url)
        if path is None:
            return None
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _forget(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


async def shelf_of(request: Request) -> Shelf:
    """The shelf of the app that is asked; a coroutine, which costs no thread."""
    shelf: Shelf = request.app.state.shelf
    return shelf
