"""Traps on the host's side: what the source of a step shows, and torch's settings."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd.onlookers.resources import traps
from seismograd.onlookers.resources.habits import habits
from seismograd.onlookers.resources.traps import told_of
from seismograd.places import Spot, chain

LOOP = """
def train(model, loader, optimizer, device):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        noise = torch.zeros(4, 3).to(device)
        ready = torch.zeros(4, device=device).cuda()
        with torch.autocast("cuda"):
            loss = model(x + noise).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 100 == 0:
            print(loss.item())
        print(f"loss {loss}")
        correct = sum(float(one) for one in y)
        for row in y:
            total += row.item()
    return total.item()
"""


def around(source, line, name="<ipython-input-traps>"):
    """Where the code of `source` stands at a line that holds this text."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    number = next(at for at, text in enumerate(source.splitlines(), 1) if line in text)
    code = compile(source, name, "exec")
    inner = next(constant for constant in code.co_consts if hasattr(constant, "co_code"))
    spots = [at for at, place in enumerate(inner.co_positions()) if place[0] == number]
    return Spot(inner, 2 * spots[-1])


def test_what_is_done_at_every_step():
    found = habits([around(LOOP, "optimizer.step()")])
    assert [(habit.kind, habit.name, habit.code, habit.inner) for habit in found] == [
        ("elsewhere", "torch.zeros", "noise = torch.zeros(4, 3).to(device)", False),
        ("sync", ".item()", "total += loss.item()", False),
        ("sync", "print()", 'print(f"loss {loss}")', False),
        ("sync", ".item()", "total += row.item()", True),
    ]


def test_a_step_in_a_function_of_its_own():
    source = "def step(x):\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n    return loss.item()\n"
    inner = around(source, "optimizer.step()")
    outer = around(LOOP, "loss.backward()", "<ipython-input-outer>")
    found = habits([inner, outer])
    assert found[0].code == "return loss.item()"
    assert len(found) == 5


def test_without_source_nothing_is_known():
    code = compile("optimizer.step()", "<nowhere>", "exec")
    assert habits([Spot(code, 2)]) == []
    assert habits([]) == []


def test_on_a_cpu_nothing_waits_but_a_loop_over_elements():
    habit, *_, inner = habits([around(LOOP, "optimizer.step()")])[1:]
    assert told_of(habit, "cpu", slow=True) is None
    assert told_of(inner, "cpu", slow=False) is None
    assert "one by one" in told_of(inner, "cpu", slow=True)["message"]
    assert "waits until the device" in told_of(habit, "cuda", slow=False)["message"]
    assert told_of(habit, "cuda", slow=False)["line"] == 11


def report(model, steps=16, **patches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 3), torch.randint(0, 2, (64,))
    with sg.watch(model, optimizer, sinks=[], replay=False, strict=True) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()
    return watch.report()["performance"]["traps"]


def test_a_plain_loop_on_a_cpu_has_none(monkeypatch):
    monkeypatch.setattr(traps, "allowed_processors", lambda: 64)
    assert report(nn.Linear(3, 2)) == []


def test_more_threads_than_cores(monkeypatch):
    monkeypatch.setattr(traps, "allowed_processors", lambda: 0)
    (trap,) = report(nn.Linear(3, 2))
    assert trap["kind"] == "threads"
    assert set(trap) == {"kind", "message", "file", "line", "code", "share", "try"}


@pytest.mark.parametrize("steps", [11, 40])
def test_elements_taken_out_one_by_one(monkeypatch, steps):
    monkeypatch.setattr(traps, "allowed_processors", lambda: 64)
    monkeypatch.setattr(traps, "_LEAST", 0.0)
    monkeypatch.setattr(traps, "_REST", 0.0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 3), torch.randint(0, 2, (64,))
    right = 0
    with sg.watch(model, optimizer, sinks=[], replay=False, strict=True) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            output = model(x)
            F.cross_entropy(output, y).backward()
            optimizer.step()
            for row, label in zip(output, y, strict=True):
                right += row.argmax().item() == label.item()
    found = watch.report()["performance"]["traps"]
    if steps < traps.AFTER:
        assert found == []
        return
    assert {trap["code"] for trap in found} == {"right += row.argmax().item() == label.item()"}
    assert all(trap["file"].endswith("test_traps.py") for trap in found)


def test_narrow_numbers_on_a_cpu_that_has_them(monkeypatch):
    monkeypatch.setattr(traps, "allowed_processors", lambda: 64)
    monkeypatch.setattr(traps, "has_narrow_matrices", lambda: True)
    monkeypatch.setattr(traps, "_LONG", 0.0)
    assert report(nn.Linear(3, 2)) == []
    wide = nn.Sequential(nn.Linear(3, 1000), nn.Linear(1000, 1000), nn.Linear(1000, 2))
    (trap,) = report(wide)
    assert trap["kind"] == "fp32-matmul"
    assert "bfloat16" in trap["try"]


def test_the_users_frames():
    import sys

    assert chain(sys._getframe())[0].file.endswith("test_traps.py")
