"""An offline run of W&B holds the metrics, the NaN, the findings as alerts and summary, and the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from seismograd.sinks import WandB

from .trainings import BAD, STEPS, train
from .wandb_files import records, rows, summary

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def service() -> Iterator[None]:
    """Its process is ended when the tests are over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        yield
        wandb.teardown()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def losses(found: Any) -> dict[int, Any]:
    return {row["seismograd/step"]: row["seismograd/loss"] for row in rows(found) if "seismograd/loss" in row}


def alerts(found: Any) -> list[Any]:
    return [record.alert for record in found if record.WhichOneof("record_type") == "alert"]


def the_users(folder: Path) -> Any:
    quiet = wandb.Settings(console="off", x_disable_stats=True)
    return wandb.init(project="mine", mode="offline", dir=folder, settings=quiet)


def test_a_sick_run_of_its_own(folder: Path) -> None:
    sink = WandB("trainings", mode="offline", dir=folder)
    train(sink, sick=True, store=False)
    assert wandb.run is None
    found = records(folder)
    loss = losses(found)
    assert sorted(loss) == list(range(STEPS))
    assert [loss[step] != loss[step] or loss[step] == "NaN" for step in range(STEPS)] == [
        step >= BAD for step in range(STEPS)
    ]
    told = [alert for alert in alerts(found) if "nonfinite-loss" in alert.title]
    assert len(told) == 1
    assert "The loss is NaN at step 7" in told[0].text
    last = summary(found)
    assert last["seismograd/status"] == "critical"
    assert "The loss is NaN" in last["seismograd/finding/nonfinite-loss"]
    (artifact,) = [r.artifact for r in found if r.WhichOneof("record_type") == "artifact"]
    assert {entry.path for entry in artifact.manifest.contents} == {"report.json", "report.html"}
    assert any(r.WhichOneof("record_type") == "exit" for r in found), "the run of its own was ended"


def test_a_run_that_was_stopped_is_told_as_one(folder: Path) -> None:
    def stop(step: int, loss: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(WandB("trainings", mode="offline", dir=folder), sick=False, store=False, each=stop)
    assert [r.exit.exit_code for r in records(folder) if r.WhichOneof("record_type") == "exit"] == [255]


def test_inside_the_users_run_no_step_of_theirs_moves_and_it_stays_open(folder: Path) -> None:
    run = the_users(folder)
    train("wandb", sick=False, store=False, each=lambda step, loss: run.log({"own": loss}, step=10 * step))
    run.log({"own": 0.5}, step=1000)
    assert wandb.run is run
    run.finish()
    found = records(folder)
    own = {row["_step"]: row["own"] for row in rows(found) if "own" in row}
    assert sorted(own) == [*range(0, 10 * STEPS, 10), 1000]
    loss = losses(found)
    assert sorted(loss) == list(range(1, STEPS)), "one for each row of theirs, the newest before it ends"
    assert all(0 < value < 10 for value in loss.values())
    assert alerts(found) == []
    assert summary(found)["seismograd/status"] == "healthy"


@pytest.mark.parametrize(("share", "more"), [(1e-9, 0), (float("inf"), STEPS - 5)], ids=["dear", "free"])
def test_in_a_long_run_of_the_users_it_takes_its_share_of_the_time_and_no_more(
    share: float, more: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seismograd.sinks.wandb._AT_LEAST", 5)
    monkeypatch.setattr("seismograd.sinks.wandb._SHARE", share)
    run = the_users(folder)
    sink = WandB()
    train(sink, sick=True, store=False, each=lambda step, loss: run.log({"own": loss}))
    run.finish()
    assert (sink.written, sink.thinned) == (5 + more, STEPS - 5 - more)
    found = records(folder)
    assert len([row for row in rows(found) if "own" in row]) == STEPS
    assert len(losses(found)) == sink.written
    assert [alert.title for alert in alerts(found) if "nonfinite-loss" in alert.title]  # whatever was left out
    assert summary(found)["seismograd/status"] == "critical"


@pytest.mark.parametrize("end", ["finish", "with"])
def test_a_run_that_the_script_finishes_before_the_watch_ends_has_findings_and_report(folder: Path, end: str) -> None:
    run = the_users(folder)

    def each(step: int, loss: float) -> None:
        run.log({"own": loss})
        if step == STEPS - 1:
            run.finish() if end == "finish" else run.__exit__(None, None, None)

    train("wandb", sick=True, store=False, each=each)
    assert "_finish" not in vars(run)
    found = records(folder)
    assert len(losses(found)) == STEPS
    assert [alert.title for alert in alerts(found) if "nonfinite-loss" in alert.title]
    assert summary(found)["seismograd/status"] == "critical"
    assert [r.artifact.type for r in found if r.WhichOneof("record_type") == "artifact"] == ["report"]


def test_nothing_stays_in_a_run_of_the_users(folder: Path) -> None:
    run = the_users(folder)
    train("wandb", sick=False, store=False)
    assert "_finish" not in vars(run)
    run.finish()


def test_a_run_that_was_finished_too_early_is_said(folder: Path) -> None:
    run = the_users(folder)
    with pytest.warns(RuntimeWarning, match="finished before the watch was closed: what came after"):
        watch = train("wandb", sick=False, store=False, each=lambda step, _: run.finish() if step == 5 else None)
    assert watch.status == "healthy"
    assert sorted(losses(records(folder))) == [5], "without a row of theirs the last one stays"
