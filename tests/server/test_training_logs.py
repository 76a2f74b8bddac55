"""The four endpoints of the guide: counters of the newest live run, its level, and a clear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from seismograd import create_training_logger
from seismograd.server import models
from seismograd.store import open_store

from .conftest import Writer

BASE = "/training-logs/debug"
SHOWN = {
    "training_debugger": {
        "total_anomalies",
        "debug_history_length",
        "total_steps",
        "anomaly_rate",
        "gradient_explosion_rate",
    },
    "diffusion_debugger": {"total_anomalies", "debug_history_length"},
    "general_debugger": {"total_anomalies", "debug_history_length"},
}
"""The keys of the guide's example."""
COUNTED = {
    "total_steps",
    "anomaly_steps",
    "gradient_explosions",
    "gradient_vanishing",
    "loss_anomalies",
    "skipped_steps",
    "rollbacks",
    "anomaly_rate",
    "loss_anomaly_rate",
    "gradient_explosion_rate",
    "gradient_vanishing_rate",
}


def summary(client: TestClient, **query: str) -> dict[str, Any]:
    answer = client.get(f"{BASE}/summary", params=query).json()
    models.DebugSummary.model_validate(answer)
    for part, keys in SHOWN.items():
        assert keys <= set(answer[part])
    return dict(answer)


def training(client: TestClient, **query: str) -> dict[str, Any]:
    answer = client.get(f"{BASE}/training/summary", params=query).json()
    models.RunSummary.model_validate(answer)
    assert set(answer) >= COUNTED
    return dict(answer)


def test_without_a_run_everything_is_zero(client: TestClient, store: Path) -> None:
    assert summary(client)["training_debugger"]["total_steps"] == 0
    told = training(client)
    assert told.pop("run") is None
    assert set(told.values()) == {0}
    answer = client.post(f"{BASE}/level/basic")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not-live")
    assert client.post(f"{BASE}/clear").json() == {"run": None, "request": None}
    assert not store.exists()


def test_what_the_process_counted(client: TestClient, write: Callable[..., Writer]) -> None:
    counts = {"anomaly_steps": 5, "gradient_explosions": 2, "gradient_vanishing": 1, "loss_anomalies": 3}
    writer = write("20260101-101500-aaaaaa", summary={"total_steps": 1000, **counts})
    writer.train(10)
    writer.flush()
    told = training(client)
    assert told == {
        "run": writer.run,
        "total_steps": 1000,
        **counts,
        "skipped_steps": 0,
        "rollbacks": 0,
        "anomaly_rate": 0.005,
        "loss_anomaly_rate": 0.003,
        "gradient_explosion_rate": 0.002,
        "gradient_vanishing_rate": 0.001,
    }
    part = summary(client)["training_debugger"]
    assert (part["total_anomalies"], part["anomaly_rate"], part["debug_history_length"]) == (5, 0.005, 10)


def test_the_log_is_counted(client: TestClient, live: Writer) -> None:
    live.log("a", level="error")
    live.log("b")
    live.log("c", "diffusion_step", "warning")
    live.flush()
    told = summary(client)
    assert told["general_debugger"] == {"total_anomalies": 1, "debug_history_length": 2}
    assert told["diffusion_debugger"] == {"total_anomalies": 1, "debug_history_length": 1}


def test_the_newest_live_run_is_meant(client: TestClient, write: Callable[..., Writer], live: Writer) -> None:
    later = write("20260105-101500-dddddd")
    later.train(2)
    later.end()
    assert training(client)["run"] == live.run
    assert training(client, run=later.run)["run"] == later.run
    live.end()
    assert training(client)["run"] == later.run, "none is live: the newest"
    assert client.get(f"{BASE}/summary", params={"run": "nope"}).status_code == 404
    assert client.get(f"{BASE}/summary", params={"run": "../x"}).status_code == 422


def test_a_training_is_meant_rather_than_the_log_beside_it(client: TestClient, live: Writer, store: Path) -> None:
    with create_training_logger({"log_dir": store}) as logger:
        logger.log_info("newer than the training")
        logger.flush()
        assert client.post(f"{BASE}/level/advanced").json()["run"] == live.run
        assert training(client)["total_steps"] == 5
        assert training(client, run=logger.run_id)["run"] == logger.run_id


def test_the_level_is_asked_of_the_process(client: TestClient, live: Writer) -> None:
    answer = client.post(f"{BASE}/level/extreme")
    assert answer.status_code == 200
    told = models.LevelAsked.model_validate(answer.json())
    assert (told.run, told.level) == (live.run, "extreme")
    live.flush()
    assert live.heard == [("level", "extreme")]
    assert client.get(f"/api/runs/{live.run}").json()["level"] == "extreme"


@pytest.mark.parametrize("level", ["absurd", "BASIC", "%00", "basic%20"])
def test_an_unknown_level(client: TestClient, live: Writer, level: str) -> None:
    answer = client.post(f"{BASE}/level/{level}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "not-valid")
    live.flush()
    assert live.heard == []


def test_the_level_of_a_run_that_is_over_cannot_change(client: TestClient, ended: Writer) -> None:
    answer = client.post(f"{BASE}/level/basic", params={"run": ended.run})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not-live")


def test_clear_starts_the_counters_again_and_keeps_the_run(client: TestClient, live: Writer, store: Path) -> None:
    live.log("before", level="warning")
    live.flush()
    assert training(client)["total_steps"] == 5
    told = models.Cleared.model_validate(client.post(f"{BASE}/clear").json())
    assert told.run == live.run
    assert told.request is not None
    assert told.request.answer == "clear is done", "it was waited for"
    assert training(client)["total_steps"] == 0
    assert summary(client)["general_debugger"] == {"total_anomalies": 0, "debug_history_length": 1}, "the clear itself"
    live.train(2)
    live.flush()
    assert training(client)["total_steps"] == 2
    run = open_store(store).run(live.run)
    assert run.series("loss")["loss"].steps.tolist() == list(range(7))
    assert [event["message"] for event in run.events(types="note")] == ["before"]


def test_a_clear_that_the_process_does_not_hear_counts_all_the_same(client: TestClient, ended: Writer) -> None:
    assert training(client)["total_steps"] == 32
    assert client.post(f"{BASE}/clear").status_code == 200
    assert training(client)["total_steps"] == 0
    assert client.get(f"/api/runs/{ended.run}").json()["steps"] == 32
