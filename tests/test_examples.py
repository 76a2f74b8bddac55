"""The example loops, run as a user runs them, get the right verdict and print their own output alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

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
