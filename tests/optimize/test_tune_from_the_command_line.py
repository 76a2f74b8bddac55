"""`seismograd bench`: a table on stdout, files where they are wanted, and mistakes said in a line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seismograd.cli import app

MODULE = """
import torch
from torch import nn

print("imported")
torch.set_num_threads(1)

def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    batches = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(4)]
    return model, batches, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-3)

def three():
    return make()[:3]

def one():
    return nn.Linear(2, 2)

def takes(size):
    return make()

def fails():
    raise RuntimeError("no data here")

def unfit():
    model, batches, loss_fn, optimizer = make()
    return model, [(torch.randn(8, 5), batches[0][1])], loss_fn, optimizer

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "benched.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "benched", raising=False)
    return "benched"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["bench", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("source", ["benched", "benched.py"])
def test_a_table_and_files(module: str, source: str, tmp_path: Path) -> None:
    code, out, err = run(f"{source}:make", "--seconds", "3", "--json", "deep/tuned.json", "--html", "tuned.html")
    assert code == 0, err
    assert "baseline" in out
    assert "imported" not in out
    assert "imported" in err
    told = json.loads((tmp_path / "deep" / "tuned.json").read_text())
    assert told["schema"] == 1
    assert len(told["variants"]) > 1, "how many it has time for depends on the machine"
    assert "plotly" in (tmp_path / "tuned.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("benched", "names no function"),
        ("nowhere:make", "there is no module 'nowhere'"),
        ("nowhere.py:make", "there is no file 'nowhere.py'"),
        ("benched:mak", "did you mean make or takes?"),
        ("benched:three", "returned a tuple of 3: it has to return model, batches, loss_fn, optimizer"),
        ("benched:one", "returned a Linear: it has to return"),
        ("benched:takes", "needs arguments (size)"),
        ("benched:fails", "raised RuntimeError: no data here"),
        ("benched:number", "is 3: give a function"),
        ("benched:unfit", "shapes cannot be multiplied"),
    ],
)
def test_mistakes_are_said_in_a_line(module: str, given: str, words: str) -> None:
    code, out, err = run(given)
    assert (code, out) == (2, "")
    assert words in err.replace("imported\n", "")
    assert "Traceback" not in err


def test_help_says_what_the_function_returns() -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "loss_fn" in out
    assert "--seconds" in out
