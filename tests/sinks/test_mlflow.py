"""MLflow's own client finds the metrics, the NaN, the findings as tags and text, and the report as an artifact."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from seismograd.records import Reading
from seismograd.sinks import MLflow
from seismograd.sinks import relay as module

from .trainings import BAD, STEPS, train

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where artifacts go
        uri = f"sqlite:///{folder}/mlflow.db"
        mlflow.set_tracking_uri(uri)
        mlflow.MlflowClient().search_experiments()  # makes the tables, once for all tests
        yield uri
        mlflow.set_tracking_uri(before)


@pytest.fixture(autouse=True)
def in_its_folder(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(tracking.removeprefix("sqlite:///")).parent)


def history(run: str, name: str) -> list[Any]:
    return sorted(mlflow.MlflowClient().get_metric_history(run, name), key=lambda each: each.step)


def artifact(run: str, name: str) -> str:
    return Path(mlflow.MlflowClient().download_artifacts(run, f"seismograd/{name}")).read_text()


def test_a_sick_run_of_its_own(tracking: str) -> None:
    sink = MLflow(tracking, experiment="sick")
    watch = train(sink, sick=True, store=False)
    assert sink.run_id is not None
    run = mlflow.MlflowClient().get_run(sink.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "training")
    assert mlflow.get_experiment(run.info.experiment_id).name == "sick"
    loss = history(sink.run_id, "seismograd/loss")
    assert [each.step for each in loss] == list(range(STEPS))
    assert [math.isnan(each.value) for each in loss] == [step >= BAD for step in range(STEPS)]
    assert run.data.tags["seismograd.status"] == "critical"
    assert run.data.tags["seismograd.run"] == watch.id
    assert "The loss is NaN at step 7" in run.data.tags["seismograd.finding.nonfinite-loss"]
    assert "critical[nonfinite-loss]" in artifact(sink.run_id, "findings.md")
    assert json.loads(artifact(sink.run_id, "report.json"))["run"]["status"] == "critical"
    assert "nonfinite-loss" in artifact(sink.run_id, "report.html")
    assert mlflow.active_run() is None


def test_a_healthy_run_inside_the_users_own_which_stays_open() -> None:
    with mlflow.start_run() as active:
        train("mlflow", sick=False, store=False)
        mlflow.log_metric("accuracy", 0.5)
        run = mlflow.MlflowClient().get_run(active.info.run_id)
        assert run.info.status == "RUNNING"
    assert len(history(active.info.run_id, "seismograd/loss")) == STEPS
    run = mlflow.MlflowClient().get_run(active.info.run_id)
    assert run.data.metrics["accuracy"] == 0.5
    assert run.data.tags["seismograd.status"] == "healthy"
    assert not any(tag.startswith("seismograd.finding.") for tag in run.data.tags)


def test_names_that_mlflow_refuses_and_infinity_are_kept_as_well_as_can_be(tracking: str) -> None:
    sink = MLflow(tracking)
    sink.begin({"id": "r", "name": "odd"}, lambda *_: None, pytest.fail)
    sink.write_reading(Reading(3, {"acc@1 (%)": 0.5, "loss": math.inf}))
    sink.close({"run": {"status": "crashed"}})
    assert sink.run_id is not None
    run = mlflow.MlflowClient().get_run(sink.run_id)
    assert run.data.metrics["seismograd/acc_1 ___"] == 0.5
    assert run.data.metrics["seismograd/loss"] > 1e308
    assert run.info.status == "FAILED"


def stop(step: int, loss: float) -> None:
    if step == 5:
        raise KeyboardInterrupt


def test_a_run_that_was_stopped_is_told_as_one(tracking: str) -> None:
    sink = MLflow(tracking)
    with pytest.raises(KeyboardInterrupt):
        train(sink, sick=False, store=False, each=stop)
    assert sink.run_id is not None
    run = mlflow.MlflowClient().get_run(sink.run_id)
    assert (run.info.status, run.data.tags["seismograd.status"]) == ("KILLED", "healthy")


_WRITES = """
import sys
from seismograd.records import Reading
from seismograd.sinks import MLflow
sink = MLflow(sys.argv[1])
sink.begin({"id": sys.argv[2], "name": sys.argv[2]}, lambda *_: None, print)
sink.write_reading(Reading(0, {"loss": 1.0}))
assert sink.flush(120)
sink.close({"run": {"status": "healthy"}})
"""


def test_two_first_runs_at_once_leave_the_database_whole(tmp_path: Path) -> None:
    """MLflow itself does not lock it: each would make its tables, and neither could be read again."""
    where = f"sqlite:///{tmp_path / 'new.db'}"
    both = [
        subprocess.Popen([sys.executable, "-c", _WRITES, where, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    ended = [each.communicate(timeout=240) for each in both]
    assert [each.returncode for each in both] == [0, 0], ended
    runs = mlflow.MlflowClient(where).search_runs(["0"])
    assert {run.info.run_name for run in runs} == {"a", "b"}


def test_a_server_that_is_not_there_is_said_once_and_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LITTLE_PATIENCE", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.warns(RuntimeWarning) as told:
        watch = train(MLflow(f"http://127.0.0.1:{port}"), sick=False, store=False, each=lambda *_: pause(0.1))
    assert watch.status == "healthy"
    texts = [str(each.message) for each in told]
    assert len(texts) == 2
    assert (
        "MLflow cannot be written to at present, training goes on (ConnectionError: no server answers at " in texts[0]
    )
    assert "MLflow does not have 12 readings, the report, the run is over" in texts[1]
    assert "sink_trouble" in {event["event_type"] for event in watch.events}


def test_a_server_that_never_answers_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    told: list[str] = []
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        sink = MLflow(f"http://127.0.0.1:{mute.getsockname()[1]}")
        sink.begin({"id": "r", "name": "n"}, lambda *_: None, told.append)
        sink.write_reading(Reading(0, {"loss": 1.0}))
        sink.close({"run": {}})
    assert told
    assert "MLflow does not have" in told[-1]
    assert sink._thread is not None
    sink._thread.join(20)


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)
