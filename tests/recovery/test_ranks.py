"""All ranks decide alike, whoever met the bad batch, and none waits for ever for one that does not take part."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def run(*what: str, program: str = "ranks.py") -> tuple[dict[str, Any], dict[str, Any]]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(PROGRAMS / program), *what], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("TOLD "))
    first, second = json.loads(line.removeprefix("TOLD "))
    return first, second


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("what", "action"), [("skip", "skip"), ("stop", "stop"), ("lower-lr", "lower-lr"), ("rollback", "rollback")]
)
def test_both_ranks_do_the_same(what: str, action: str) -> None:
    first, second = run(what)
    assert first["actions"] == second["actions"]
    assert [name for _, name in first["actions"]] == [action]
    assert first["weights"] == second["weights"]
    assert all(math.isfinite(value) for weights in first["weights"] for value in weights)
    assert first["lr"] == second["lr"]
    assert (first["stopped"] is None) == (second["stopped"] is None) == (what != "stop")


@pytest.mark.slow
def test_ranks_that_hold_shards_skip_together() -> None:
    first, second = run("sharded")
    assert first["actions"] == second["actions"] == [[10, "skip"]]
    assert all(math.isfinite(value) for each in (first, second) for weights in each["weights"] for value in weights)
    assert first["summary"]["skipped_steps"] == second["summary"]["skipped_steps"] == 1


@pytest.mark.slow
def test_a_watch_on_one_rank_only_holds_nobody_up_for_long() -> None:
    first, second = run("alone")
    assert any("not all ranks take part" in message for message in first["events"])
    assert second["summary"] is None


@pytest.mark.slow
def test_what_only_one_rank_knows_is_decided_upon_by_all(subtests: Any) -> None:
    first, second = run(program="alike.py")
    for case, actions in {
        "suspected": [[75, "rollback", 75]],  # nothing of it had reached the weights: no rank goes further back
        "half": [[10, "skip", None]],  # the gradient of one shard is finite
        "asked": [[10, "skip", None]],  # the function says so only where it is told of something
        "kept": [[20, "rollback", 17]],  # a state that both of them have kept
    }.items():
        with subtests.test(case):
            assert first[case]["actions"] == second[case]["actions"] == actions
            assert first[case]["weights"] == second[case]["weights"]
            assert all(math.isfinite(value) for weights in first[case]["weights"] for value in weights)
