"""`seismograd run` as it is typed: its options, their variables, what it says, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seismograd.cli.mistakes import known_ids
from seismograd.detectors import DEFAULT

HEALTHY = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 8)
for step in range(30):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
    optimizer.step()
print("done", sys.argv[1:])
"""
SICK = HEALTHY.replace(
    "optimizer.step()\n", "optimizer.step()\n    if step == 9: x[0, 0] = float('nan')\n    print(step)\n"
)


def run(
    folder: Path, source: str, *options: str, args: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "seismograd", "run", *options, "train.py", *args]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def report(folder: Path, name: str = "out.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def test_a_healthy_run_gets_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, HEALTHY, "--report", "out.json", args=("--level", "3", "-m", "x", "--", "--help"))
    assert done.returncode == 0
    assert done.stdout == "done ['--level', '3', '-m', 'x', '--', '--help']\n"
    assert done.stderr == "seismograd: healthy after 30 steps, nothing found\n"
    assert report(tmp_path)["run"]["name"] == "train.py"


def test_fail_on_exits_with_3_where_it_would_be_0(tmp_path: Path) -> None:
    done = run(tmp_path, SICK, "--fail-on", "critical", "--level", "basic", "--budget", "0.5", "--report", "out.json")
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == "done []"
    assert "critical[nonfinite-loss]" in done.stderr
    about = report(tmp_path)["run"]
    assert (about["level"], about["overhead"]["budget"], about["exit"]["code"]) == ("basic", 0.5, 0)


def test_the_variables_stand_for_the_options(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        SICK + "\nsys.exit(5)",
        SEISMOGRAD_FAIL_ON="warning",
        SEISMOGRAD_LEVEL="extreme",
        SEISMOGRAD_BUDGET="0.25",
        SEISMOGRAD_REPORT="sub/out.json",
        SEISMOGRAD_IGNORE="nonfinite-loss,nonfinite-gradient",
        SEISMOGRAD_QUIET="1",
    )
    assert done.returncode == 5, "a script's own failure is not replaced"
    made = report(tmp_path, "sub/out.json")
    assert (made["run"]["level"], made["run"]["overhead"]["budget"]) == ("extreme", 0.25)
    assert not {"nonfinite-loss", "nonfinite-gradient"} & {finding["id"] for finding in made["findings"]}
    assert done.stderr.startswith("seismograd: critical after 30 steps"), "quiet: the verdict alone"


def test_quiet_and_healthy_is_silence(tmp_path: Path) -> None:
    assert run(tmp_path, HEALTHY, "-q").stderr == ""


def test_stop_on_ends_the_run_after_that_step_as_ctrl_c_would(tmp_path: Path) -> None:
    body = "".join(f"    {line}" for line in SICK.splitlines(keepends=True))
    source = f"try:\n{body}\nexcept KeyboardInterrupt:\n    print('saved')\n"
    done = run(tmp_path, source, "--stop-on", "critical", "--report", "out.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["9", "saved"]
    assert report(tmp_path)["run"]["steps"] == 11


def test_stop_on_without_anyone_to_catch_it(tmp_path: Path) -> None:
    done = run(tmp_path, SICK, "--stop-on", "critical", "--report", "out.json")
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
    assert "seismograd/" not in done.stderr
    assert report(tmp_path)["run"]["exit"] == {"code": 130, "exception": "KeyboardInterrupt"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gets_a_verdict_and_does_what_it_does(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(HEALTHY + "print('trained', flush=True)\nimport time\ntime.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-m", "seismograd", "run", "--report", "out.json", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "trained" not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == -number
    assert "seismograd: healthy after 30 steps" in said
    assert report(tmp_path)["run"]["exit"]["code"] == 128 + number


def test_a_script_that_never_trains(tmp_path: Path) -> None:
    done = run(tmp_path, "print('hello'); raise SystemExit(4)", "--report", "out.json")
    assert (done.returncode, done.stdout) == (4, "hello\n")
    assert done.stderr == "seismograd: no backward pass was seen\n"
    assert (report(tmp_path)["run"]["status"], report(tmp_path)["run"]["steps"]) == ("healthy", 0)


def test_a_script_whose_own_processes_may_train(tmp_path: Path) -> None:
    script = "from multiprocessing import get_context as of; p = of('fork').Process(target=print, args=('elsewhere',))"
    done = run(tmp_path, f"{script}; p.start(); p.join()")
    assert (done.returncode, done.stdout) == (0, "elsewhere\n")
    assert "no backward pass was seen; processes that the script started are not watched" in done.stderr


def test_where_nothing_goes_to_a_terminal_a_long_run_tells_how_it_goes(tmp_path: Path) -> None:
    source = HEALTHY.replace("range(30)", "range(65)").replace(
        "    optimizer.step()", "    optimizer.step(); time.sleep(0.1)"
    )
    done = run(tmp_path, "import time\n" + source)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("seismograd: ")
    assert "steps" in lines[0]
    assert lines[-1].startswith("seismograd: healthy after 65 steps")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "there is no script to run"),
        (("nothing.py",), "there is no file 'nothing.py'"),
        (("folder",), "'folder' is a folder without a __main__.py"),
        (("--budget", "7", "train.py"), "--budget 7 is no share of the time"),
        (("--level", "high", "train.py"), "'high' is not one of"),
        (("--report", "folder", "train.py"), "it is a folder, give a file"),
        (("--report", "train.py/x.json", "train.py"), "the report cannot be written to 'train.py/x.json'"),
    ],
)
def test_mistakes_are_said_before_the_script_starts(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "train.py").write_text("print('started')")
    (tmp_path / "folder").mkdir()
    command = [sys.executable, "-m", "seismograd", "run", *options]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_pyproject_is_said_before_the_script_starts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nlevel = 'high'\n")
    done = run(tmp_path, "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "high" in done.stderr


def test_an_unknown_id_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    done = run(tmp_path, "print('started')", "--ignore", "loss-spikes")
    assert done.stdout == "started\n"
    assert "--ignore loss-spikes names no finding, did you mean loss-spike" in done.stderr


def test_the_ids_that_can_be_ignored_are_those_of_the_detectors() -> None:
    ids = [detector.id for detector in DEFAULT]
    assert list(known_ids(ids)) == ids


def test_nothing_of_torch_or_numpy_is_there_before_the_script_wants_it(tmp_path: Path) -> None:
    done = run(
        tmp_path, "import sys; print([name for name in ('torch', 'numpy', 'rich.console') if name in sys.modules])"
    )
    assert done.stdout == "[]\n"


def test_a_script_that_watches_itself_is_reported_once(tmp_path: Path) -> None:
    source = "import seismograd as sg\n" + SICK.replace("for step", "watch = sg.watch(model, optimizer)\nfor step")
    done = run(tmp_path, source, "--report", "out.json")
    made = report(tmp_path)
    assert "runs" not in made
    assert made["run"]["steps"] == 30
    assert made["findings"][0]["id"] == "nonfinite-input"
    assert done.returncode == 0
    assert done.stderr.count("seismograd: critical after") == 1, "and one verdict, which is the last thing said"


def test_a_child_that_is_forked_says_nothing(tmp_path: Path) -> None:
    forks = "import os\nchild = os.fork()\nif child == 0: sys.exit(9)\n"
    source = f"{HEALTHY}{forks}print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    done = run(tmp_path, source)
    assert done.stdout.splitlines()[-1] == "9"
    assert done.stderr.count("seismograd:") == 1


def test_the_verdict_comes_at_once(tmp_path: Path) -> None:
    """What comes after it, an `atexit` that takes its time, does not hold it up."""
    (tmp_path / "train.py").write_text(
        HEALTHY + "import atexit, time\natexit.register(lambda: time.sleep(5))\nraise ValueError('here')"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "seismograd", "run", "train.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines = []
    while not lines or not lines[-1].startswith("seismograd: crashed"):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    time.sleep(0.2)
    assert process.poll() is None, "the script is still at its end"
    process.kill()
    process.wait()
    process.stderr.close()
