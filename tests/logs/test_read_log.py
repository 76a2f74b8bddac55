"""What logs look like: names, missing values, steps that begin anew, files that are no logs."""

from __future__ import annotations

import contextlib
import json
import math
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seismograd as sg
from seismograd.detectors import by_id
from seismograd.logs import LogError
from seismograd.logs.names import is_loss, is_validation_loss
from seismograd.logs.read import JUDGED

from .writers import ODD, diverging, flat, healthy, nan, overfitting


def ids(run: sg.Run) -> list[str]:
    return [finding.id for finding in run.findings()]


def notes(run: sg.Run) -> str:
    return "\n".join(event["message"] for event in run.report()["events"])


def csv(path: Path, rows: Iterator[tuple[int, dict[str, float]]], header: str = "step,loss,grad_norm,lr") -> Path:
    names = header.split(",")[1:]
    lines = [",".join([str(step), *(str(row.get(name, "")) for name in names)]) for step, row in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def jsonl(path: Path, records: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["loss", "Loss", "train_loss", "train/loss", "Loss/train", "training_loss", "train_loss_step", "trainLoss"]
)
def test_names_of_a_training_loss(name: str) -> None:
    assert is_loss(name)
    assert not is_validation_loss(name)


@pytest.mark.parametrize(
    "name", ["val_loss", "eval/loss", "eval_loss", "Loss/val", "validation/epoch_loss", "valLoss", "va_loss"]
)
def test_names_of_a_validation_loss(name: str) -> None:
    assert is_validation_loss(name)
    assert not is_loss(name)


@pytest.mark.parametrize("name", ["accuracy", "loss_scale", "loss_g", "policy_loss", "closs", "lossy", "val_accuracy"])
def test_names_of_neither(name: str) -> None:
    assert not is_loss(name)
    assert not is_validation_loss(name)


def test_no_loss_and_two_losses_are_errors_that_say_what_to_give(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,loss_g,loss_d,speed\n0,1,2,3\n1,1,2,3\n")
    with pytest.raises(LogError, match=r"no column that looks like the training loss.*loss=.*'loss_g' \(2\)"):
        sg.read_log(path)
    assert sg.read_log(path, loss="loss_g").steps == 2
    path.write_text("step,loss,train_loss\n0,1,2\n1,1,2\n")
    with pytest.raises(LogError, match=r"more than one training loss: 'loss' \(2\), 'train_loss' \(2\).*loss='loss'"):
        sg.read_log(path)
    with pytest.raises(LogError, match=r"loss='lss' is no column of .*'train_loss'"):
        sg.read_log(path, loss="lss")


def test_a_mean_of_epochs_beside_the_steps_is_not_the_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,train_loss_step,train_loss_epoch\n0,1.5,\n1,1.4,\n1,,1.45\n2,1.3,\n3,1.2,\n3,,1.25\n")
    run = sg.read_log(path)
    assert run.series("loss")["loss"].last.tolist() == [1.5, 1.4, 1.3, 1.2]
    assert "'train_loss_epoch' could be a loss too" in notes(run)


def test_columns_of_another_name(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", nan(), "tick,loss,grad_norm,lr")
    path.write_text(path.read_text().replace("loss", "cost").replace("grad_norm", "gn"))
    run = sg.read_log(path, loss="cost", step="tick", names={"grad/norm": "gn"})
    assert ids(run) == ["nonfinite-loss", "nonfinite-gradient"]
    with pytest.raises(LogError, match="step='tock' is no column"):
        sg.read_log(path, step="tock")


# -- what is missing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["nan", "NaN", "NAN", "inf", "-Infinity", "tensor(nan)", "tensor(nan, device='cuda:0')"]
)
def test_a_loss_that_is_not_finite_is_found_however_it_is_spelled(word: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'step,loss\n0,1.0\n1,0.9\n2,"{word}"\n')
    (found,) = sg.read_log(tmp_path / "a.csv").findings()
    assert (found.id, found.step) == ("nonfinite-loss", 2)
    jsonl(tmp_path / "a.jsonl", [{"step": 0, "loss": 1.0}, {"step": 1, "loss": word}])
    assert ids(sg.read_log(tmp_path / "a.jsonl")) == ["nonfinite-loss"]


def test_a_value_that_is_missing_is_absent(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss,grad_norm\n0,1.0,2.0\n1,,2.0\n2,n/a,\n3,0.8,\n")
    scalars = {reading.step: dict(reading.scalars) for reading in sg.read_log(tmp_path / "a.csv").readings()}
    assert scalars == {0: {"loss": 1.0, "grad/norm": 2.0}, 1: {"grad/norm": 2.0}, 3: {"loss": 0.8}}
    run = sg.read_log(jsonl(tmp_path / "a.jsonl", [{"step": 0, "loss": 1.0}, {"step": 1, "loss": None, "lr": 0.1}]))
    assert run.series("loss")["loss"].steps.tolist() == [0]
    assert "1 rows have null as their 'loss'" in notes(run)


def _filled(rows: Iterable[Mapping[str, float]]) -> list[dict[str, float]]:
    """As a table of pandas is: NaN wherever a row has nothing."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, math.nan) for name in names} for row in rows]


def _of_lightning(sick_from: int) -> Iterator[dict[str, float]]:
    for step, row in healthy(400, validate=100):
        worth = math.nan if step >= sick_from else 1.0
        if step % 50 == 0:
            yield {"step": step, "lr-Adam": 1e-3}
        if step % 10 == 9:
            yield {"step": step, "train_loss_step": worth * row["loss"]}
        if "val_loss" in row:
            yield {"step": step, "val_loss": worth * row["val_loss"], "val_acc": 0.5}
            yield {"step": step, "train_loss_epoch": worth * row["loss"]}


def _every_second(sick_from: int) -> Iterator[dict[str, float]]:
    for step, row in healthy():
        yield {"step": step, "lr": 1e-3, **({"loss": row["loss"]} if step % 2 and step < sick_from else {})}


def _validated(sick_from: int) -> Iterator[dict[str, float]]:
    for step, row in healthy():
        yield {"step": step, **row, **({"loss": math.nan} if step >= sick_from else {})}


@pytest.mark.parametrize("rows", [_of_lightning, _every_second, _validated])
@pytest.mark.parametrize("lines", [True, False])
def test_nan_that_only_fills_a_row_is_no_loss(
    rows: Callable[[int], Iterator[dict[str, float]]], lines: bool, tmp_path: Path
) -> None:
    def log(sick_from: int) -> Path:
        filled = _filled(rows(sick_from))
        if lines:
            return jsonl(tmp_path / "a.jsonl", filled)
        path = tmp_path / "a.csv"
        path.write_text("\n".join([",".join(filled[0]), *(",".join(map(str, row.values())) for row in filled)]))
        return path

    run = sg.read_log(log(1000))
    assert (run.status, ids(run)) == ("healthy", [])
    assert "NaN stands for a value that was not logged in" in notes(run)
    assert "validation loss is not finite" not in notes(run)
    (found,) = sg.read_log(log(205)).findings()
    assert found.id == "nonfinite-loss"
    assert 205 <= found.step < 215


def test_a_loss_that_is_nan_now_and_then_is_no_padding(tmp_path: Path) -> None:
    noise = random.Random(0)
    bad = [{"step": step, "loss": math.nan if noise.random() < 0.6 else row["loss"]} for step, row in healthy()]
    assert ids(sg.read_log(jsonl(tmp_path / "a.jsonl", bad))) == ["nonfinite-loss"]
    hole = [{"step": step, "loss": row["loss"]} for step, row in healthy()]
    for step in range(300):
        if step % 3 or 100 <= step < 150:
            hole[step]["loss"] = math.nan
    (found,) = sg.read_log(jsonl(tmp_path / "a.jsonl", hole)).findings()
    assert 98 < found.step < 103


def test_the_report_says_what_could_not_be_judged(tmp_path: Path) -> None:
    told = notes(sg.read_log(csv(tmp_path / "a.csv", healthy(every=20), "step,loss")))
    assert "not judged, as the log has no val_loss: overfitting" in told
    assert "no grad/norm: nonfinite-gradient, gradient-explosion" in told
    assert "logged every 20 steps" in told
    assert "need the model or the loop" in told


def test_what_a_log_is_too_short_for_is_said(tmp_path: Path) -> None:
    told = notes(sg.read_log(csv(tmp_path / "a.csv", iter([(0, {"loss": 2.3})]), "step,loss")))
    assert "only one value of loss: loss-explosion, loss-spike, loss-oscillation, loss-plateau" in told
    rows = [(step, {"loss": 1 / (1 + step), "val_loss": 1 / (1 + step)}) for step in range(7)]
    told = notes(sg.read_log(csv(tmp_path / "b.csv", iter(rows), "step,loss,val_loss")))
    assert "only 7 values of val_loss: overfitting" in told
    assert "has only" not in notes(sg.read_log(csv(tmp_path / "c.csv", healthy(), "step,loss")))


@pytest.mark.parametrize("length", [5, 6, 8, 10, 20, 30, 50, 52, 60, 100, 129])
def test_nothing_is_found_that_was_said_not_to_be_judged(tmp_path: Path, length: int) -> None:
    curves: dict[str, Callable[[int], float]] = {
        "multiplies": lambda step: 5.0**step if step < 200 else 5.0**200,
        "leaps": lambda step: 2.0 if step < length - 2 else 1e9,
        "spikes": lambda step: 50.0 if step == length - 2 else 2.0 + 0.01 * (step % 3),
        "swings": lambda step: 2.0 + (-1.0) ** step,
        "stays": lambda step: 2.3026,
        "turns": lambda step: 0.3 + abs(step - length / 3) / length,
    }
    for name, curve in curves.items():
        rows = ((step, {"loss": 1 / (1 + step) if name == "turns" else curve(step)}) for step in range(length))
        others = {"grad_norm": curve, "val_loss": curve}
        path = csv(
            tmp_path / f"{name}.csv",
            ((step, {**row, **{key: one(step) for key, one in others.items()}}) for step, row in rows),
            "step,loss,grad_norm,val_loss",
        )
        run = sg.read_log(path)
        short = [line for line in notes(run).splitlines() if "has only" in line]
        assert [each for each in ids(run) for line in short if each in line] == [], name


def test_each_finding_that_is_promised_is_found_by_numbers_alone(tmp_path: Path) -> None:
    def swinging() -> Iterator[tuple[int, dict[str, float]]]:
        for step in range(400):
            yield step, {"loss": 2.0 + (0.5 if step % 2 else -0.5)}

    def spike() -> Iterator[tuple[int, dict[str, float]]]:
        for step, row in healthy():
            yield step, {"loss": 90.0} if step == 200 else row

    def negative_rate() -> Iterator[tuple[int, dict[str, float]]]:
        for step, row in healthy():
            yield step, {**row, "lr": 1e-3 - 1e-5 * step}

    sick = [diverging, nan, flat, overfitting, swinging, spike, negative_rate]
    header = "step,loss,val_loss,grad_norm,lr"
    found = {
        each
        for number, rows in enumerate(sick)
        for each in ids(sg.read_log(csv(tmp_path / f"{number}.csv", rows(), header)))
    }
    assert found == set(JUDGED)


@pytest.mark.parametrize("name", ODD)
def test_healthy_runs_whose_logs_look_odd(name: str, tmp_path: Path) -> None:
    run = sg.read_log(jsonl(tmp_path / "a.jsonl", [dict(row) for row in ODD[name]()]))
    assert (run.status, ids(run)) == ("healthy", [])


def test_a_chart_that_wandb_exported_holds_a_curve_for_each_run(tmp_path: Path) -> None:
    names = [f"{run} - train/loss" for run in ("calm-sun-3", "calm - b")]
    header = ",".join(f'"{name}{more}"' for name in names for more in ("", "__MIN", "__MAX"))
    bad = {step: row["loss"] for step, row in nan()}
    lines = [",".join(map(str, (step, *3 * (row["loss"],), *3 * (bad[step],)))) for step, row in healthy(120)]
    (tmp_path / "a.csv").write_text("\n".join([f'"Step",{header}', *lines]))
    run = sg.read_log(tmp_path / "a.csv")
    assert (run.status, run.name, run.steps) == ("healthy", "calm-sun-3", 120)
    assert "of 2 runs the first is read, 'calm-sun-3'; run= takes another: 'calm - b'" in notes(run)
    assert ids(sg.read_log(tmp_path / "a.csv", run="calm - b")) == ["nonfinite-loss"]
    with pytest.raises(LogError, match="there are 'calm-sun-3', 'calm - b'"):
        sg.read_log(tmp_path / "a.csv", run="calm")


# -- steps -------------------------------------------------------------------------------------------------------------


def test_steps_that_begin_anew_with_each_epoch_are_counted_through(tmp_path: Path) -> None:
    rows = [(step % 50, {"loss": row["loss"], "epoch": step // 50}) for step, row in healthy(200)]
    for header in ("step,loss,epoch", "step,loss"):
        run = sg.read_log(csv(tmp_path / "a.csv", iter(rows), header))
        assert run.status == "healthy"
        assert run.series("loss")["loss"].steps.tolist() == list(range(200))
        assert "begin anew, with each epoch" in notes(run)


def test_a_run_that_went_on_from_a_checkpoint_has_one_course(tmp_path: Path) -> None:
    first = list(healthy(100))
    first[90:] = [(step, {"loss": 500.0}) for step in range(90, 100)]  # it was killed for that
    again = [(step, row) for step, row in healthy(200) if step >= 80]
    run = sg.read_log(csv(tmp_path / "a.csv", iter(first + again)))
    assert run.status == "healthy"
    assert run.series("loss")["loss"].steps.tolist() == list(range(200))
    assert "went on from step 80 after step 99" in notes(run)


def test_of_two_trainings_in_one_file_the_last_is_judged(tmp_path: Path) -> None:
    run = sg.read_log(csv(tmp_path / "a.csv", iter([*healthy(100), *nan(120)])))
    assert (ids(run)[0], run.steps) == ("nonfinite-loss", 120)
    assert "only the last one is judged" in notes(run)


def test_epochs_as_steps_and_rows_without_any(tmp_path: Path) -> None:
    run = sg.read_log(csv(tmp_path / "a.csv", overfitting(), "epoch,loss,val_loss"))
    assert ids(run) == ["overfitting"]
    (tmp_path / "b.csv").write_text("loss\n" + "\n".join(str(row["loss"]) for _, row in healthy(100)))
    counted = sg.read_log(tmp_path / "b.csv")
    assert counted.steps == 100
    assert "no column of steps" in notes(counted)


def test_a_flat_log_that_begins_late_is_no_plateau(tmp_path: Path) -> None:
    late = csv(tmp_path / "a.csv", ((step + 100_000, row) for step, row in flat()), "step,loss")
    run = sg.read_log(late)
    assert run.status == "healthy"
    assert run.check().status == "healthy"
    assert "does not begin with the run" in notes(run)
    assert ids(sg.read_log(csv(late, flat(), "step,loss"))) == ["loss-plateau"]


def test_steps_that_begin_anew_after_a_resume_are_counted_through(tmp_path: Path) -> None:
    rows = [(step if step < 120 else step - 120, row) for step, row in healthy(200)]
    run = sg.read_log(csv(tmp_path / "a.csv", iter(rows)))
    assert (run.status, run.steps) == ("healthy", 200)
    assert "after a resume: they are counted through" in notes(run)


@pytest.mark.parametrize("column", ["mode", "split", "kind"])
def test_a_column_tells_the_rows_of_training_from_those_of_validation(column: str, tmp_path: Path) -> None:
    lines: list[dict[str, object]] = []
    for epoch, row in overfitting():
        lines.append({column: "train", "epoch": epoch, "loss": row["loss"], "lr": 0.1})
        lines.append({column: "val", "epoch": epoch, "loss": row["val_loss"]})
    run = sg.read_log(jsonl(tmp_path / "a.jsonl", lines))
    assert ids(run) == ["overfitting"]
    assert run.series("loss")["loss"].last.tolist() == [row["loss"] for _, row in overfitting()]
    assert "'val/loss' as val_loss" in notes(run)
    text = [f"{column},epoch,loss", *(f"{each[column]},{each['epoch']},{each['loss']}" for each in lines)]
    (tmp_path / "a.csv").write_text("\n".join(text))
    assert ids(sg.read_log(tmp_path / "a.csv")) == ["overfitting"]
    only = jsonl(tmp_path / "b.jsonl", [each for each in lines if each[column] == "val"])
    assert sg.read_log(only).names() == ["loss"], "one side alone is what it says"


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_our_own_lines_are_read_as_the_readings_that_they_are(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [{"kind": "reading", "run": "w", "step": 0, "scalars": {"loss": 1.0}}]
    lines.append({"kind": "begin", "run": "x", "name": "mine"})
    for step, row in healthy(60):
        loss: object = "NaN" if step >= 40 else row["loss"]
        lines.append({"kind": "reading", "run": "x", "step": step, "rank": 0, "scalars": {"loss": loss}})
        lines[-1]["marks"] = ["amp-skipped"]
    lines.append({"kind": "finding", "id": "loss-spike", "step": 3, "run": "x"})
    run = sg.read_log(jsonl(tmp_path / "a.jsonl", lines))
    assert ids(run) == ["nonfinite-loss"]
    assert (run.names(), run.name, run.steps) == (["loss"], "mine", 60)
    assert next(run.readings()).marks == {"amp-skipped"}
    assert sg.read_log(tmp_path / "a.jsonl", run="w").steps == 1
    with pytest.raises(LogError, match=r"no run 'z' in .*'w', 'x'"):
        sg.read_log(tmp_path / "a.jsonl", run="z")


def test_lines_of_anybody(tmp_path: Path) -> None:
    nested = [{"global_step": step, "metrics": {"train": {"loss": row["loss"]}}} for step, row in nan()]
    assert ids(sg.read_log(jsonl(tmp_path / "a.jsonl", nested))) == ["nonfinite-loss"]
    printed = ["Loading...", *(f"INFO {{'loss': {row['loss']}, 'epoch': {step / 10}}}" for step, row in nan())]
    (tmp_path / "out.log").write_text("\n".join(printed))
    run = sg.read_log(tmp_path / "out.log")
    assert ids(run) == ["nonfinite-loss"]
    assert "1 lines hold no JSON object" in notes(run)
    keras = {name: [row[name] for _, row in overfitting()] for name in ("loss", "val_loss")}
    (tmp_path / "history.json").write_text(json.dumps(keras))
    assert ids(sg.read_log(tmp_path / "history.json")) == ["overfitting"]


# -- the run -----------------------------------------------------------------------------------------------------------


def test_it_is_a_run_like_any_other(tmp_path: Path) -> None:
    run = sg.read_log(csv(tmp_path / "a.csv", nan()), name="mine", ignore="nonfinite-gradient")
    assert isinstance(run, sg.Run)
    assert (run.name, run.status, run.live, run.lost) == ("mine", "critical", False, False)
    assert ids(run) == ["nonfinite-loss"]
    assert run.report()["run"]["status"] == "critical"
    assert [finding.id for finding in run.check().findings] == ["nonfinite-loss"]
    assert [f.id for f in run.check([by_id("nonfinite-gradient")]).findings if f.id != "nonfinite-loss"] == [
        "nonfinite-gradient"
    ]
    page = run.html(tmp_path / "a.html")
    assert "nonfinite-loss" in page
    assert "overfitting" in page  # what was not judged
    other = sg.read_log(csv(tmp_path / "b.csv", healthy(120)))
    assert run.compare(other).verdict == "parted"


def test_nothing_is_left_behind_unless_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = csv(tmp_path / "a.csv", nan())
    run = sg.read_log(path)
    assert list((tmp_path / "temporary").iterdir())
    del run
    assert not list((tmp_path / "temporary").iterdir())
    kept = sg.read_log(path, store=tmp_path / "store")
    assert [each.id for each in sg.runs(tmp_path / "store")] == [kept.id]


# -- what is no log ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl", "a.txt", "events.out.tfevents.1", "mlflow.db", "a"])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.text(max_size=200).map(str.encode),
        st.lists(st.sampled_from(["step", "loss", "1", "nan", ",", "\n", "{", "}", '"', ":", "[", "1e999", "\r"])).map(
            lambda words: "".join(words).encode()
        ),
    )
)
def test_garbage_is_an_error_that_says_so_and_never_another(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with contextlib.suppress(LogError):  # any other error is a failure
        sg.read_log(path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "there is no file or folder"),
        (lambda path: path.mkdir(), "no log was found in"),
        (lambda path: path.write_text(""), "is empty"),
        (lambda path: path.write_bytes(b"\0\1\2" * 99), "is no log that is known here"),
        (lambda path: path.write_text("1,2\n3,4\n"), "no names in its first line"),
        (lambda path: path.write_text("a,b\nx,y\n"), "no number below its first line"),
        (lambda path: (path.mkdir(), (path / "run-1.wandb").write_bytes(b":W&B\0")), "export the run"),
        (lambda path: sqlite3.connect(path).execute("create table a (b)").connection.commit(), "none of MLflow"),
    ],
)
def test_what_is_wrong_is_said(make: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    with pytest.raises(LogError, match=says):
        sg.read_log(path)


def test_wrong_arguments_are_said(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", healthy(10))
    for arguments, says in (
        ({"format": "xml"}, "format 'xml' is unknown"),
        ({"run": "x"}, "leave it out"),
        ({"format": "tensorboard"}, "no event file"),
        ({"format": "mlflow"}, "no database of SQLite"),
    ):
        with pytest.raises(LogError, match=says):
            sg.read_log(path, **arguments)
    with pytest.raises(LogError, match=r"no database .*nothing.db"):
        sg.read_log(f"sqlite:///{tmp_path}/nothing.db")
    assert not (tmp_path / "nothing.db").exists()
    store = sg.read_log(path, store=tmp_path / "store")
    with pytest.raises(LogError, match="is a store of Seismograd"):
        sg.read_log(tmp_path / "store" / "seismograd.db")
    assert math.isfinite(store.steps)


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seismograd", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_the_command(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", nan())
    done = command(
        *("read", "a.csv", "--fail-on", "critical", "--report", "r.json", "--html", "p.html", "--store", "s"),
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    assert "critical[nonfinite-loss]: The loss is NaN at step 80" in done.stdout
    assert "note: not judged, as the log has no val_loss" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["run"]["status"] == "critical"
    assert (tmp_path / "p.html").stat().st_size > 10_000
    shown = command("show", "a", "--store", "s", cwd=tmp_path)
    assert "nonfinite-loss" in shown.stdout, shown.stderr
    csv(tmp_path / "b.csv", healthy())
    assert command("read", "b.csv", "--fail-on", "warning", cwd=tmp_path).returncode == 0


def test_the_command_says_what_is_wrong_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss_g,loss_d\n0,1,2\n")
    done = command("read", "a.csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("seismograd: 'a.csv' has no column that looks like the training loss")
    assert "with --loss;" in done.stderr
    assert done.stderr.count("\n") == 1
