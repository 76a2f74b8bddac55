"""A job that does not go on: the ranks are named, with step, phase, stack and collective; nothing else changes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

import seismograd as sg
from seismograd.records import Finding

from .launching import PROGRAMS, launched, torchrun

AFTER = "3"


def until_told(folder: Path, how: str, rank: int, word: str = "rank-hang") -> tuple[Finding, str]:
    """Launches, waits for the finding on the terminal and in the record, and ends the job."""
    command = torchrun("-m", "seismograd", "run", "--store", "runs", str(PROGRAMS / "stuck.py"), how, str(rank))
    environment = {**os.environ, "SEISMOGRAD_HANG_AFTER": AFTER}
    job = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=environment,
        process_group=0,
    )
    said: list[str] = []
    assert job.stderr is not None
    reader = threading.Thread(target=lambda: said.extend(iter(job.stderr.readline, "")), daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + 120
        found: list[Finding] = []
        while time.monotonic() < deadline and not (found and any(word in line for line in said)):
            time.sleep(0.2)
            assert job.poll() is None, "".join(said)[-3000:]
            if any(word in line for line in said):
                run = sg.runs(folder / "runs")[0]
                found = [each for each in run.findings() if each.id == word]
        assert found, "".join(said)[-3000:]
        return found[0], "".join(said)
    finally:
        for process in (*psutil.Process(job.pid).children(recursive=True), job):  # ranks are in groups of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        job.wait(20)
        reader.join(5)
        job.stderr.close()


def ranks_of(finding: Finding) -> dict[int, dict[str, object]]:
    return {int(rank): told for rank, told in finding.evidence["standing"].items()}


@pytest.mark.slow
def test_a_rank_that_sleeps_is_named_with_its_line(tmp_path):
    finding, said = until_told(tmp_path, "sleeps", 1)
    assert finding.rank == 1
    assert finding.where.file is not None
    assert finding.where.file.endswith("stuck.py")
    assert finding.where.code is not None
    assert "time.sleep(600)" in finding.where.code
    ranks = ranks_of(finding)
    assert ranks[0]["step"] == ranks[1]["step"] == 11
    assert ranks[0]["phase"] == "backward"
    assert "all-reduce" in str(ranks[0]["collective"])
    assert "loss.backward()" in str(ranks[0]["stack"])
    assert said.count("[rank-hang]") == 1, "one rank speaks for all"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_was_stopped_is_named_by_one_that_lives(tmp_path, rank):
    finding, _ = until_told(tmp_path, "stopped", rank)
    assert finding.rank == rank
    ranks = ranks_of(finding)
    assert ranks[rank]["sign"] == "silent"
    assert ranks[1 - rank]["sign"] == "alive"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_rank_that_left_its_loop_is_named(tmp_path):
    finding, _ = until_told(tmp_path, "leaves", 1)
    assert finding.rank == 1
    ranks = ranks_of(finding)
    assert ranks[1]["collective"] == "barrier"


@pytest.mark.slow
def test_waiting_for_a_rank_that_works_is_no_hang(tmp_path):
    done = launched(
        *("-m", "seismograd", "run", "--store", "runs", str(PROGRAMS / "stuck.py"), "slow", "1"),
        folder=tmp_path,
        SEISMOGRAD_HANG_AFTER=AFTER,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank-hang" not in done.stderr
    assert done.stdout.count("is through") == 2
    assert [finding.id for finding in sg.runs(tmp_path / "runs")[0].findings() if finding.id == "rank-hang"] == []


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_job_as_it_would_and_its_record_can_be_read(tmp_path):
    plain = launched(str(PROGRAMS / "stuck.py"), "killed", "1", folder=tmp_path)
    done = launched(
        *("-m", "seismograd", "run", "--store", "runs", str(PROGRAMS / "stuck.py"), "killed", "1"), folder=tmp_path
    )
    assert done.returncode == plain.returncode != 0
    rows = [line.split() for line in done.stderr.splitlines()]
    assert any(row[:1] == ["1"] and "lost" in row for row in rows), "the verdict, on rank 1"
    (run,) = sg.runs(tmp_path / "runs")
    assert run.ranks == [0, 1]
    for rank in run.ranks:
        (losses,) = run.series("loss", rank=rank).values()
        assert len(losses) >= 1
