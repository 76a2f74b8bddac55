"""Where the time of a step goes: phases that add up, each with what belongs to it."""

from __future__ import annotations

import gc
import io
import logging
import sys
import types
from threading import Thread
from time import perf_counter, sleep

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import seismograd as sg
from seismograd.probes.pack import Pack
from seismograd.probes.timing import PHASES, Timing
from seismograd.sinks import Memory

NAP = 0.02


class Napping(Dataset):
    """Every sample takes a nap, so that a phase's least time is known however busy the machine is."""

    def __init__(self, nap=NAP / 2):
        self.nap = nap

    def __len__(self):
        return 8

    def __getitem__(self, index):
        sleep(self.nap)
        return torch.full((3,), float(index)), index % 2


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        sleep(NAP)
        return self.inner(x)


@pytest.fixture(autouse=True)
def _read_in_full(monkeypatch):
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def watched(model, optimizer, program):
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory], detectors=[], replay=False) as watch:
        program()
    readings = [reading.scalars for reading in memory.readings if "time/step" in reading.scalars]
    return readings, watch.report()["performance"]


def summed(readings, phase):
    return sum(scalars.get(f"time/{phase}", 0.0) for scalars in readings)


def test_the_phases_add_up_to_the_step():
    model = Slow()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def program():
        for x, y in DataLoader(Napping(), batch_size=2):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            torch.save(model.state_dict(), io.BytesIO())
            with torch.no_grad():
                model(x)

    readings, performance = watched(model, optimizer, program)
    assert len(readings) == 4
    for scalars in readings:
        parts = sum(scalars.get(f"time/{phase}", 0.0) for phase in PHASES)
        assert parts == pytest.approx(scalars["time/step"], rel=1e-9)
    assert sum(performance["seconds"].values()) == pytest.approx(performance["seconds_per_reading"])
    assert performance["clock"] == "host"
    assert summed(readings, "data") >= 4 * NAP
    assert summed(readings, "forward") >= 4 * NAP
    assert summed(readings, "evaluation") >= 3 * NAP  # the last one comes after the last reading
    assert summed(readings, "checkpoint") > 0
    assert summed(readings, "watch") > 0
    assert all(0 <= scalars["time/stalled"] <= scalars["time/step"] for scalars in readings)


def test_a_reading_has_the_time_of_its_own_step_however_many_were_not_read(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("seismograd.probes.timing.perf_counter", lambda: clock[0])

    class Ticking(nn.Linear):
        def forward(self, x):
            clock[0] += 1.0
            return super().forward(x)

    models = Ticking(3, 2), Ticking(3, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    memory = Memory()
    with sg.watch(list(models), optimizers, sinks=[memory], replay=False, strict=True) as watch:
        watch.governor.spend(1e12)  # from here on it reads as seldom as it may
        for _ in range(100):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(torch.randn(4, 3)).square().mean().backward()
                optimizer.step()
    times = [reading.scalars["time/step"] for reading in memory.readings if "time/step" in reading.scalars]
    assert 2 <= len(times) < 10
    assert set(times) == {1.0}


def test_what_a_validation_waits_for_is_its_own():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fast, slow = DataLoader(Napping(0.0), batch_size=4), DataLoader(Napping(NAP), batch_size=4)

    def program():
        for _ in range(3):
            for x, y in fast:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                for x, y in slow:
                    F.cross_entropy(model(x), y)

    readings, _ = watched(model, optimizer, program)
    assert summed(readings, "evaluation") >= 2 * 8 * NAP
    assert summed(readings, "data") < summed(readings, "evaluation") / 4


def test_a_look_without_gradients_before_training_leaves_the_wait_with_the_step():
    """A teacher, a target network, a generator: called first, and then it is trained."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def program():
        for x, y in DataLoader(Napping(), batch_size=2):
            with torch.no_grad():
                model(x)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    readings, _ = watched(model, optimizer, program)
    assert summed(readings, "data") >= 4 * NAP


def test_a_closure_is_split_too():
    model = Slow()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    def program():
        for _ in range(4):
            optimizer.step(closure)

    readings, _ = watched(model, optimizer, program)
    assert summed(readings, "forward") >= 3 * NAP
    assert summed(readings, "optimizer") < summed(readings, "forward")
    for scalars in readings:
        parts = sum(scalars.get(f"time/{phase}", 0.0) for phase in PHASES)
        assert parts == pytest.approx(scalars["time/step"], rel=1e-9)


def test_another_threads_loader_is_not_waited_for():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])

    def program():
        reads = Thread(target=lambda: list(DataLoader(Napping(), batch_size=2)))
        reads.start()
        while reads.is_alive():
            optimizer.zero_grad()
            F.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()
        reads.join()

    readings, _ = watched(model, optimizer, program)
    assert summed(readings, "data") == 0.0


def test_a_loader_inside_a_dataset_is_waited_for_once():
    class Outer(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return next(iter(DataLoader(Napping(), batch_size=2)))[0]

    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def program():
        for x in DataLoader(Outer(), batch_size=1):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    began = perf_counter()
    readings, _ = watched(model, optimizer, program)
    assert 2 * NAP <= summed(readings, "data") <= perf_counter() - began


def test_a_forward_that_raises_is_over():
    timing = Timing()
    timing.begin("optimizer")
    timing.begin("forward")
    timing.end("optimizer")  # nobody said that the forward was over
    timing.end("forward")  # late, and without meaning
    pack = Pack()
    timing.read(pack)
    assert timing._phase == "rest"
    assert pack.host["time/step"] == pytest.approx(
        sum(pack.host[f"time/{phase}"] for phase in PHASES if f"time/{phase}" in pack.host)
    )
    timing.close()


def test_garbage_collection_is_timed_and_its_line_known():
    before = list(gc.callbacks)
    timing = Timing()
    gc.collect()
    collected_here = timing.collected_at
    pack = Pack()
    timing.read(pack)
    assert pack.host["time/gc"] > 0
    assert collected_here is not None
    assert collected_here.source.strip() == "gc.collect()"
    timing.close()
    assert gc.callbacks == before


def test_torch_save_is_put_back():
    model = nn.Linear(3, 2)
    save = torch.save
    with sg.watch(model, sinks=[]):
        assert torch.save is not save
    assert torch.save is torch.serialization.save is save


def test_what_the_watch_does_is_no_phase_of_the_loop():
    timing = Timing()
    began = perf_counter()
    timing.ours_begins()
    sleep(NAP)
    timing.begin("forward")
    sleep(NAP)
    taken = timing.ours_ended()
    timing.end("forward")
    pack = Pack()
    timing.read(pack)
    assert 2 * NAP <= taken <= perf_counter() - began
    assert pack.host["time/watch"] == pytest.approx(taken)
    timing.close()


def test_loggers_are_timed_once_they_are_there(monkeypatch):
    class Run:
        def log(self, values):
            sleep(NAP)

    monkeypatch.delitem(sys.modules, "wandb.sdk.wandb_run", raising=False)  # the real one, of another test
    handle, log = logging.Logger.handle, Run.log
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])

    def program():
        for step in range(12):
            if step == 3:  # imported late
                monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", types.SimpleNamespace(Run=Run))
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            Run().log({"loss": 1.0})

    readings, performance = watched(model, optimizer, program)
    assert summed(readings, "logging") >= 4 * NAP
    assert performance["seconds"]["logging"] > 0
    assert logging.Logger.handle is handle
    assert Run.log is log
