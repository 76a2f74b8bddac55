"""Logs as the real writers write them: sick runs are found sick, healthy ones healthy."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seismograd as sg

from .writers import SICK, healthy, nan, overfitting, to_lightning_csv, to_mlflow, to_tensorboard

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*SwigPy.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:(mlflow|alembic|sqlalchemy|tensorboard)"),
]


def ids(run: sg.Run) -> list[str]:
    return [finding.id for finding in run.findings()]


@pytest.mark.parametrize("name", SICK)
@pytest.mark.parametrize("new_style", [False, True])
def test_a_sick_run_in_event_files(name: str, new_style: bool, tmp_path: Path) -> None:
    rows, finding = SICK[name]
    run = sg.read_log(to_tensorboard(rows(), tmp_path / "run", new_style=new_style))
    assert finding in ids(run)
    assert run.status != "healthy"


@pytest.mark.parametrize("name", SICK)
def test_a_sick_run_of_lightnings_csv_logger(name: str, tmp_path: Path) -> None:
    rows, finding = SICK[name]
    assert finding in ids(sg.read_log(to_lightning_csv(rows(), tmp_path)))


@pytest.mark.parametrize("name", SICK)
def test_a_sick_run_of_mlflow(name: str, tmp_path: Path) -> None:
    rows, finding = SICK[name]
    assert finding in ids(sg.read_log(to_mlflow(rows(), tmp_path)))


@pytest.mark.parametrize("every", [1, 50])
def test_a_healthy_run_is_healthy_everywhere(every: int, tmp_path: Path) -> None:
    for log in (
        to_tensorboard(healthy(every=every), tmp_path / "events"),
        to_lightning_csv(healthy(every=every), tmp_path / "csv"),
        to_mlflow(healthy(every=every), tmp_path),
    ):
        run = sg.read_log(log)
        assert (run.status, ids(run)) == ("healthy", []), log
        assert run.steps == 300 * every
        assert len(run.series("loss")["loss"]) == 300
        assert set(run.names()) >= {"loss", "val_loss", "grad/norm", "lr/0"}


def test_the_values_are_those_that_were_logged(tmp_path: Path) -> None:
    logged = [(step, row["loss"]) for step, row in healthy(40)]
    run = sg.read_log(to_lightning_csv(healthy(40), tmp_path))
    assert [(reading.step, reading.scalars["loss"]) for reading in run.readings()] == logged


def test_tensorflow_is_never_imported(tmp_path: Path) -> None:
    log = to_tensorboard(nan(), tmp_path / "run")
    program = (
        "import sys; sys.modules['tensorflow'] = None\n"  # whoever imports it fails
        "import seismograd as sg\n"
        f"print(*[f.id for f in sg.read_log({str(log)!r}).findings()])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["nonfinite-loss", "nonfinite-gradient"]


def test_the_newest_of_several_runs_is_read_unless_another_is_named(tmp_path: Path) -> None:
    import os

    logs = tmp_path / "lightning_logs"
    to_tensorboard(nan(), logs / "version_0")
    to_tensorboard(healthy(), logs / "version_1")
    for file in (logs / "version_0").iterdir():
        os.utime(file, (1, 1))
    newest = sg.read_log(logs)
    assert (newest.status, newest.name) == ("healthy", "version_1")
    assert any("of 2 runs the newest is read, 'version_1'" in event["message"] for event in newest.events())
    assert sg.read_log(logs, run="version_0").status == "critical"
    with pytest.raises(sg.logs.LogError, match=r"no run 'version_9'.*'version_0', 'version_1'"):
        sg.read_log(logs, run="version_9")


def test_the_sides_of_a_run_in_folders_of_their_own(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    keras = tmp_path / "keras"
    with SummaryWriter(str(keras / "train")) as train, SummaryWriter(str(keras / "validation")) as validation:
        for epoch, row in overfitting():
            train.add_scalar("epoch_loss", row["loss"], epoch)
            validation.add_scalar("epoch_loss", row["val_loss"], epoch)
    assert ids(sg.read_log(keras)) == ["overfitting"]
    together = tmp_path / "together"
    with SummaryWriter(str(together)) as writer:
        for epoch, row in overfitting():
            writer.add_scalars("Loss", {"train": row["loss"], "val": row["val_loss"]}, epoch)
            writer.add_scalar("speed", 1.0, epoch)
    assert ids(sg.read_log(together)) == ["overfitting"]


def test_the_folder_of_settings_is_no_run_of_its_own(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for trial in range(2):
        with SummaryWriter(str(tmp_path / f"trial{trial}")) as writer:
            for step, row in nan() if trial else healthy():
                writer.add_scalar("loss", row["loss"], step)
            writer.add_hparams({"lr": 0.1}, {"hparam/loss": 0.3})
    for log in (tmp_path, tmp_path / "trial1"):
        run = sg.read_log(log)
        assert (run.name, ids(run)) == ("trial1", ["nonfinite-loss"])
    assert sg.read_log(tmp_path, run="trial0").status == "healthy"


def test_scalars_without_a_step_are_counted(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for _, row in nan(at=80):
            writer.add_scalar("loss", row["loss"])
    (found,) = sg.read_log(tmp_path).findings()
    assert (found.id, found.step) == ("nonfinite-loss", 80)


def test_a_run_of_mlflow_by_id_name_or_experiment(tmp_path: Path) -> None:
    to_mlflow(nan(), tmp_path, "first")
    uri = to_mlflow(healthy(), tmp_path, "second")
    assert sg.read_log(uri).name == "second"
    assert sg.read_log(uri, run="first").status == "critical"
    assert sg.read_log(uri, run="trials").name == "second"
    assert sg.read_log(tmp_path / "mlflow.db", run="second").status == "healthy"
    with pytest.raises(sg.logs.LogError, match="no run or experiment 'third'"):
        sg.read_log(uri, run="third")


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(sg.logs.LogError, match=f"no server answers at http://127.0.0.1:{port}"):
        sg.read_log(f"http://127.0.0.1:{port}")


def test_an_infinity_survives_mlflow(tmp_path: Path) -> None:
    uri = to_mlflow(iter([(step, {"loss": 1.0 if step < 30 else math.inf}) for step in range(40)]), tmp_path)
    (found,) = sg.read_log(uri).findings()
    assert (found.id, found.step, found.evidence["loss"]) == ("nonfinite-loss", 30, "Infinity")


def trained(folder: Path, **arguments: Any) -> Path:
    """The state that a real Trainer leaves behind."""
    import torch
    from torch import nn
    from transformers import Trainer, TrainingArguments

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            out = self.layer(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = [{"x": each, "labels": each.sum().reshape(1)} for each in x]
    if arguments.pop("sick", False):
        data[40]["x"] = torch.full((4,), math.nan)
    args = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=4,
        per_device_train_batch_size=8,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=8,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **arguments,
    )
    trainer = Trainer(model=Net(), args=args, train_dataset=data, eval_dataset=data[:16])
    trainer.train()
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
    return folder / "trainer_state.json"


@pytest.mark.filterwarnings("ignore")  # transformers warns of its own dependencies
def test_the_state_of_a_hugging_face_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = trained(tmp_path / "healthy")
    run = sg.read_log(state)
    history = json.loads(state.read_text())["log_history"]
    assert "train_loss" in history[-1]  # a mean of all, which is no reading
    assert run.status == "healthy"
    assert list(run.series("loss")["loss"].last) == [row["loss"] for row in history if "loss" in row]
    assert list(run.series("val_loss")["val_loss"].last) == [row["eval_loss"] for row in history if "eval_loss" in row]
    sick = sg.read_log(trained(tmp_path / "sick", sick=True, logging_nan_inf_filter=False).parent)
    assert "nonfinite-loss" in ids(sick)
    hidden = sg.read_log(trained(tmp_path / "hidden", sick=True))  # by default NaN losses are filtered out
    assert ids(hidden) == ["nonfinite-gradient"]
