"""What watching costs each rank of a training, and the first of them, which merges what all of them tell.

Called by ranks.py. `overhead` launches 2, 4 and 8 processes that train one model with DDP, and compares watched with
unwatched blocks of steps as overhead.py does. With more processes than cores they stand in line for them: `cpu` is the
ratio of the processor time of the thread that trains, of the median rank, which tells what each does. `threads` is the
processor time of the watch's own threads, which go on in both. `merging` has the leader merge the notes of simulated
ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

BLOCK = 20
"""Steps in a row that are watched, or not."""


def overhead(ranks: tuple[int, ...] = (2, 4, 8), steps: int = 400, level: str = "advanced") -> list[dict[str, Any]]:
    """A row for each number of processes."""
    rows = []
    for number in ranks:
        with tempfile.TemporaryDirectory() as folder:
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
            command = [*launch, __file__, "--steps", str(steps), "--level", level]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800, cwd=folder)
            line = next((line for line in done.stdout.splitlines() if line.startswith("TOLD ")), None)
            if line is None:
                raise RuntimeError(done.stderr[-2000:])
            rows.append({"ranks": number, "level": level, **json.loads(line.removeprefix("TOLD "))})
    return rows


def worker(steps: int, level: str) -> None:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from overhead import Paused, Side, bootstrap
    from seismograd.training import watch as open_watch

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = [torch.randn(64, 784) for _ in range(16)]
    plain, watched = Side(model, optimizer, inputs), Side(model, optimizer, inputs)
    plain.steps(20)
    watch = open_watch(model, optimizer, level=level, sinks=[], store="runs")
    watched.around = Paused(watch)
    watched.block(60)
    watch.governor.drain()
    watched.block(40)
    began, before = time.perf_counter(), _threads(watch)
    both = np.array([(plain.block(BLOCK), watched.block(BLOCK)) for _ in range(max(4, steps // BLOCK))])
    samples, cpu = both[:, :, 0], both[:, :, 1]
    low, high = bootstrap(samples)
    row = {
        "ratio": float(np.median(samples[:, 1]) / np.median(samples[:, 0])),
        "low": low,
        "high": high,
        "cpu": float(np.median(cpu[:, 1]) / np.median(cpu[:, 0])),
        "step": float(np.median(samples[:, 0])),
        "threads": (_threads(watch) - before) / (time.perf_counter() - began),
        "read": watch.governor.read_steps / max(1, watch.governor.steps),
    }
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, row)
    if dist.get_rank() == 0:
        others = everyone[1:]
        told = {
            "ratio": row["ratio"],
            "low": row["low"],
            "high": row["high"],
            "step": row["step"],
            "cpu": sorted(each["cpu"] for each in everyone)[len(everyone) // 2],
            "others": sorted(each["ratio"] for each in others)[len(others) // 2],
            "threads": row["threads"],
            "threads_others": max(each["threads"] for each in others),
            "read": row["read"],
        }
        print("TOLD " + json.dumps(told), flush=True)
    dist.barrier()
    os._exit(0)


def _threads(watch: Any) -> float:
    spent = 0.0 if watch.recorder is None else watch.recorder.spent
    return float(spent + (0.0 if watch.exchange is None else watch.exchange.spent))


def merging(ranks: tuple[int, ...] = (2, 8, 64, 256, 1024, 4096, 10_240)) -> list[dict[str, Any]]:
    """What the leader does in a second, by the number of ranks: messages are read and merged, and a reading is made."""
    from seismograd.distributed.exchange import CYCLE, NOTES, RANKS_A_CYCLE, SHARE
    from seismograd.distributed.merging import Merger
    from seismograd.records import strict

    rows = []
    for world in ranks:
        cycle = CYCLE * max(1.0, world / RANKS_A_CYCLE)
        notes = max(1, min(SHARE, NOTES // world))
        merger, spent, made, size, cycles = Merger(world), 0.0, 0, 0, 5
        for turn in range(cycles):
            messages = [_message(rank, range(turn * notes, (turn + 1) * notes)) for rank in range(world)]
            size += sum(map(len, messages))
            began = time.process_time()
            for rank, text in enumerate(messages):
                for note in json.loads(text)["notes"]:
                    merger.add(rank, note)
            readings = merger.take()
            spent += time.process_time() - began
            made += len(readings)
        facts = len(json.dumps(strict(dict(readings[-1].facts))))
        rows.append(
            {
                "ranks": world,
                "cycle": cycle,
                "share": spent / cycles / cycle,
                "bytes_a_second": size / cycles / cycle,
                "bytes_a_rank": size / cycles / cycle / world,
                "readings_a_second": made / cycles / cycle,
                "reading_bytes": facts,
            }
        )
    return rows


def _message(rank: int, steps: range) -> str:
    times = {"step": 0.21, "data": 0.01, "forward": 0.07, "backward": 0.11, "optimizer": 0.01, "rest": 0.01}
    notes = [
        {
            "step": step,
            "loss": 1.25 + rank / 1000,
            "squares": 0.5,
            "gradients": 123456789012345,
            "graded": 148,
            "rates": [0.001],
            "kind": "ddp",
            "group": "",
            "signature": 3735928559,
            "times": times,
            "own": 0.1 + rank / 1e5,
            "collectives": 100 + step,
            "parameters": 98765432101234,
        }
        for step in steps
    ]
    return json.dumps(
        {"notes": notes, "findings": [], "about": {"host": f"node-{rank // 8}", "pid": rank}, "final": False}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--level", default="advanced")
    given = parser.parse_args()
    worker(given.steps, given.level)
