"""trackio's own storage has the metrics, the NaN, the findings as alerts, and the report as an artifact."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from seismograd.sinks import Trackio

from .trainings import BAD, STEPS, train

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project folder of its own for each test: trackio reads its variable once."""
    import trackio
    from trackio import cas, context_vars, sqlite_storage, utils

    for module in (trackio, cas, sqlite_storage, utils):
        if hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    (tmp_path / "trackio").mkdir()
    context_vars.current_run.set(None)
    yield sqlite_storage.SQLiteStorage
    context_vars.current_run.set(None)


def rows(storage: Any, project: str, run: Any) -> dict[int, Any]:
    logs = storage.get_logs(project, run.name, run_id=run.id)
    return {row["step"]: row.get("seismograd/loss") for row in logs if "seismograd/loss" in row}


def test_a_sick_run_of_its_own(storage: Any, capsys: pytest.CaptureFixture[str]) -> None:
    sink = Trackio("sick")
    watch = train(sink, sick=True, store=False)
    losses = rows(storage, "sick", sink._run)
    assert sorted(losses) == list(range(STEPS))
    assert [losses[step] != losses[step] or losses[step] == "NaN" for step in range(STEPS)] == [
        step >= BAD for step in range(STEPS)
    ]
    alerts = storage.get_alerts("sick")
    told = [alert for alert in alerts if "nonfinite-loss" in alert["title"]]
    assert len(told) == 1
    assert (told[0]["level"], told[0]["step"]) == ("error", BAD)
    assert "The loss is NaN at step 7" in told[0]["text"]
    (artifact,) = storage.get_artifacts("sick")
    assert artifact["name"] == f"seismograd-{watch.id}"
    with sqlite3.connect(storage.get_project_db_path("sick")) as database:
        kept = "\n".join(database.iterdump())
    assert "report.html" in kept
    assert "report.json" in kept
    assert capsys.readouterr().out == "", "stdout is the script's own"


def test_a_healthy_run_inside_the_users_own_whose_steps_do_not_move(storage: Any) -> None:
    import trackio

    run = trackio.init("mine", name="mine", auto_log_cpu=False, auto_log_gpu=False, embed=False)
    trackio.log({"accuracy": 0.1})
    sink = Trackio()
    train(sink, sick=False, store=False)
    trackio.log({"accuracy": 0.2})
    trackio.finish()
    own = {row["step"]: row["accuracy"] for row in storage.get_logs("mine", "mine", run_id=run.id) if "accuracy" in row}
    assert own == {0: 0.1, 1: 0.2}
    assert sorted(rows(storage, "mine", run)) == list(range(STEPS))
    assert storage.get_alerts("mine") == []
