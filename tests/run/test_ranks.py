"""`torchrun -m seismograd run`: who speaks, and what the first rank's report has of the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import os, torch
from torch import nn

rank = int(os.environ["RANK"])
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
for step in range(30):
    scale = float("nan") if SICK and rank == 1 and step >= 20 else 1.0
    loss = nn.functional.mse_loss(model(x), y) * scale
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


TOGETHER = """\
import os, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(rank)
for step in range(40):
    x = torch.randn(32, 4, generator=generator)
    out = model(x)
    if rank == 1 and step >= 25:
        out = torch.sqrt(out - out.max() - 1)
    loss = nn.functional.mse_loss(out, x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
dist.barrier()
os._exit(0)
"""


def ran(folder: Path, text: str, *options: str) -> tuple[str, str]:
    script = folder / "train.py"
    script.write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "seismograd", "run", "--store", str(folder / "store"), *options, str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


@pytest.mark.slow
def test_another_rank_speaks_and_the_first_ones_verdict_is_on_all(tmp_path: Path) -> None:
    report, page = tmp_path / "report.json", tmp_path / "page.html"
    _, err = ran(tmp_path, f"SICK = True\n{SCRIPT}", "--report", str(report), "--html", str(page))
    assert err.count("rank 1: critical[nonfinite-loss]") == 1, err
    assert "rank 0: " not in err
    assert err.count("seismograd: critical after 30 steps on 2 ranks") == 1, err
    told = json.loads(report.read_text())
    assert (told["run"]["ranks"], told["run"]["status"]) == (2, "critical")
    assert [(side["rank"], side["status"], side["steps"]) for side in told["ranks"]] == [
        (0, "healthy", 30),
        (1, "critical", 30),
    ]
    assert {finding["rank"] for finding in told["findings"] if finding["severity"] == "critical"} == {1}
    assert "2 ranks" in page.read_text()


@pytest.mark.slow
def test_a_healthy_run_of_two_ranks_has_one_verdict(tmp_path: Path) -> None:
    _, err = ran(tmp_path, f"SICK = False\n{SCRIPT}")
    ours = [line for line in err.splitlines() if line.startswith("seismograd:")]
    assert len(ours) == 2, err
    assert ours[0].startswith("seismograd: healthy after 30 steps on 2 ranks, nothing found"), err
    assert "recorded as" in ours[1]
    assert "rank 1" not in err


@pytest.mark.slow
def test_what_is_passed_on_to_the_first_rank_only_it_tells(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    _, err = ran(tmp_path, TOGETHER, "--report", str(report))
    assert not [line for line in err.splitlines() if line.startswith("rank ")], err
    assert err.count("seismograd: critical after 40 steps on 2 ranks") == 1, err
    told = json.loads(report.read_text())
    first = told["findings"][0]
    assert (first["id"], first["rank"], first["step"]) == ("nonfinite-loss", 1, 25)
    assert first["where"]["code"].strip() == "out = torch.sqrt(out - out.max() - 1)"
    assert {each["evidence"].get("because") is not None for each in told["findings"][1:]} == {True}, "one story"
    assert {side["host"] for side in told["ranks"]} != {None}
    assert len({side["pid"] for side in told["ranks"]}) == 2


def test_a_rank_that_waits_in_native_code_before_it_trains_is_ended_by_a_signal(tmp_path: Path) -> None:
    """As where another one was killed before they met: else the launcher waits 30 s for it, and kills it."""
    (tmp_path / "train.py").write_text(
        "import ctypes\n"
        "libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)\n"
        "libc.pthread_mutex_lock(mutex)\n"
        "print('waits', flush=True)\n"
        "libc.pthread_mutex_lock(mutex)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "seismograd", "run", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.terminate()
    try:
        assert process.wait(timeout=60) == -signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()


def test_a_signal_while_the_verdict_is_made_comes_after_it(tmp_path: Path) -> None:
    """A launcher ends the other ranks when one has failed, and they may have begun to say so themselves."""
    (tmp_path / "train.py").write_text(
        SCRIPT.replace("SICK", "False") + "print('trained', flush=True)\nraise ValueError('lost the others')\n"
    )
    program = (
        "import os, signal, sys\n"
        "from seismograd.run.supervisor import Supervisor\n"
        "close = Supervisor._close\n"
        "def closes(self, *more):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return close(self, *more)\n"
        "Supervisor._close = closes\n"
        "from seismograd.__main__ import main\n"
        "sys.argv = ['seismograd', 'run', '--no-ranks', '--report', 'out.json', 'train.py']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert done.stderr.count("ValueError: lost the others") >= 1
    assert "seismograd: crashed after 30 steps" in done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["run"]["exit"]["exception"] == "ValueError: lost the others"
