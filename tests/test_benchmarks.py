"""The benchmarks run, and write what they say they write."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seismograd.detectors import DEFAULT

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def _run(name: str, out: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", str(BENCHMARKS / name), "--quick", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    result: dict[str, Any] = json.loads(out.read_text(), parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
    return result


@pytest.mark.thorough
def test_overhead(tmp_path: Path) -> None:
    options = ("--only", "mlp", "--only", "mlp-5-layers", "--steps", "16", "--pairs", "2")
    result = _run("overhead.py", tmp_path / "deep" / "overhead.json", *options)
    rows = {(row["case"], row["variant"]): row for row in result["rows"]}
    variants = {"nothing", "basic", "advanced", "extreme", "skip", "rollback", "detect_anomaly", "naive loop"}
    assert set(rows) == {(case, variant) for case in ("mlp", "mlp-5-layers") for variant in variants}
    for (_, variant), row in rows.items():
        assert 0 < row["low"] <= row["ratio"] <= row["high"]
        assert row["plain_ms"] > 0
        assert bool(row["watch"]) == (variant in variants - {"nothing", "detect_anomaly", "naive loop"})
        if row["watch"]:
            assert 0 < row["watch"]["share"] < 1
            assert 0 <= row["watch"]["read_steps"] <= row["watch"]["steps"]
    assert result["import"]["imports_torch"] is False


@pytest.mark.thorough
def test_sinks(tmp_path: Path) -> None:
    (row,) = _run("sinks.py", tmp_path / "sinks.json", "--only", "tensorboard")["rows"]
    assert row["readings"] == 300
    assert row["process_ms"] > 0


@pytest.mark.thorough
def test_timing(tmp_path: Path) -> None:
    result = _run("timing.py", tmp_path / "timing.json")
    assert [row["kind"] for row in result["found"]] == ["reads slowly", "in memory", "machine is busy"]
    assert [row["told"] for row in result["found"]] == ["reading", None, None]
    (row,) = result["cost"]
    assert 0 < row["low"] <= row["ratio"] <= row["high"]


@pytest.mark.thorough
def test_run(tmp_path: Path) -> None:
    result = _run("run.py", tmp_path / "run.json")
    assert [row["way"] for row in result["rows"]] == ["python", "sg.watch", "seismograd run"]
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in result["rows"])
    assert result["start_up"]["run"] > 0


@pytest.mark.thorough
def test_memory(tmp_path: Path) -> None:
    options = ("--only", "losses_with_graphs", "--only", "cost", "--only", "search")
    result = _run("memory.py", tmp_path / "memory.json", *options)
    (row,) = result["leaks"]
    assert (row["found"], row["right_name"], row["right_line"]) == (True, True, True)
    assert row["step"] < 60
    assert "growth" not in result
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in result["cost"])
    assert result["search"]["named"] >= 6
    assert result["search"]["objects"] > 30_000


@pytest.mark.thorough
def test_optimize(tmp_path: Path) -> None:
    result = _run("optimize.py", tmp_path / "optimize.json", "--seconds", "10")
    rows = {row["mode"]: row for row in result["modes"]}
    assert set(rows) == {"amp", "memory_efficient"}
    assert all(0 < row["low"] <= row["speedup_factor"] <= row["high"] for row in rows.values())
    assert all(row["loss_parity"] for row in rows.values())
    (row,) = result["tuner"]
    assert row["combinations"] == 2
    assert 0 < row["behind_low"] <= row["behind"] <= row["behind_high"]


@pytest.mark.thorough
def test_store(tmp_path: Path) -> None:
    result = _run("store.py", tmp_path / "store.json")
    ours = [row for row in result["write"] if row["who"].startswith("Seismograd")]
    assert {(row["who"], row["layers"]) for row in ours} == {
        (f"Seismograd, {name}", layers) for name in ("SQLite", "PostgreSQL") for layers in (0, 200)
    }
    assert all(row["steps_per_second"] > 0 and row["bytes_per_step"] > 0 for row in result["write"])
    assert 0 < result["long"]["mb"] < result["long"]["limit_mb"]
    assert all(value > 0 for row in result["query"] for value in row["ms"].values())
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in result["cost"])
    assert result["kill"]["kills"] == 10


@pytest.mark.thorough
def test_ranks(tmp_path: Path) -> None:
    result = _run("ranks.py", tmp_path / "ranks.json", "--only", "store")
    assert [row["store"] for row in result["store"]] == ["a file a rank", "PostgreSQL"]
    for row in result["store"]:
        assert row["ranks"] == 16
        assert row["readings_per_second"] > 0
        assert all(value > 0 for value in row["merge_ms"].values())
        assert all(view["bytes"] > 0 for view in row["views"].values())


def test_overhead_names_what_it_does_not_know() -> None:
    command = [sys.executable, str(BENCHMARKS / "overhead.py"), "--only", "rnn"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "'rnn' is unknown: there are mlp, cnn, transformer" in done.stderr


@pytest.fixture
def gauntlet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("gauntlet.cases")


def test_the_programs_of_the_gauntlet_say_what_is_wrong_with_them(gauntlet: Any) -> None:
    programs = gauntlet.programs()
    sick = [case for case in programs if case.expects is not None]
    assert len(sick) >= 60
    assert len(programs) - len(sick) >= 60
    assert len({case.name for case in programs}) == len(programs)
    named = {name for case in sick for name in case.expects}
    assert named <= {detector.id for detector in DEFAULT}
    without = {detector.id for detector in DEFAULT if not detector.id.startswith("rank-")} - named
    assert without == {"repeated-recovery"}, "all but the one that needs a recovery of ours, and those of ranks"


@pytest.mark.parametrize("suite", ["programs", "blind"])
def test_a_program_of_the_gauntlet_is_a_users_script(gauntlet: Any, suite: str, tmp_path: Path) -> None:
    cases = getattr(gauntlet, suite)()
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert set(case.expects or ()) <= {detector.id for detector in DEFAULT}
        text = case.path.read_text(encoding="utf-8")
        assert "seismograd" not in text, f"{case.name} is to know nothing of us"
        assert case.script(tmp_path, 0) == case.path
        if "torch.manual_seed(0)" in text:
            assert "torch.manual_seed(2)" in case.script(tmp_path, 2).read_text(encoding="utf-8")


@pytest.fixture
def script(gauntlet: Any) -> Any:
    spec = importlib.util.spec_from_file_location("gauntlet_script", BENCHMARKS / "gauntlet.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    return script


def test_a_report_is_judged_by_its_first_three_findings(gauntlet: Any, script: Any) -> None:
    said = [("info", "loss-spike", 3), ("warning", "dead-units", 9), ("critical", "lr-too-high", 5)]
    findings = [{"severity": level, "id": name, "step": at, "message": "."} for level, name, at in said]
    sick = gauntlet.Case("a", "program", ("lr-too-high", "loss-explosion"))
    row = script.judged(sick, 0, findings)
    assert (row.detected, row.diagnosed, row.step, row.verdict, row.case.group) == (
        True,
        True,
        5,
        "diagnosed",
        "learning",
    )
    assert script.judged(sick, 0, [*findings[:2], findings[0], findings[2]]).verdict == "detected"
    assert script.judged(sick, 0, []).verdict == "MISSED"
    healthy = gauntlet.Case("b", "program", None)
    assert script.judged(healthy, 0, findings).verdict == "FALSE ALARM"
    assert script.judged(healthy, 0, findings[:1]).verdict == "silent"
    assert script.good([row, script.judged(healthy, 0, [])])
    assert not script.good([row, script.judged(healthy, 0, findings)])


def test_a_stopped_gauntlet_goes_on_where_it_was(
    gauntlet: Any, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [gauntlet.Case("a", "program", ("lr-too-high",)), gauntlet.Case("b", "program", None)]
    asked: list[str] = []

    def answer(case: Any, seed: int, seconds: float) -> Any:
        if case.name == "b" and not asked:
            asked.append(case.name)
            raise KeyboardInterrupt
        asked.append(case.name)
        return script.judged(case, seed, [])

    monkeypatch.setattr(script, "ours", answer)
    monkeypatch.setattr(script, "programs", lambda: cases)
    out = ["--suite", "programs", "--jobs", "1", "--out", str(tmp_path / "out.json")]
    assert script.main(out) == 1
    asked.clear()
    assert script.main([*out, "--resume"]) == 1, "the miss is remembered"
    assert asked == []
    (tmp_path / "out.json").unlink()
    cases.reverse()
    assert script.main(out) == 130
    assert script.main([*out, "--resume"]) == 1
    assert sorted(row["name"] for row in json.loads((tmp_path / "out.json").read_text())["rows"]) == ["a", "b"]


@pytest.mark.slow
def test_the_gauntlet(tmp_path: Path) -> None:
    result = _run("gauntlet.py", tmp_path / "gauntlet.json")
    assert {row["name"]: row["verdict"] for row in result["rows"]} == {
        "forgot_zero_grad": "diagnosed",
        "softmax_then_cross_entropy": "diagnosed",
        "short_script": "silent",
        "xor": "silent",
    }


@pytest.mark.thorough
def test_a_patient_runs_the_gauntlet_unwatched_from_within(tmp_path: Path) -> None:
    options = ("--suite", "patients", "--only", "log_of_zero", "--only", "linear_regression", "--seeds", "1")
    result = _run("gauntlet.py", tmp_path / "gauntlet.json", *options)
    assert [(row["name"], row["seed"], row["verdict"]) for row in result["rows"]] == [
        ("log_of_zero", 1, "diagnosed"),
        ("linear_regression", 1, "silent"),
    ]
