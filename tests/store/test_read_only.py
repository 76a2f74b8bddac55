"""A store that is opened to be read only: nothing changes it, on either back end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import ClientSession

from seismograd.store import StoreError, open_store, schema

from ..mcp_server.test_mcp import session, told
from ..server.conftest import Writer


def test_every_change_is_refused(where: str) -> None:
    writer = Writer(where, "20260101-101500-aaaaaa", "first")
    writer.train(5)
    writer.end()
    with open_store(where, read_only=True) as store:
        run = store.run()
        assert run.steps == 5
        with pytest.raises(StoreError, match="read only"):
            store.delete(run.id)
        with pytest.raises(StoreError, match="read only"):
            run.ask("stop")
        with pytest.raises(StoreError, match=r"read-?only"), store.reading() as connection:
            connection.execute(schema.runs.delete())
        assert store.count() == 1


def test_one_of_an_older_version_is_not_brought_up_to_date(where: str) -> None:
    writer = Writer(where, "20260101-101500-aaaaaa")
    writer.train(3)
    writer.end()
    with open_store(where) as store, store.writing() as connection:
        connection.execute(schema.meta.update().where(schema.meta.c.name == "schema").values(value="0"))
    with pytest.raises(StoreError, match="older Seismograd"):
        open_store(where, read_only=True)


def test_a_log_that_a_killed_run_left_is_read_and_not_worked_off(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "20260101-101500-aaaaaa")
    writer.train(5)
    writer.flush()
    (file,) = tmp_path.glob("*.db")
    log = file.with_name(f"{file.name}-wal")
    before = file.read_bytes(), log.read_bytes()
    assert before[1]
    with open_store(tmp_path, read_only=True) as store:
        assert store.run().steps == 5
    assert (file.read_bytes(), log.read_bytes()) == before
    writer.end()


def test_a_model_is_answered_from_postgresql_too(database: str) -> None:
    writer = Writer(database, "20260101-101500-aaaaaa", "first")
    writer.train(40)
    writer.find()
    writer.end()

    async def whole() -> None:
        async with session(database) as found:
            await question(found)

    async def question(found: ClientSession) -> None:
        listed, _ = await told(found, "list_runs")
        assert [run["name"] for run in listed["runs"]] == ["first"]
        data, _ = await told(found, "get_verdict")
        assert data["total_findings"] == 1
        await told(found, "get_finding")
        curves, _ = await told(found, "get_series", names=["loss"])
        assert sum(curves["series"]["loss"]["count"]) == 40

    asyncio.run(asyncio.wait_for(whole(), 120))
