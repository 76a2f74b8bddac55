"""The programs of benchmarks/localisation.py say what is wrong with them, and a handful of them is located right."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
HANDFUL = (
    "accumulation_masked_loss",
    "attention_by_hand",
    "log_of_zero",
    "masked_row_by_hand",
    "nan_in_data",
    "one_rank_ddp",
    "sqrt_of_dropout",
    "where_hides_log",
)


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("localisation.truth")


def test_every_program_has_its_header_and_one_origin(truth: Any) -> None:
    programs = truth.programs()  # raises where a header or mark is wrong
    assert len(programs) >= 45
    assert {phase for program in programs for phase in program.phases} == truth.PHASES
    assert {program.name for program in programs}.issuperset(HANDFUL)
    assert all(op == "-" or op.startswith("aten.") for program in programs for op in program.ops[:1])


@pytest.mark.parametrize(
    ("header", "line", "wrong"),
    [
        ("# op: aten.log\n# phase: loss\n# module: -\n", "x = 1  # <-- origin", "its header has"),
        ("# op: aten.log\n# phase: late\n# module: -\n# conditions: loop\n", "x = 1  # <-- origin", "phase 'late' is"),
        ("# op: aten.log\n# phase: loss\n# module: -\n# conditions: loop\n", "x = 1", "stands on 0 lines"),
    ],
)
def test_a_wrong_header_is_told(truth: Any, tmp_path: Path, header: str, line: str, wrong: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(f'"""A program."""\n{header}\n{line}\n')
    with pytest.raises(ValueError, match=wrong):
        truth.read(path)


def test_answers_are_compared(truth: Any, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    header = "# op: aten._softmax\n# phase: forward\n# module: Net|-\n# conditions: model\n"
    path.write_text(f'"""A program."""\n{header}\nx = 1  # <-- origin\n')
    program = truth.read(path)
    right = truth.Answer(file=str(path), line=7, op="SoftmaxBackward0")
    assert program.line_right(right)
    assert program.op_right(right)
    assert program.module_right(right)
    for wrong in (truth.Answer(), truth.Answer(file="other.py", line=7, op="aten.log", module="head")):
        assert not program.line_right(wrong)
        assert not program.op_right(wrong)
        assert not program.module_right(wrong)


def test_unknown_programs_are_named() -> None:
    command = [sys.executable, str(BENCHMARKS / "localisation.py"), "--only", "cube_root"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "'cube_root' is unknown: there are absorbed_mask, " in done.stderr


@pytest.mark.thorough
def test_a_handful_is_located(tmp_path: Path) -> None:
    out = tmp_path / "localisation.json"
    only = [option for name in HANDFUL for option in ("--only", name)]
    command = [sys.executable, "-W", "error", str(BENCHMARKS / "localisation.py"), "--out", str(out), *only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert out.exists(), done.stderr
    rows = [row for row in json.loads(out.read_text())["rows"] if row["tool"] == "seismograd"]
    assert [row["program"] for row in rows] == list(HANDFUL)
    wrong = [row for row in rows if not (row["right"]["line"] and row["right"]["op"])]
    assert not wrong, done.stdout
    assert done.returncode == 0
