"""`seismograd replay` as a user meets it, in fresh processes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import seismograd as sg
from seismograd.cli import app, replaying

SCRIPT = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU())
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.drop(self.body(x))
        {line}
        return self.head(h)


def sized(width):
    return Net(width)


def nothing():
    print("building nothing")


if __name__ == "__main__":
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(6):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x){after}, torch.zeros(16, 1))
        loss.backward()
        optimizer.step()
"""


def script(line: str, after: str = "") -> str:
    return SCRIPT.replace("{line}", line).replace("{after}", after)


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "seismograd", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def trained(folder: Path, source: str) -> tuple[dict, str]:
    """The finding that was saved, and its run."""
    (folder / "train.py").write_text(source)
    done = start(folder, "run", "-q", "--report", "out.json", "train.py")
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "out.json").read_text())
    (finding,) = [each for each in report["findings"] if "capture" in each["evidence"]]
    run = report["run"]["id"]
    assert f"saved: seismograd replay {run} --model FILE.py:CLASS" in done.stderr
    return finding, run


@pytest.mark.parametrize(
    ("line", "op"),
    [("h = torch.log(h)", "aten.log"), ("h = torch.sqrt(h)", "aten.sqrt")],
    ids=["forward", "backward"],
)
def test_a_fresh_process_shows_the_same_origin(line: str, op: str, tmp_path: Path) -> None:
    finding, run = trained(tmp_path, script(line))
    done = start(tmp_path, "replay", run[:8], "--model", "train.py:Net", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["found"], told["same"], told["run"], told["step"]) == (True, True, run, finding["step"])
    assert told["finding"]["id"] == finding["id"]
    assert told["finding"]["where"] == finding["where"]
    assert finding["where"]["op"] == op
    assert told["finding"]["message"] == finding["message"]
    for same in ("bad", "index", "inputs", "first_bad", "pattern"):
        assert told["finding"]["evidence"][same] == finding["evidence"][same]


def test_a_run_is_named_as_for_the_other_commands(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, store = nn.Linear(4, 1), tmp_path / "runs"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, store=store, name="second try", sinks=[]):
        model(torch.full((2, 4), math.inf)).sum().backward()
    (run,) = sg.runs(store)
    (saved,) = run.captures()
    for which in ("last", "second try", run.id[:10]):
        assert replaying._saved(which, None, str(store)) == saved.path
    with pytest.raises(ValueError, match="has no capture of step 7"):
        replaying._saved("last", 7, str(store))
    with pytest.raises(ValueError, match=r"there is no run 'third' .*second try"):
        replaying._saved("third", None, str(store))
    with pytest.raises(ValueError, match="there is no capture of a run 'last'"):
        replaying._saved("last", None, None)


def test_what_is_printed_and_a_mended_model(tmp_path: Path) -> None:
    finding, run = trained(tmp_path, script("h = torch.sqrt(h)"))
    done = start(tmp_path, "replay", run, "--model", "train:Net")
    assert done.returncode == 0, done.stderr
    assert f"critical[{finding['id']}]" in done.stdout
    assert f"--> train.py:{finding['where']['line']}, module (the model itself), op aten.sqrt" in done.stdout
    assert "^^^^^" in done.stdout
    assert done.stdout.endswith(f"seismograd: step 0 of {run}: the same origin as in the run\n")
    (tmp_path / "train.py").write_text(script("h = torch.sqrt(h + 1e-6)"))
    done = start(tmp_path, "replay", run, "--model", "train:Net")
    assert done.returncode == 1
    assert (
        f"everything is finite now: what went bad in the run (train.py:{finding['where']['line']}) is mended"
        in done.stdout
    )


def test_a_fault_of_the_loop_shows_what_the_run_found(tmp_path: Path) -> None:
    finding, run = trained(tmp_path, script("pass", after=".mul(0).log()"))
    done = start(tmp_path, "replay", run, "--model", "train.py:Net")
    assert done.returncode == 1, done.stderr
    assert f"critical[{finding['id']}]" in done.stdout
    assert "the model itself is clean" in done.stdout


def test_no_capture_says_so(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(script("h = torch.log(h)"))
    done = start(tmp_path, "run", "-q", "--no-capture", "train.py")
    assert "nonfinite-activation" in done.stderr
    assert "saved" not in done.stderr
    assert not home.exists()


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder with a script and a capture of its model; the capture's path."""
    import torch
    from torch import nn

    import seismograd as sg

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mistaken.py").write_text(script("h = torch.log(h)"))
    (tmp_path / "broken.py").write_text("import sys\nsys.exit('usage: broken')\n")
    (tmp_path / "missing.py").write_text("import no_such_package\n")

    class Net(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(super().forward(x) * 0)

    model = Net(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    yield next(str(each.evidence["capture"]) for each in watch.findings if "capture" in each.evidence)
    for name in ("mistaken", "broken", "missing"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "say with --model what builds the model"),
        ("mistaken.py", "--model 'mistaken.py' names no factory (MODULE:FACTORY"),
        ("mistaken.py:", "names no factory"),
        ("nowhere.py:Net", "there is no file 'nowhere.py'"),
        ("nowhere:Net", "there is no module 'nowhere'"),
        ("mistaken.py:Nett", "there is no 'Nett' in 'mistaken.py', did you mean Net?"),
        ("mistaken:sized", "'mistaken:sized' needs arguments (width)"),
        ("mistaken:nothing", "'mistaken:nothing' returned NoneType, not an nn.Module"),
        ("mistaken:__name__", "give a function or a class that builds the model"),
        ("mistaken:Net", "Net does not fit the captured Net: the model has no weight, bias; the capture has no body"),
        ("broken.py:Net", "importing 'broken.py' raised SystemExit: usage: broken (what a script does"),
        ("missing:Net", "importing 'missing' raised ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_a_mistake_is_told_in_a_line(model: str, message: str, place: str) -> None:
    result = CliRunner().invoke(app, ["replay", place, *(["--model", model] if model else [])])
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1 + ("building nothing" in result.stderr)
    assert result.stdout == ""


@pytest.mark.parametrize(("arguments", "message"), [([], "no run was named"), (["nope"], "no capture of a run 'nope'")])
def test_a_run_that_is_not_there_is_told(arguments: list[str], message: str, place: str) -> None:
    result = CliRunner().invoke(app, ["replay", *arguments, "--model", "mistaken:Net"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "step 0  nonfinite-activation" in result.stderr, "what there is"


def test_a_damaged_capture_is_told(place: str) -> None:
    (Path(place) / "tensors.safetensors").write_bytes(b"{}")
    result = CliRunner().invoke(app, ["replay", place, "--model", "mistaken:Net"])
    assert result.exit_code == 2
    assert "is damaged" in result.stderr


def test_weights_made_bad_by_gradients_that_were_read_became_so_in_no_unread_step() -> None:
    """As by an all-reduce: what made the gradients bad is not seen here, but that they were is."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    factor = 1.0

    def spoil(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(factor)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(spoil)
    with sg.watch(model, optimizer, store=False) as watch:
        for step in range(8):
            factor = float("nan") if step >= 4 else 1.0
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    found = {finding.id: finding for finding in watch.findings}
    assert found["nonfinite-gradient"].step == 4
    assert found["nonfinite-parameter"].step == 5
    assert "not read" not in found["nonfinite-parameter"].message
    assert found["nonfinite-parameter"].evidence["because"] == "nonfinite-gradient"
