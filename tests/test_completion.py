"""Shell completion, by the protocol that shells speak, and in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seismograd as sg

FINISHED = "import sys; from seismograd.cli import main; main()"


def asked(shell: str, line: str, cwd: Path) -> list[str]:
    """What the shell is told about a line, whose last word is incomplete."""
    words = line.split(" ")
    env = {
        **os.environ,
        "_SEISMOGRAD_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", FINISHED], env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("step,loss\n" + "\n".join(f"{at},{1 / (at + 1)}" for at in range(20)))
    sg.read_log(tmp_path / "a.csv", store=tmp_path / "runs", name="mine")
    return tmp_path / "runs"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_findings_demos_and_runs(shell: str, tmp_path: Path, store: Path) -> None:
    assert any("diagnose" in each for each in asked(shell, "seismograd dia", tmp_path))
    assert any("nonfinite-loss" in each for each in asked(shell, "seismograd explain nonfinite-l", tmp_path))
    assert any("nan" in each for each in asked(shell, "seismograd demo n", tmp_path))
    run = sg.runs(store)[0].id
    assert any(run in each for each in asked(shell, f"seismograd show --store runs {run[:4]}", tmp_path))


def test_what_bash_is_told_is_exact(tmp_path: Path, store: Path) -> None:
    assert asked("bash", "seismograd explain loss-s", tmp_path) == ["loss-spike"]
    assert asked("bash", "seismograd diagnose --ignore loss-spike,loss-p", tmp_path) == ["loss-spike,loss-plateau"]
    assert asked("bash", "seismograd diff --store runs mi", tmp_path) == ["mine"]
    assert asked("bash", "seismograd show --store nowhere ", tmp_path) == ["last"]  # no store: no error either
    assert set(asked("bash", "seismograd read --format ", tmp_path)) == {"tensorboard", "mlflow", "csv", "json"}
    assert asked("bash", "seismograd run --sink t", tmp_path) == ["tensorboard", "trackio"]


def test_pressing_tab_imports_no_torch(tmp_path: Path) -> None:
    program = f"import atexit; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr)); {FINISHED}"
    env = {**os.environ, "_SEISMOGRAD_COMPLETE": "complete_bash", "COMP_WORDS": "seismograd ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip().endswith("False")
    assert {"run", "doctor", "read"} <= set(done.stdout.split())


def test_in_a_real_bash(tmp_path: Path) -> None:
    """The script that is shown is sourced, and the function that it registers completes a line."""
    bash = shutil.which("bash")
    assert bash is not None
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "seismograd"
    command.write_text(f"#!{sys.executable}\n{FINISHED}\n")
    command.chmod(0o755)
    script = f"""
        export PATH={folder}:$PATH
        source <(_SEISMOGRAD_COMPLETE=source_bash seismograd)
        complete -p seismograd
        COMP_WORDS=(seismograd explain nonfinite-g); COMP_CWORD=2
        $(complete -p seismograd | sed 's/.*-F \\([^ ]*\\) .*/\\1/') seismograd
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    lines = done.stdout.splitlines()
    assert "-F _seismograd_completion seismograd" in lines[0], done.stderr
    assert lines[1] == "nonfinite-gradient"


def test_installing_it_writes_to_the_home_that_is_there(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for shell, path in (
        ("bash", ".bash_completions/seismograd.sh"),
        ("zsh", ".zfunc/_seismograd"),
        ("fish", ".config/fish/completions/seismograd.fish"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", FINISHED, "--install-completion", shell],
            env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "_SEISMOGRAD_COMPLETE" in (tmp_path / path).read_text()
