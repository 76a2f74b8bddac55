"""Processors that may be used, threads that are at work, and quotas as the kernel writes them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import perf_counter

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd import sinks
from seismograd.memory.limits import folders_of
from seismograd.onlookers.resources import processors


@pytest.mark.parametrize(
    ("used", "number"),
    [
        ([1.0] * 16, 16),
        ([0.05] * 16, 16),
        ([1.0, 0.01, 0.0, 0.0], 1),
        ([0.9, 0.8, 0.02], 2),
        ([0.0] * 8, 0),
        ([], 0),
        ([0.1, 0.1, 0.09, 0.08, 0.0], 4),
    ],
)
def test_who_is_at_work(used, number):
    assert processors.at_work(used) == number


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setattr(processors, "_folders", lambda: (tmp_path,))
    return tmp_path


@pytest.mark.parametrize(("text", "paid"), [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None)])
def test_a_quota_of_the_second_version(group, text, paid):
    (group / "cpu.max").write_text(f"{text}\n")
    assert processors.quota() == paid


@pytest.mark.parametrize(("most", "paid"), [("150000", 1.5), ("-1", None)])
def test_a_quota_of_the_first_version(group, most, paid):
    (group / "cpu.cfs_quota_us").write_text(f"{most}\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert processors.quota() == paid


def test_a_quota_below_one_processor_still_allows_one(group):
    (group / "cpu.max").write_text("20000 100000\n")
    assert processors.allowed_processors() == 1


def test_being_held_back(group):
    assert processors.throttling() is None
    (group / "cpu.stat").write_text("nr_periods 200\nnr_throttled 50\nthrottled_time 9\n")
    assert processors.throttling() == (200, 50)


def test_folders_of_a_group(tmp_path):
    (tmp_path / "cpu" / "jobs" / "7").mkdir(parents=True)
    (tmp_path / "cgroup").write_text("3:cpu,cpuacct:/jobs/7\n2:memory:/elsewhere\n0::/\n")
    (tmp_path / "mountinfo").write_text(f"30 25 0:26 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n")
    top = tmp_path / "cpu"
    assert folders_of("cpu", tmp_path) == [top / "jobs" / "7", top / "jobs", top]
    assert folders_of("cpu", tmp_path / "nowhere") == []


def test_nothing_is_counted_where_no_more_is_set_up_than_there_is(monkeypatch):
    monkeypatch.setattr(processors, "EVERY", (0.0, 0.0))
    monkeypatch.setattr(processors, "_times", pytest.fail)
    monkeypatch.setattr(processors, "_within", lambda _: torch.get_num_threads())
    model = nn.Linear(4, 1)
    with sg.watch(model, sinks=[], strict=True):
        for _ in range(4):
            model(torch.randn(2, 4)).sum().backward()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="sets the processors of a thread")
def test_threads_at_work_and_the_line_that_sets_them(monkeypatch):
    monkeypatch.setattr(processors, "_within", lambda _: 1)
    model = nn.Linear(1024, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    memory, threads = sinks.Memory(), torch.get_num_threads()
    told = []
    try:
        torch.set_num_threads(6)
        with sg.watch(model, optimizer, sinks=[memory]):
            began = perf_counter()
            while len(told) < 2 and perf_counter() - began < 20.0:
                optimizer.zero_grad()
                model(torch.randn(1024, 1024)).square().mean().backward()
                optimizer.step()
                told = [reading.facts["processors"] for reading in memory.readings if "processors" in reading.facts]
    finally:
        torch.set_num_threads(threads)
    assert told
    assert max(each["at_work"] for each in told) >= 4
    assert told[0]["threads"] == 6
    assert told[0]["line"]["code"].startswith("torch.set_num_threads(")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted by what Linux tells of them")
def test_a_thread_s_time_is_told_without_the_scheduler_s_figures(tmp_path):
    own = Path(f"/proc/self/task/{threading.get_native_id()}")
    (tmp_path / "stat").write_bytes((own / "stat").read_bytes())
    assert processors._seconds(tmp_path) == pytest.approx(processors._seconds(own), rel=0.1, abs=0.5)
    assert processors._seconds(tmp_path / "over") == 0.0
