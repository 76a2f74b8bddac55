"""Launches programs of several ranks, and reads what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


def torchrun(*arguments: str, ranks: int = 2, restarts: int = 0) -> list[str]:
    """The command that launches them."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [sys.executable, *launch, "--max-restarts", str(restarts), *arguments]


def launched(
    *arguments: str, folder: Path, ranks: int = 2, restarts: int = 0, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs them to their end."""
    return subprocess.run(
        torchrun(*arguments, ranks=ranks, restarts=restarts),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
    )


def told(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """What each rank printed as JSON."""
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("TOLD "))
    return list(json.loads(line.removeprefix("TOLD ")))
