"""The debugger as a whole: its report, its sinks, its use by hand."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import seismograd as sg


@pytest.fixture
def loop():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 8)
    y = (x[:, 0] > 0).long()

    def step(scale=1.0):
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) * scale).backward()
        optimizer.step()

    return model, optimizer, step


def test_the_report_has_the_shape_of_the_design_and_is_strict_json(loop):
    model, optimizer, step = loop
    with sg.watch(model, optimizer, sinks=[], name="mine") as watch:
        for _ in range(12):
            step()
        step(math.nan)
    report = json.loads(json.dumps(watch.report(), allow_nan=False))
    assert {"schema", "version", "run", "findings", "summary", "events", "memory", "performance"} <= set(report)
    run = report["run"]
    assert (run["name"], run["status"], run["steps"], run["ranks"], run["level"]) == (
        "mine",
        "critical",
        13,
        1,
        "advanced",
    )
    assert run["ended"] >= run["started"]
    assert run["overhead"]["budget"] == 0.05
    assert 0 < run["overhead"]["measured"] < 1
    finding = report["findings"][0]
    assert set(finding) == {
        "id", "severity", "step", "last_step", "count", "rank", "where", "message", "evidence", "recommendations",
    }  # fmt: skip
    assert set(finding["where"]) == {"module", "parameter", "op", "phase", "file", "line", "code"}
    assert "NaN" in json.dumps(report["findings"])
    assert report["performance"]["steps_per_second"] > 0
    assert report["performance"]["seconds"]["backward"] > 0
    assert report["memory"][0]["memory/rss"] > 1e6


def test_an_exception_in_the_loop_is_recorded_and_passed_on(loop):
    model, optimizer, step = loop
    with pytest.raises(ValueError, match="mine"), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        step()
        raise ValueError("mine")
    run = watch.report()["run"]
    assert run["status"] == "crashed"
    assert run["exit"] == {"code": 1, "exception": "ValueError: mine"}


def test_findings_reach_the_terminal_logging_and_a_function(loop, capsys, caplog):
    model, optimizer, step = loop
    told = []
    with caplog.at_level(logging.INFO, "seismograd"), sg.watch(model, optimizer):
        step()
        step(math.nan)
    out, err = capsys.readouterr()
    assert out == "", "stdout is the script's own"
    assert "nonfinite-loss" in err
    assert "nonfinite-loss" in caplog.text
    with sg.watch(model, optimizer, sinks=told.append):
        step()
    assert {finding.id for finding in told} >= {"nonfinite-loss"}


def test_a_healthy_run_says_nothing(loop, capsys):
    model, optimizer, step = loop
    with sg.watch(model, optimizer) as watch:
        for _ in range(50):
            step()
    assert capsys.readouterr() == ("", "")
    assert watch.status == "healthy"


def test_one_fault_is_one_finding(loop):
    model, optimizer, step = loop
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            step()
        for _ in range(4):
            step(math.nan)
    loss = [finding for finding in watch.findings if finding.id == "nonfinite-loss"]
    assert len(loss) == 1
    assert (loss[0].step, loss[0].last_step, loss[0].count) == (5, 8, 4)


def test_methods_of_a_watch_need_a_watch():
    with pytest.raises(RuntimeError, match=r"observe\(\) belongs to a watch"):
        sg.TrainingDebugger().observe(1.0)


def test_numpy_loops_are_judged_by_the_same_detectors():
    debugger = sg.TrainingDebugger(strict=True)
    for step in range(12):
        debugger.step(step=step, loss=1.0 / (step + 1), gradients={"w": np.ones((3, 3))}, learning_rate=0.1)
    debugger.step(step=12, loss=math.inf, gradients={"w": np.full((3, 3), np.inf)}, learning_rate=0.1)
    ids = [finding.id for finding in debugger.findings]
    assert "nonfinite-loss" in ids
    assert "nonfinite-gradient" in ids
    report = debugger.report()
    assert report["status"] == "critical"
    assert "LOSS_EXPLOSION" in report["issues"]
    assert not report["gradient_healthy"]
    assert report["run"]["steps"] == 13


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        ((0, 1, 2, 0, 1, 2, 0), (0, 1, 2, 3, 4, 5, 6)),  # epochs
        ((1, 2, 3, 1, 2), (1, 2, 3, 4, 5)),
        ((100, 101, 90, 91), (100, 101, 102, 103)),  # before where it began
        ((0, 1, 2, 3, 2, 3, 4), (0, 1, 2, 3, 2, 3, 4)),  # back to a checkpoint: they are the same steps
        ((0, 0, 1, 1), (0, 0, 1, 1)),  # two models
    ],
)
def test_steps_that_begin_anew_are_counted_through(told, counted, tmp_path):
    model = nn.Linear(2, 1)
    with (
        sg.TrainingDebugger(store=tmp_path, name="arrays", strict=True) as arrays,
        sg.TrainingDebugger(store=tmp_path, name="model", strict=True) as tensors,
    ):
        for step in told:
            arrays.step(step, 1.0, {"w": np.ones(3)}, 0.1)
            model(torch.ones(1, 2)).sum().backward()
            assert tensors.monitor_training_step(model, 1.0, step)["step"] == step
    for run in sg.runs(tmp_path):
        assert tuple(reading.step for reading in run.readings()) == counted, run.name
        assert run.steps >= len(set(counted))


def test_the_summary_counts_steps_not_findings(loop):
    model, optimizer, step = loop
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(8):
            step()
        step(math.nan)
        step(math.nan)
    summary = watch.get_training_summary()
    assert summary["total_steps"] == 10
    assert summary["anomaly_steps"] == 2
    assert summary["loss_anomalies"] == 2
    assert summary["anomaly_rate"] == pytest.approx(0.2)


def test_two_runs_in_one_process_are_told_apart(loop):
    model, optimizer, step = loop
    with sg.watch(model, optimizer, sinks=[]) as first:
        step()
    with sg.watch(model, optimizer, sinks=[]) as second:
        step()
        step()
    assert first.id != second.id
    assert (first.report()["run"]["steps"], second.report()["run"]["steps"]) == (1, 2)


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (SystemExit(3), 3), (SystemExit("text"), 1)])
def test_a_run_that_is_ended_has_not_crashed(loop, error, code):
    model, optimizer, step = loop
    with pytest.raises(type(error)), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        step()
        raise error
    run = watch.report()["run"]
    assert run["status"] == "healthy"
    assert run["exit"]["code"] == code
    assert type(error).__name__ in run["exit"]["exception"]


def test_a_gan_counts_steps_once():
    torch.manual_seed(0)
    models = [nn.Linear(2, 1), nn.Linear(2, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    with sg.watch(models, optimizers, sinks=[]) as watch:
        for _ in range(2):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                (model(torch.ones(1, 2)).sum() * math.nan).backward()
                optimizer.step()
    summary = watch.get_training_summary()
    assert (summary["total_steps"], summary["anomaly_steps"], summary["anomaly_rate"]) == (2, 2, 1.0)


def test_nothing_measured_is_not_zero():
    assert sg.TrainingDebugger().report()["run"]["overhead"]["measured"] is None
