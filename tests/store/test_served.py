"""The service over a store in PostgreSQL: the same answers, also after the database was away for a while."""

from __future__ import annotations

import math
import time
from typing import Any

from fastapi.testclient import TestClient

from seismograd.records import Severity
from seismograd.server import create_app, models
from seismograd.store import open_store

from ..server.conftest import ADDRESS, FREE, HOSTILE, Writer
from .conftest import Postgres

PATHS: dict[str, Any] = {
    "/api": models.Api,
    "/api/runs": models.Runs,
    "/api/runs?text=first&status=healthy&state=live": models.Runs,
    "/api/runs/last": models.RunDetail,
    "/api/runs/last/series?name=loss&name=grad/norm&points=10": models.Curves,
    "/api/runs/last/series?name=loss&rank=all": models.Curves,
    "/api/runs/last/heat": models.HeatMap,
    "/api/runs/last/findings": models.Findings,
    "/api/runs/last/events?level=warning&text=DROP": models.Events,
    "/api/runs/last/report": models.Report,
    "/api/runs/last/compare/last": models.Comparison,
    "/api/runs/last/requests": models.Requests,
    "/training-logs/debug/summary": models.DebugSummary,
    "/training-logs/debug/training/summary": models.RunSummary,
}


def test_every_answer_comes_from_postgresql_too(database: str, postgres: Postgres) -> None:
    with TestClient(create_app(database, limits=FREE), base_url=ADDRESS) as client:
        for path in ("/api/runs", "/metrics", "/training-logs/debug/summary"):
            assert client.get(path).status_code == 200, "nothing was ever recorded there"
        assert client.get("/api/runs/last").status_code == 404
        writer = Writer(database, "20260101-101500-aaaaaa", "first")
        writer.train(40)
        writer.train(1, loss=math.nan)
        writer.find(evidence={"norm": math.inf})
        writer.log(HOSTILE[2], "warning", "warning", loss=math.nan)
        writer.flush()
        for path, model in PATHS.items():
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            model.model_validate(answer.json())
        assert "password" not in client.get("/api").text
        assert len(client.get("/api/runs/last/events?level=warning&text=drop").json()["events"]) == 1
        assert client.get("/api/runs/last/page").status_code == client.get("/metrics").status_code == 200
        assert client.post("/training-logs/debug/level/extreme").status_code == 200
        writer.flush()
        assert writer.heard == [("level", "extreme")]
        assert client.post("/training-logs/debug/clear").json()["request"]["answer"] == "clear is done"
        assert client.get("/training-logs/debug/training/summary").json()["total_steps"] == 0

        writer.end()
        postgres.stop()
        gone = client.get("/api/runs")
        assert (gone.status_code, gone.json()["error"]["code"]) == (503, "store-unavailable")
        assert "SELECT" not in gone.text
        postgres.start()
        assert client.get("/api/runs/last").json()["state"] == "ended"
        assert client.delete(f"/api/runs/{writer.run}", headers={"X-Seismograd": "1"}).status_code == 204
        assert client.get("/api/runs").json()["total"] == 0


def test_what_the_service_asks_of_a_store(where: str) -> None:
    over, live = Writer(where, "20260101-101500-aaaaaa"), Writer(where, "20260102-101500-bbbbbb")
    for writer in (over, live):
        writer.train(3)
        writer.flush()
    over.find()
    over.find("gradient-explosion", severity=Severity.WARNING)
    over.log("one", "own", "warning")
    over.log("two", "own", "warning")
    over.log("three")
    over.log("n\0ught", "half a \ud800")
    over.end()
    with open_store(where) as store:
        assert [run.id for run in store.live()] == [live.run]
        assert store.severities() == {over.run: {"critical": 1, "warning": 1}}
        assert store.severities([live.run]) == {}
        run = store.run(over.run)
        counts = run.event_counts()
        assert (counts["own", "warning"], counts["note", "info"]) == (2, 1)
        assert run.event_counts(since=time.time() + 60) == {}
        assert run.last_event() == run.events()[-1]["id"]
        assert run.events(types=["half a \ud800"]) == run.events(text="N\0UGHT") == run.events()[-1:]
        assert (run.reach(), run.reach(rank=5)) == (2, -1)
        assert store.run(live.run).last_event() == 0
        live.end()
        assert store.live() == []
