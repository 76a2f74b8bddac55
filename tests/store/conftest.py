"""For the tests of the store: a real PostgreSQL, each test with a database of its own, and a disk that fills up."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BACK_ENDS = ("sqlite", "postgresql")
_numbers = itertools.count(1)


class Postgres:
    """A server of this test session's: databases are made and dropped, it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of where it looks for its lock
            import pgserver
            from pgserver._commands import pg_ctl

            self._pg_ctl: Callable[..., str] = pg_ctl
            self._data = folder / "data"
            self._server: Any = pgserver.get_server(self._data, cleanup_mode="delete")
        self.execute("alter system set max_connections = 400")  # a hundred is its default
        self.stop()
        self.start()

    def url(self, database: str, *, user: str = "postgres", password: str = "") -> str:
        host = self._server.get_uri().partition("host=")[2]
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@/{database}?host={host}"

    def execute(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """As when the machine is rebooted: open connections break."""
        self._pg_ctl(["-w", "-m", "fast", "stop"], pgdata=self._data, user=self._server.system_user)

    def start(self) -> None:
        if not (self._data / "postmaster.pid").exists():
            self._server._postmaster_info = None
            self._server.ensure_postgres_running()

    def remove(self) -> None:
        self.start()
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="seismograd-pg-"))  # short: a socket's path has little room
    server = Postgres(folder)
    try:
        yield server
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database."""
    name = f"runs_{os.getpid()}_{next(_numbers)}"
    postgres.start()
    postgres.execute(f"create database {name}")
    try:
        yield postgres.url(name)
    finally:
        postgres.start()
        postgres.execute(f"drop database {name} with (force)")


@pytest.fixture(params=BACK_ENDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store: what `open_store` and `store=` take. A test that has it runs on both back ends."""
    if request.param == "sqlite":
        return str(tmp_path / "store")
    url: str = request.getfixturevalue("database")
    return url


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB. Where none may be mounted the tests with a limit on the size of files still run."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "seismograd-test", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here ({done.stderr.strip()}): the size of files is limited instead")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
