"""Ranks are not disturbed: no collective of ours, and each reads what is its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_ddp_and_fsdp_train_on_and_are_read_locally():
    program = Path(__file__).parent / "programs" / "ranks.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("TOLD "))
    first, second = json.loads(line.removeprefix("TOLD "))
    assert first["ddp"] == pytest.approx(second["ddp"], rel=1e-6), "after the all-reduce the gradients are the same"
    assert len(first["fsdp"]) == len(second["fsdp"]) == 6
    whole = math.hypot(first["fsdp"][0], second["fsdp"][0])
    assert whole == pytest.approx(first["ddp"][0], rel=1e-4), "the shards' norms make up that of the whole"
    assert first["findings"] == second["findings"] == []
    assert first["names"][0] == "module.0.weight"
