"""Sinks by name: in `watch`, in pyproject.toml, and on the command line, where mistakes come before the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import seismograd as sg
from seismograd.config import find_config
from seismograd.sinks import JSONLines, TensorBoard, as_sink, as_sinks, named
from seismograd.sinks.console import Console
from seismograd.sinks.logger import Logging

from .collector import attributes, collecting
from .trainings import train

SCRIPT = """
import os, torch
os.makedirs("elsewhere", exist_ok=True)
os.chdir("elsewhere")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(3, 2)).pow(2).mean() * (float("nan") if step > 1 else 1.0)
    loss.backward()
    optimizer.step()
print("done")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "seismograd", "run", *arguments, "train.py"]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_names_make_sinks(tmp_path: Path) -> None:
    console, logging_, board, lines = as_sinks(
        ["console", "logging:mine", f"tensorboard:{tmp_path}", f"jsonl:{tmp_path}/out.jsonl"]
    )
    assert isinstance(console, Console)
    assert isinstance(logging_, Logging)
    assert logging_.logger.name == "mine"
    assert isinstance(board, TensorBoard)
    assert board.log_dir == tmp_path
    assert isinstance(lines, JSONLines)
    assert console.beside is logging_


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tensorbord:runs", r"'tensorbord:runs' names no sink, did you mean 'tensorboard'\? there are console, "),
        (
            "x",
            "names no sink: there are console, logging, tensorboard, mlflow, wandb, trackio, prometheus, otel, jsonl",
        ),
        ("console:x", "takes nothing behind its name"),
        ("jsonl", r"'jsonl' has no file to write to: write jsonl:FILE"),
        ("jsonl:.", "is a folder"),
        ("prometheus:port", r"has no port in 'port': write prometheus:\[HOST:\]PORT"),
        ("prometheus:70000", "has no port"),
        ("otel:localhost:4318", "has no address: write otel:http://HOST:4318"),
    ],
)
def test_a_wrong_name_is_refused_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_sink(text)


def test_a_missing_package_gives_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()  # as W&B itself leaves one behind: no package
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(ModuleNotFoundError, match=r"wandb is not installed: pip install 'seismograd\[wandb\]'"):
        named.checked("wandb")


def test_sinks_of_the_project_are_added_to_the_default_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nsinks = ['jsonl:out.jsonl']\n")
    monkeypatch.chdir(tmp_path)
    from torch import nn

    with sg.watch(nn.Linear(1, 1), store=False) as watch:
        assert [type(sink).__name__ for sink in watch._sinks] == ["Console", "Logging", "JSONLines"]
    with sg.watch(nn.Linear(1, 1), store=False, sinks=[]) as watch:
        assert watch._sinks == [], "what is said in the call wins"
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nsinks = [3]\n")
    with pytest.raises(ValueError, match=r"sinks is \[3\]: it takes names"):
        find_config()


def test_a_script_is_run_with_sinks_besides_the_terminal(tmp_path: Path) -> None:
    with collecting() as collector:
        done = run(tmp_path, "--sink", "jsonl:out.jsonl", "--sink", "tensorboard:tb", "--sink", f"otel:{collector.url}")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "critical[nonfinite-loss]" in done.stderr
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["step"] for line in found if line["kind"] == "reading"] == [0, 1, 2, 3]
    assert found[-1]["kind"] == "end"
    assert found[-1]["status"] == "critical"
    assert list((tmp_path / "tb").glob("events.out.tfevents.*")), "where the user stood, not where the script went"
    assert (tmp_path / "tb" / "seismograd-report.html").exists()
    told = [attributes(record)["seismograd.finding.id"] for record in collector.records("seismograd.finding")]
    assert "nonfinite-loss" in told, "though the script was over before the first batch"
    assert len(collector.records("seismograd.end")) == 1
    assert "does not have" not in done.stderr


@pytest.mark.parametrize("where", ["option", "file"])
def test_a_mistake_ends_before_the_script_starts(where: str, tmp_path: Path) -> None:
    if where == "file":
        (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nsinks = ['tensorbord']\n")
        done = run(tmp_path)
    else:
        done = run(tmp_path, "--sink", "tensorbord")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'tensorbord' names no sink, did you mean 'tensorboard'?" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_the_names_of_a_run_with_two_optimizers_and_of_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "2")
    assert TensorBoard(tmp_path, rank=None).prefix == "seismograd/rank2/"
    assert TensorBoard(tmp_path, rank=2).prefix == "seismograd/"
    quiet = TensorBoard(tmp_path / "none")
    train(quiet, sick=False, store=False, steps=2)
    assert not (tmp_path / "none").exists(), "of several ranks the first writes"
