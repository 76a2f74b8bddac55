"""What `monitor_resources` tells and warns of."""

from __future__ import annotations

import json
import logging
import os
import threading
import time

import pytest
import torch

import seismograd as sg
from seismograd.guard import resources


def test_what_it_tells_is_strict_json() -> None:
    usage = sg.monitor_resources()
    assert json.loads(json.dumps(usage, allow_nan=False)) == usage
    assert 0 <= usage["cpu_percent"] <= 100
    assert 0 < usage["memory_percent"] <= 100
    assert 0 < usage["rss_mb"] <= usage["memory_limit_mb"]
    assert 0 < usage["disk_percent"] <= 100
    if not torch.cuda.is_available():
        assert usage["gpu_memory_mb"] is None


def test_the_first_call_already_measures() -> None:
    processors = resources._Processors()
    end = time.perf_counter() + 0.5

    def work() -> None:
        while time.perf_counter() < end:
            os.getpid()

    thread = threading.Thread(target=work)
    thread.start()
    machine, process = processors.read()
    thread.join()
    assert machine > 0
    assert process > 0


def test_each_limit_has_its_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="seismograd"):
        told = sg.monitor_resources(cpu_limit_percent=-1, memory_limit_percent=0, disk_limit_percent=0)["warnings"]
    assert [text.split(":")[0].split(" of ")[0] for text in told] == ["High CPU usage", "High memory usage", "The disk"]
    assert [record.getMessage() for record in caplog.records] == told
    assert "this process holds" in told[1]
    assert (
        sg.monitor_resources(cpu_limit_percent=101, memory_limit_percent=101, disk_limit_percent=101)["warnings"] == []
    )


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_gpu", lambda: (9000.0, 95.0))
    calm = {"cpu_limit_percent": 101.0, "memory_limit_percent": 101.0, "disk_limit_percent": 101.0}
    (text,) = sg.monitor_resources(**calm, gpu_limit_mb=8000)["warnings"]
    assert text == "High GPU memory usage: 9,000 MB of tensors (the limit is 8,000 MB)"
    (text,) = sg.monitor_resources(**calm)["warnings"]
    assert text == "High GPU memory usage: 95 % of a device (the limit is 90 %)"
    assert sg.monitor_resources(**calm, gpu_limit_percent=99)["warnings"] == []


def test_a_disk_that_is_not_there() -> None:
    assert sg.monitor_resources(path="/no/such/folder")["disk_percent"] is None
