"""The benchmark of the service runs, and writes what it says it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "server.py"


@pytest.mark.slow
def test_the_benchmark(tmp_path: Path) -> None:
    out = tmp_path / "server.json"
    command = [sys.executable, "-W", "error", str(SCRIPT), "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text(), parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
    (part,) = result["runs"]
    assert set(part["views"]) >= {"list of runs", "loss, whole run", "layers, whole run", "findings"}
    for view in part["views"].values():
        assert view["bytes"] > 100
        assert 0 < view["median_ms"] <= view["p99_ms"]
        assert view["per_second"] > 0
    for part in result["live"]:
        assert part["values"] > 0
        assert 0 < part["median_ms"] <= part["p99_ms"] <= part["max_ms"]
