"""What our own sinks wrote is read back, and the verdict is the one that the watch had."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.sinks import JSONLines, TensorBoard


@pytest.mark.parametrize("to_events", [False, True], ids=["lines", "events"])
@pytest.mark.parametrize("sick", [False, True], ids=["healthy", "sick"])
def test_a_run_that_a_sink_wrote_has_the_same_verdict(sick: bool, to_events: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 4)
    path = tmp_path / ("events" if to_events else "run.jsonl")
    sink = TensorBoard(path) if to_events else JSONLines(path)
    with sg.watch(model, optimizer, sinks=[sink], name="mine", store=False) as watch:
        for step in range(30):
            optimizer.zero_grad()
            error = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            (error * math.nan if sick and step >= 20 else error).backward()
            optimizer.step()
    run = sg.read_log(path)
    assert (run.name, run.steps) == ("events" if to_events else "mine", 30)
    assert run.status == watch.status == ("critical" if sick else "healthy")
    loss = run.series("loss")["loss"]
    assert list(loss.steps) == list(range(30))
    assert [math.isnan(value) for value in loss.last] == [sick and step >= 20 for step in range(30)]
    found = {(finding.id, finding.step) for finding in run.findings()}
    assert found <= {(finding.id, finding.step) for finding in watch.findings}  # it has no tensors to judge by
    assert (("nonfinite-loss", 20) in found) is sick
    assert "grad/norm" in run.names()
