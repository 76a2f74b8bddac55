"""The example loops, run as a user runs them, get the right verdict and print their own output alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from seismograd import runs

ROOT = Path(__file__).parents[1]
HEALTHY = sorted(path.stem for path in ROOT.glob("examples/healthy/*.py"))
SICK = {
    "exploding_gradient": "gradient-explosion",
    "leak": "memory-leak",
    "learning_rate_too_high": "lr-too-high",
    "nan": "nonfinite-gradient",
    "overfitting": "overfitting",
    "plateau": "shuffled-labels",
}


def diagnose(name: str, folder: Path) -> tuple[dict[str, object], str]:
    command = [sys.executable, "-m", "seismograd", "demo", name, "--report", "report.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "report.json").read_text()), done.stderr


def in_part(names: Iterable[str], *always: str) -> list[Any]:
    """All of them; `make test` has those that are named."""
    return [pytest.param(name, marks=() if name in always else pytest.mark.thorough) for name in names]


def test_every_sick_example_has_its_fault_here() -> None:
    assert sorted(SICK) == sorted(path.stem for path in ROOT.glob("examples/sick/*.py"))


@pytest.mark.parametrize("name", in_part(SICK, "nan", "leak", "overfitting"))
def test_a_sick_loop_is_told_its_fault_first(name: str, tmp_path: Path) -> None:
    report, said = diagnose(name, tmp_path)
    found = [finding["id"] for finding in report["findings"]]  # type: ignore[attr-defined]
    assert found[0] == SICK[name], found
    assert f"[{SICK[name]}]" in said


@pytest.mark.parametrize("name", in_part(HEALTHY, "mlp", "gan"))
def test_a_healthy_loop_is_left_alone(name: str, tmp_path: Path) -> None:
    report, said = diagnose(name, tmp_path)
    assert report["run"]["status"] == "healthy", said  # type: ignore[index]
    assert "seismograd: healthy after" in said


def run_example(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SEISMOGRAD_STORE": ""}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_plain_example_has_a_before_a_during_and_an_after(tmp_path: Path) -> None:
    done = run_example(tmp_path, str(ROOT / "examples/plain/train.py"))
    assert done.returncode == 0, done.stderr
    assert "preflight: healthy" in done.stdout
    assert done.stdout.endswith("plain healthy []\n")
    (run,) = runs(tmp_path / "runs")
    assert (run.name, run.status, run.steps) == ("plain", "healthy", 96)


@pytest.mark.parametrize(
    ("arguments", "verdict"), [([], "healthy []"), (["1e6"], "critical ['NONFINITE_LOSS', 'LOSS_EXPLOSION']")]
)
def test_the_numpy_example_is_judged_without_torch(arguments: list[str], verdict: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples/numpy/train.py")
    program = (
        f"import runpy, sys; sys.argv[1:] = {arguments}; runpy.run_path({example!r}); assert 'torch' not in sys.modules"
    )
    done = run_example(tmp_path, "-c", program)
    assert done.returncode == 0, done.stderr
    assert verdict in done.stdout


@pytest.mark.slow
def test_the_ranks_of_the_ddp_example_are_watched_and_are_one_run(tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run_example(tmp_path, *launch, str(ROOT / "examples/ddp.py"))
    aborted_by_gloo = "terminate called without an active exception" in done.stderr  # at the end: unwatched ones, too
    assert done.returncode == 0 or aborted_by_gloo, done.stderr
    told = re.findall(r"rank \d: .*?, loss", done.stdout)  # not lines: both may print theirs at the same time
    assert sorted(told) == ["rank 0: healthy, 60 steps, loss", "rank 1: 60 steps, loss"]
    (run,) = runs(tmp_path / "runs")
    assert (run.name, run.ranks) == ("ddp", [0, 1])
    losses = [run.series("loss", rank=rank)["loss"].mean.tolist() for rank in run.ranks]
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_the_diffusers_example_is_healthy_under_run(tmp_path: Path) -> None:
    options = ["--report", "report.json", "--quiet"]
    done = run_example(tmp_path, "-m", "seismograd", "run", *options, str(ROOT / "examples/diffusers/train.py"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["run"]["status"], report["run"]["steps"]) == ("healthy", 50), done.stderr
