"""Memory really runs out here: in processes with a limit, and by asking for more than there is."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.memory.exhaustion import asked_for, is_out_of_memory
from seismograd.replay.fitting import Pass, fit
from seismograd.replay.surroundings import Autocast

WIDE = 1 << 40


def pressure(watch):
    return [finding for finding in watch.findings if finding.id == "memory-pressure"]


def caught(do):
    try:
        do()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


# -- errors ------------------------------------------------------------------------------------------------------


def test_torchs_error_on_the_cpu():
    error = caught(lambda: torch.empty(1 << 50))
    assert is_out_of_memory(error)
    assert asked_for(error) == 4 << 50


def test_numpys_error():
    error = caught(lambda: np.zeros((1 << 28, 1 << 22)))
    assert is_out_of_memory(error)
    assert asked_for(error) == 8 << 50


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"), 2 << 30),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total)"), 20 << 20),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1.2 GB). Tried to allocate 256 bytes"), 256),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 12 bytes."), 12),
        (MemoryError(), None),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), None),
    ],
)
def test_errors_of_others(error, asked):
    assert is_out_of_memory(error)
    assert asked_for(error) == asked


@pytest.mark.parametrize(
    "error", [None, ValueError("out of memory"), RuntimeError("shapes cannot be multiplied"), OSError(2, "no file")]
)
def test_other_errors(error):
    assert not is_out_of_memory(error)


# -- in a watch --------------------------------------------------------------------------------------------------


class Pairs(nn.Module):
    """Compares every pair of numbers it is given."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)

    def forward(self, x):
        h = self.first(x).flatten()
        if len(h) > 1000:
            h = h.expand(WIDE, -1).contiguous()
        return h.square().mean()


def test_in_a_forward_pass():
    model = Pairs()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(RuntimeError, match="you tried to allocate"), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        for size in (16, 16, 128):
            loss = model(torch.randn(size, 8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (finding,) = pressure(watch)
    assert finding.severity is sg.Severity.CRITICAL
    assert finding.evidence["out_of_memory"] is True
    assert finding.step == 2
    assert finding.where.phase == "forward"
    assert finding.where.code.startswith("h = h")
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert finding.evidence["parameters"] == finding.evidence["gradients"] == weights
    assert finding.evidence["optimizer"] >= 2 * weights
    assert finding.evidence["activations"] >= 16 * 128 * 4
    assert watch.status == "crashed"


def test_in_a_backward_pass():
    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient + torch.empty(1 << 50).sum()

    model = nn.Linear(4, 2)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"), sg.watch(model, sinks=[]) as watch:
        Greedy.apply(model(torch.randn(3, 4))).sum().backward()
    (finding,) = pressure(watch)
    assert finding.where.phase == "backward"
    assert finding.evidence["asked"] == 4 << 50


def test_in_the_loops_own_code():
    model = nn.Linear(4, 2)
    with pytest.raises(MemoryError), sg.watch(model, sinks=[]) as watch:  # noqa: PT012
        model(torch.randn(3, 4)).sum().backward()
        np.zeros((1 << 28, 1 << 22))
    (finding,) = pressure(watch)
    assert finding.where.phase == "loop"
    assert finding.where.code == "np.zeros((1 << 28, 1 << 22))"


def test_in_the_optimizers_step():
    class Hungry(torch.optim.SGD):
        def step(self, closure=None):
            torch.empty(1 << 50)

    model = nn.Linear(4, 2)
    optimizer = Hungry(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"), sg.watch(model, optimizer, sinks=[]) as watch:  # noqa: PT012
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    assert pressure(watch)[0].evidence["gradients"] == 10 * 4


@pytest.mark.parametrize(("times", "severity"), [(1, sg.Severity.INFO), (3, sg.Severity.WARNING)])
def test_batches_that_are_skipped_again_and_again_are_a_warning(times, severity):
    model = Pairs()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for size in (16, *[128, 16] * times):
            optimizer.zero_grad()
            try:
                model(torch.randn(size, 8)).backward()
            except RuntimeError:
                continue
            optimizer.step()
    (finding,) = pressure(watch)
    assert finding.severity is severity
    assert finding.evidence["caught"]
    assert "went on" in finding.message


def test_other_errors_are_not_about_memory():
    model = nn.Linear(4, 2)
    with pytest.raises(RuntimeError, match="cannot be multiplied"), sg.watch(model, sinks=[]) as watch:
        model(torch.randn(3, 5))
    assert pressure(watch) == []


# -- what would fit ----------------------------------------------------------------------------------------------


def blocks(width=64, number=4):
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(number)]
    )


def whole(model, x):
    """What autograd keeps, measured on the whole batch."""
    known = {one.untyped_storage().data_ptr() for one in (x, *model.parameters(), *model.buffers())}
    found = {}

    def note(tensor):
        if tensor.untyped_storage().data_ptr() not in known:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        kept = model(x)
    return sum(found.values()) if kept is not None else 0


def test_a_few_samples_tell_what_the_whole_batch_keeps():
    torch.manual_seed(0)
    model, x = blocks(), torch.randn(512, 64)
    with sg.watch(model, sinks=[]):
        before, state = model[0][1].running_mean.clone(), torch.get_rng_state()
        found = fit(Pass(model, (x,), {}, Autocast.now()), 1e6, 1e9)
    assert torch.equal(model[0][1].running_mean, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert abs(found.activations - whole(blocks(), x)) < 0.01 * found.activations
    assert 0 < found.largest < 512
    assert found.largest < found.largest_checkpointed
    assert found.largest < found.largest_halved
    assert found.blocks == "the model"
    assert sum(found.by_module.values()) <= found.activations


def test_a_model_that_must_not_run_twice_is_left_alone():
    calls = []

    class Counted(nn.Linear):
        def forward(self, x):
            calls.append(1)
            return super().forward(x)

    assert fit(Pass(Counted(4, 4), (torch.randn(8, 4),), {}, Autocast.now()), 1e6, 1e9) is None
    assert calls == []


# -- with a limit of the system's --------------------------------------------------------------------------------

PROGRAM = """
    import resource, sys
    import torch
    from torch import nn
    import seismograd as sg

    torch.manual_seed(0)
    batch = int(sys.argv[1])
    model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(8)], nn.Linear(512, 2))
    optimizer = torch.optim.Adam(model.parameters())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        model(torch.randn(8, 512)).square().mean().backward()  # what is loaded once is loaded now
        optimizer.step()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20, resource.RLIM_INFINITY))
        for _ in range(3):
            loss = model(torch.randn(batch, 512)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("done")
"""


def run(tmp_path, batch, *, under=()):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAM))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SEISMOGRAD_CAPTURE": "0", "MALLOC_ARENA_MAX": "1"}
    env["MALLOC_MMAP_THRESHOLD_"] = "65536"  # a tensor's memory goes back to the system: what fits is not chance
    command = [sys.executable, *under, str(script), str(batch)]
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit of the kernel's")
def test_the_batch_that_is_said_to_fit_fits_and_one_much_larger_does_not(tmp_path):
    report = tmp_path / "report.json"
    under = ("-m", "seismograd", "run", "--quiet", "--report", str(report))
    ended = run(tmp_path, 60_000, under=under)
    assert ended.returncode == 1, ended.stderr[-2000:]
    assert "DefaultCPUAllocator: can't allocate memory" in ended.stderr
    (finding,) = [each for each in json.loads(report.read_text())["findings"] if each["id"] == "memory-pressure"]
    evidence = finding["evidence"]
    assert finding["severity"] == "critical"
    assert evidence["limit_of"] == "ulimit"
    assert Path(finding["where"]["file"]).name == "train.py"
    assert 1_000 < evidence["largest"] < 60_000
    assert "done" in run(tmp_path, evidence["largest"]).stdout
    assert "done" not in run(tmp_path, 2 * evidence["largest"]).stdout
