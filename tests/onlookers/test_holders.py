"""When the holders of memory are looked for, and what is told of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.onlookers.resources import holders
from seismograd.onlookers.resources.holders import Holders
from seismograd.records import Reading
from seismograd.sinks import Memory


@pytest.fixture(autouse=True)
def _read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


class Loop:
    """A tiny training; `facts` is what was told of holders, by step."""

    def __init__(self) -> None:
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.sink = Memory(1000)

    def watch(self) -> sg.TrainingDebugger:
        return sg.watch(self.model, self.optimizer, sinks=[self.sink], strict=True)

    def step(self) -> torch.Tensor:
        loss = self.model(torch.randn(8, 4)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    @property
    def facts(self) -> dict[int, dict[str, Any]]:
        return {r.step: dict(r.facts["holders"]) for r in self.sink.readings if "holders" in r.facts}


def onlooker(watch: sg.TrainingDebugger) -> Holders:
    assert watch._loop is not None
    return next(each for each in watch._loop._lookout._onlookers if isinstance(each, Holders))


def test_a_list_that_grows_is_told_of_within_some_tens_of_steps() -> None:
    loop, history = Loop(), []
    with loop.watch():
        for _ in range(60):
            history.append(loop.step())
    steps = [step for step, told in loop.facts.items() if any(each["name"] == "history" for each in told["growing"])]
    assert len(steps) >= 3
    assert steps[1] < 40
    told = loop.facts[steps[-1]]
    json.dumps(told, allow_nan=False)
    assert 0 < told["used"] < told["limit"]


def test_without_a_sign_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "_rises", lambda sign: False)
    loop, history = Loop(), []
    with loop.watch() as watch:
        for _ in range(60):
            history.append(loop.step())
        looks = onlooker(watch)._looks.number
    assert looks == 0
    assert loop.facts == {}


def test_looks_become_rare_where_nothing_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "_rises", lambda sign: True)
    loop = Loop()
    with loop.watch() as watch:
        for _ in range(300):
            loop.step()
        looks = onlooker(watch)._looks.number
    assert 2 <= looks <= 10
    assert all(not told["growing"] for told in loop.facts.values())


@pytest.mark.parametrize(
    ("numbers", "rises"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], True),
        ([1, 1, 1, 1, 2, 2, 2, 2], True),
        ([1, 2, 3, 4, 4, 5, 6, 7], False),
        ([5, 5, 5, 5, 5, 5, 5, 5], False),
        ([8, 7, 6, 5, 4, 3, 2, 1], False),
        ([1, 9, 2, 3, 4, 5, 6, 7], False),
        ([1, 2, 3], False),
    ],
)
def test_a_sign_rises_where_its_later_half_lies_above(numbers: list[int], rises: bool) -> None:
    assert holders._rises(numbers) is rises


def test_memory_is_read_by_phase_on_sampled_steps_above_basic() -> None:
    phases = {"memory/after_forward", "memory/after_backward", "memory/after_step"}
    loop = Loop()
    with loop.watch():
        for _ in range(30):
            loop.step()
    read = {name for reading in loop.sink.readings for name in reading.scalars if name.startswith("memory/")}
    assert {"memory/rss", "memory/own", *phases} <= read
    basic = Loop()
    with sg.watch(basic.model, basic.optimizer, level="basic", sinks=[basic.sink]):
        for _ in range(30):
            basic.step()
    read = {name for reading in basic.sink.readings for name in reading.scalars if name.startswith("memory/")}
    assert read == {"memory/rss", "memory/own"}


def test_the_reports_memory_spans_the_whole_run_and_stays_short() -> None:
    run = sg.TrainingDebugger(sinks=[])
    for step in range(5000):
        run._take(Reading(step, {"time/step": 0.01, "memory/rss": float(step)}))
    told = run.report()["memory"]
    steps = [each["step"] for each in told]
    assert len(steps) < 1000
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] > 4950
    assert all(each["memory/rss"] == each["step"] for each in told)
