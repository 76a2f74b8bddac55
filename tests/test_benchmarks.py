"""The benchmarks run, and write what they say they write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def _run(name: str, out: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", str(BENCHMARKS / name), "--quick", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    result: dict[str, Any] = json.loads(out.read_text(), parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
    return result


@pytest.mark.slow
def test_overhead(tmp_path: Path) -> None:
    options = ("--only", "mlp", "--only", "mlp-5-layers", "--steps", "16", "--pairs", "2")
    result = _run("overhead.py", tmp_path / "deep" / "overhead.json", *options)
    rows = {(row["case"], row["variant"]): row for row in result["rows"]}
    variants = {"nothing", "basic", "advanced", "extreme", "detect_anomaly", "naive loop"}
    assert set(rows) == {(case, variant) for case in ("mlp", "mlp-5-layers") for variant in variants}
    for (_, variant), row in rows.items():
        assert 0 < row["low"] <= row["ratio"] <= row["high"]
        assert row["plain_ms"] > 0
        assert bool(row["watch"]) == (variant in {"basic", "advanced", "extreme"})
        if row["watch"]:
            assert 0 < row["watch"]["share"] < 1
            assert 0 <= row["watch"]["read_steps"] <= row["watch"]["steps"]
    assert result["import"]["imports_torch"] is False


@pytest.mark.slow
def test_run(tmp_path: Path) -> None:
    result = _run("run.py", tmp_path / "run.json")
    assert [row["way"] for row in result["rows"]] == ["python", "sg.watch", "seismograd run"]
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in result["rows"])
    assert result["start_up"]["run"] > 0


def test_overhead_names_what_it_does_not_know() -> None:
    command = [sys.executable, str(BENCHMARKS / "overhead.py"), "--only", "rnn"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "'rnn' is unknown: there are mlp, cnn, transformer" in done.stderr
