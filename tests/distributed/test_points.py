"""No debugger may hold a job up: ranks are delayed and killed at every point of a step, watched and not."""

from __future__ import annotations

import pytest

import seismograd as sg

from .launching import PROGRAMS, launched

POINTS = ("start", "data", "forward", "backward", "between", "optimizer", "end", "exit")
PROGRAM = str(PROGRAMS / "points.py")
WATCHED = ("-m", "seismograd", "run", "--store", "runs", PROGRAM)


@pytest.mark.slow
def test_a_job_whose_ranks_are_delayed_at_every_point_ends_as_it_would(tmp_path):
    plain = launched(PROGRAM, "delayed", *POINTS, folder=tmp_path)
    watched = launched(*WATCHED, "delayed", *POINTS, folder=tmp_path, SEISMOGRAD_HANG_AFTER="30")
    assert plain.returncode == watched.returncode == 0, watched.stderr[-3000:]
    assert sorted(watched.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    (run,) = sg.runs(tmp_path / "runs")
    assert run.ranks == [0, 1]
    assert run.steps == 40
    assert not [finding.id for finding in run.findings() if finding.id in ("rank-hang", "rank-desync")]


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("point", POINTS)
def test_a_job_with_a_rank_that_is_killed_ends_as_it_would(point, rank, tmp_path):
    points = ["nowhere", point][1 - rank :]  # the place of a point in the list says which rank it is
    plain = launched(PROGRAM, "killed", *points, folder=tmp_path)
    watched = launched(*WATCHED, "killed", *points, folder=tmp_path)
    assert plain.returncode == watched.returncode != 0
    recorded = sg.runs(tmp_path / "runs") if (tmp_path / "runs").exists() else []
    assert len(recorded) <= 1, "killed within half a second, it may have written nothing yet"
    for run in recorded:
        for each in run.ranks:
            assert all(reading.rank == each for reading in run.readings(rank=each)), "what was written can be read"
