"""Without CUDA nothing is asked for; the calls that would be made are those of torch."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.memory import cuda_history


def test_without_cuda_there_is_none(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    assert not cuda_history.begin()
    assert not cuda_history.is_on()
    assert cuda_history.write(tmp_path / "history.pickle") is None
    cuda_history.end()
    assert list(tmp_path.iterdir()) == []


def test_the_calls_are_torchs():
    memory = torch.cuda.memory
    taken = inspect.signature(memory._record_memory_history).parameters
    assert {"enabled", "stacks", "max_entries"} <= set(taken)
    assert next(iter(inspect.signature(memory._dump_snapshot).parameters)) == "filename"
    assert hasattr(torch._C, "_cuda_isHistoryEnabled") or not torch.backends.cuda.is_built()


@pytest.fixture
def device(monkeypatch):
    """A torch with CUDA, as far as its history goes."""
    state = SimpleNamespace(on=False, calls=[])

    def record(enabled="all", **more):
        state.on = enabled is not None
        state.calls.append((enabled, more))

    def dump(filename):
        state.calls.append(("dump", filename))
        with open(filename, "wb") as file:
            file.write(b"history")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: state.on, raising=False)
    fake = SimpleNamespace(_record_memory_history=record, _dump_snapshot=dump)
    monkeypatch.setattr(cuda_history, "_memory", lambda: fake)
    return state


def test_it_is_written_where_it_is_recorded(device, tmp_path):
    path = tmp_path / "memory" / "history.pickle"
    assert cuda_history.write(path) is None
    assert cuda_history.begin()
    assert device.calls[0][1]["max_entries"] == 100_000
    assert not cuda_history.begin()  # whoever began ends it
    assert cuda_history.write(path) == path
    assert path.read_bytes() == b"history"
    cuda_history.end()
    assert not device.on


def test_a_disk_that_is_full_is_nobodys_error(device, tmp_path):
    cuda_history.begin()
    (tmp_path / "file").write_text("")
    assert cuda_history.write(tmp_path / "file" / "history.pickle") is None


@pytest.mark.parametrize(("level", "begun"), [("advanced", []), ("extreme", ["begin", "end"])])
def test_the_watch_asks_for_it_at_its_highest_level(monkeypatch, level, begun):
    calls = []
    monkeypatch.setattr(cuda_history, "begin", lambda: calls.append("begin") or True)
    monkeypatch.setattr(cuda_history, "end", lambda: calls.append("end"))
    sg.watch(nn.Linear(2, 2), level=level, sinks=[]).close()
    assert calls == begun
