"""What is left of the tightest limit: read from files like the kernel's, and in a real group where one can be made."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from seismograd.memory import limits, room
from seismograd.memory.limits import Group

MB = 1 << 20


@pytest.fixture
def group(tmp_path, monkeypatch):
    """A cgroup of the second version with a limit of 1 GB, of which 900 MB are in use."""

    def make(limit=1024 * MB, used=900 * MB, inactive=0, active=0):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        stat = f"anon 5\nfile {inactive + active}\ninactive_file {inactive}\nactive_file {active}\nslab 3\n"
        (tmp_path / "memory.stat").write_text(stat)
        names = ("memory.max", "memory.current", "memory.stat")
        found = Group(*(tmp_path / name for name in names), "inactive_file")
        monkeypatch.setattr(limits, "_groups", lambda: (found,))

    return make


def test_the_limit_of_a_group(group):
    group()
    found = room.room()
    assert (found.of, found.limit, found.used, found.left) == ("cgroup", 1024 * MB, 900 * MB, 124 * MB)


def test_page_cache_is_free(group):
    group(used=1000 * MB, inactive=300 * MB, active=500 * MB)
    assert room.room().left == 824 * MB


def test_a_group_without_numbers(group, tmp_path):
    group()
    (tmp_path / "memory.stat").unlink()
    assert room.room().left <= 1024 * MB


def test_without_a_limit_the_machine_is_one(monkeypatch):
    monkeypatch.setattr(limits, "_groups", tuple)
    found = room.room()
    assert found.of == "machine"
    assert 0 < found.left < found.limit


def test_a_limit_of_addresses(monkeypatch):
    monkeypatch.setattr(limits, "_groups", tuple)
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (room._addresses() + 256 * MB, before[1]))
        found = room.room()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert found.of == "ulimit"
    assert 0 < found.left <= 256 * MB


PROGRAM = """
    import sys
    import torch
    from torch import nn
    import seismograd as sg
    from seismograd.onlookers.resources import pressure

    pressure.EVERY = 0.0
    model = nn.Linear(1000, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kept = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(400):
            optimizer.zero_grad()
            model(torch.randn(8, 1000)).square().mean().backward()
            optimizer.step()
            if len(kept) < int(sys.argv[1]):
                kept.append(torch.ones(4 << 20))  # 16 MB
            found = [each for each in watch.findings if each.id == "memory-pressure"]
            if found:
                print(found[0].severity, found[0].evidence["limit_of"], found[0].evidence["left"] >> 20)
                break
        else:
            print("nothing")
"""


@pytest.mark.parametrize(("tensors", "said"), [(400, "cgroup"), (4, "nothing")])
def test_it_is_told_before_the_kernel_ends_the_process(tmp_path, tensors, said):
    """In a real cgroup with 600 MB, swap or not, where this user may make one."""
    folder = Path("/sys/fs/cgroup/memory") / f"seismograd-test-{os.getpid()}-{tensors}"
    files = ("memory.limit_in_bytes", "cgroup.procs")
    if not (folder.parent / files[0]).exists():
        folder = Path("/sys/fs/cgroup") / folder.name
        files = ("memory.max", "cgroup.procs")
    try:
        folder.mkdir()
    except OSError as why:
        pytest.skip(f"no cgroup can be made here: {why}")
    try:
        if not (folder / files[0]).exists():
            pytest.skip("the cgroup has no limit of memory")
        (folder / files[0]).write_text(str(600 * MB))
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(PROGRAM))
        into = f"echo $$ > {folder / files[1]} && exec {sys.executable} {script} {tensors}"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "SEISMOGRAD_CAPTURE": "0"}
        ended = subprocess.run(
            ["sh", "-c", into], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        assert said in ended.stdout
    finally:
        folder.rmdir()
