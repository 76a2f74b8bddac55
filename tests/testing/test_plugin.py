"""The plugin in a pytest of its own, as a user's suite has it: pip's entry point loads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import torch
from torch import nn


def make(sick):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(16, 4), float("nan") if sick else 1.0


def run(watch, sick):
    model, optimizer, x, factor = make(sick)
    watch(model, optimizer)
    for _ in range(10):
        optimizer.zero_grad()
        (((model(x) - x.sum(1, keepdim=True)) ** 2).mean() * factor).backward()
        optimizer.step()


def test_healthy(seismograd_watch):
    run(seismograd_watch, False)


def test_sick(seismograd_watch):
    run(seismograd_watch, True)


def test_errs(seismograd_watch):
    run(seismograd_watch, False)
    raise RuntimeError("mine")


def test_trains(trains):
    model, optimizer, x, _ = make(False)
    trains(model, [(x, x.sum(1, keepdim=True))], nn.functional.mse_loss, optimizer, steps=20)
"""


def suite(folder: Path, *arguments: str, text: str = SUITE) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *arguments, "test_suite.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("more", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_sick_training_fails_with_its_verdict(more: tuple[str, ...], tmp_path: Path) -> None:
    done = suite(tmp_path, "--seismograd-html", "pages", *more)
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("\nseismograd: critical after 10 steps") == 1  # told once
    assert "Implicitly cleaning up" not in done.stdout + done.stderr  # with warnings as errors that is one
    assert "critical[nonfinite-loss]: The loss is NaN at step 0" in done.stdout
    assert "RuntimeError: mine" in done.stdout
    assert "watching.py" not in done.stdout  # no traceback through our files
    assert "plugin.py" not in done.stdout
    assert "entries are hidden" not in done.stdout
    (page,) = (tmp_path / "pages").iterdir()
    assert page.name == "test-suite.py-test-sick.html"
    assert "nonfinite-loss" in page.read_text()


def test_it_is_light_and_can_be_left_out(tmp_path: Path) -> None:
    text = "import sys\n\ndef test_none():\n    assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
    done = suite(tmp_path, "--seismograd-html", "pages", text=text)
    assert "1 passed" in done.stdout, done.stdout
    done = suite(tmp_path, "-p", "no:seismograd", text=text)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_entry_point_is_declared() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"seismograd": "seismograd.testing.plugin"}
