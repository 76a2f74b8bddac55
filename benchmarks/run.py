"""What `seismograd run` costs: a script under `python`, with `sg.watch` in it, and under `seismograd run`, in turn.

    python benchmarks/run.py [--quick] [--rounds 5] [--only mlp] [--steps 800]

The script writes the times of its own steps. Each round starts one process for each way, so that what else goes on on
the machine falls on all alike; a way's figure is the median over rounds of its median step, and the interval is that of
the rounds, resampled. The first fifth of the steps is left out. What a watch may use freely at its start (0.75 s) is in
it, as it is for a user: only a long run pays no more than its budget.

Start-up is the whole time of a script that imports torch and nothing else, by the same ways.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "run.json"
PYTHON, WATCH, RUN = "python", "sg.watch", "seismograd run"

SCRIPT = """
import sys
from contextlib import nullcontext
from time import perf_counter

import torch
from torch import nn

steps, kind, watched = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "watched"
torch.manual_seed(0)
torch.set_num_threads(1)
if kind == "mlp":
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    inputs = torch.randn(64, 784)
else:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(1000, 256), body, nn.Flatten(), nn.Linear(256 * 64, 10))
    inputs = torch.randint(0, 1000, (8, 64))
labels = torch.randint(0, 10, (len(inputs),))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
watch = nullcontext()
if watched:
    import seismograd
    watch = seismograd.watch(model, optimizer)
times = []
with watch:
    for _ in range(steps):
        began = perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        times.append(perf_counter() - began)
print(" ".join(map(repr, times)))
"""


@dataclass
class Row:
    """One way to run one script, against plain `python`."""

    case: str
    way: str
    step_ms: float
    ratio: float
    low: float
    high: float


def command(way: str, script: Path, *arguments: str) -> list[str]:
    before = [sys.executable, "-m", "seismograd", "run", "--quiet"] if way == RUN else [sys.executable]
    return [*before, str(script), *arguments]


def step_times(way: str, script: Path, steps: int, kind: str) -> list[float]:
    told = "watched" if way == WATCH else "plain"
    done = subprocess.run(command(way, script, str(steps), kind, told), capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def compare(kind: str, script: Path, steps: int, rounds: int) -> list[Row]:
    ways = (PYTHON, WATCH, RUN)
    medians = np.empty((rounds, len(ways)))
    for at in range(rounds):
        for turn in range(len(ways)):
            way = (turn + at) % len(ways)
            times = step_times(ways[way], script, steps, kind)
            medians[at, way] = np.median(times[steps // 5 :])
    return [_row(kind, way, medians[:, 0], medians[:, at]) for at, way in enumerate(ways)]


def _row(case: str, way: str, plain: np.ndarray, other: np.ndarray) -> Row:
    chosen = np.random.default_rng(0).integers(0, len(plain), (2000, len(plain)))
    ratios = np.median(other[chosen], axis=1) / np.median(plain[chosen], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    middle = float(np.median(other))
    return Row(case, way, 1e3 * middle, middle / float(np.median(plain)), float(low), float(high))


def start_up(folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds more than `python` takes for a script that imports torch."""
    script = folder / "imports.py"
    script.write_text("import torch\n")
    taken: dict[str, list[float]] = {PYTHON: [], RUN: []}
    for at in range(rounds + 1):
        for way in (PYTHON, RUN) if at % 2 else (RUN, PYTHON):
            began = perf_counter()
            subprocess.run(command(way, script), check=True, capture_output=True)
            taken[way].append(perf_counter() - began)
    seconds = {way: float(np.median(times[1:])) for way, times in taken.items()}  # the first one fills caches
    more = [run - plain for plain, run in zip(taken[PYTHON][1:], taken[RUN][1:], strict=True)]
    return {"python": seconds[PYTHON], "run": seconds[RUN], "more": float(np.median(more)), "target": 0.3}


def measure(quick: bool, rounds: int, only: str | None, steps: int | None) -> tuple[list[Row], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        sizes = {"mlp": 20} if quick else {"mlp": 800, "transformer": 40}
        chosen = {kind: steps or usual for kind, usual in sizes.items() if only in (None, kind)}
        rows = [row for kind, count in chosen.items() for row in compare(kind, script, count, rounds)]
        return rows, start_up(folder, rounds)


def show(rows: list[Row], started: dict[str, Any], console: Console) -> None:
    table = Table(title="A script's own step times, by how it is run", title_justify="left")
    for name in ("script", "way", "step", "ratio", "95 %"):
        table.add_column(name, justify="left" if name in ("script", "way") else "right", no_wrap=True)
    for row in rows:
        table.add_row(row.case, row.way, f"{row.step_ms:.2f} ms", f"{row.ratio:.3f}", f"{row.low:.3f}-{row.high:.3f}")
    console.print(table)
    console.print(
        f"start-up of a script that imports torch: {started['python']:.2f} s by python, {started['run']:.2f} s by "
        f"seismograd run, {started['more']:.2f} s more (target {started['target']} s)"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few steps, one round: does it run?")
    parser.add_argument("--rounds", type=int, help="processes for each way")
    parser.add_argument("--only", choices=("mlp", "transformer"), help="one script instead of both")
    parser.add_argument("--steps", type=int, help="steps of each process")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    rounds = options.rounds or (1 if options.quick else 5)
    rows, started = measure(options.quick, rounds, options.only, options.steps)
    show(rows, started, Console() if sys.stdout.isatty() else Console(width=120))
    result = {
        "benchmark": "run",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "rows": [vars(row) for row in rows],
        "start_up": started,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
