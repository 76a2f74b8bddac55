"""The service beside a real training: what is asked for happens in it, and how it ended is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from torch import nn

import seismograd as sg


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def test_a_watch_follows_and_its_end_is_told(client: TestClient, store: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step = step_of(model, optimizer)
    with pytest.raises(ValueError, match="boom"), sg.watch(model, optimizer, level="basic", store=store) as watch:  # noqa: PT012
        for _ in range(5):
            step()
        watch.flush()
        path = f"/api/runs/{watch.id}"
        assert client.get(path).json()["state"] == "live"
        for wish in ({"kind": "level", "value": "extreme"}, {"kind": "budget", "value": 0.5}):
            assert client.post(f"{path}/requests", json=wish).status_code == 202
        deadline = time.monotonic() + 30
        while (watch.level, watch.budget) != (sg.DebugLevel.EXTREME, 0.5):
            assert time.monotonic() < deadline
            step()
        watch.flush()
        told = client.get(path).json()
        assert (told["level"], told["budget"]) == ("extreme", 0.5)
        assert all(each["answer"] for each in client.get(f"{path}/requests").json()["requests"])
        raise ValueError("boom <b>")
    told = client.get(path).json()
    assert (told["state"], told["status"]) == ("ended", "crashed")
    assert told["exit"]["exception"] == "ValueError: boom <b>"
    assert client.get(f"{path}/report").json()["run"]["id"] == watch.id
