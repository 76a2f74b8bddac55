"""A million synthetic readings through the judge and all detectors: is the time per reading flat, the memory bounded?

    python benchmarks/judge.py [--readings N]

Prints a table with a curve and writes benchmarks/results/judge.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil

from seismograd.detectors import DEFAULT
from seismograd.judge import Judge
from seismograd.records import Reading, TensorStats

PARAMETERS = 50
SLICES = 10
RESULTS = Path(__file__).parent / "results" / "judge.json"


def sampled(step: int) -> bool:
    """Dense at the start, then one in a hundred."""
    return step % 100 == 0 or (step < 100 and step & (step - 1) == 0)


class Synthetic:
    """The readings of a healthy run: a loss that falls and levels off in its noise, tables of 50 parameters."""

    def __init__(self, parameters: int = PARAMETERS, pool: int = 64, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.random = random.Random(seed)
        self.names = tuple(f"layers.{at // 2}.{('weight', 'bias')[at % 2]}" for at in range(parameters))
        self.norms = [rng.lognormal(-2.0, 0.3, parameters) for _ in range(pool)]
        self.sizes = np.where(np.arange(parameters) % 2 == 0, 4096.0, 64.0)
        self.size_norms = rng.lognormal(1.0, 0.1, parameters)
        self.gain = np.where(np.arange(parameters) % 2 == 0, 0.58, math.nan)
        self.std = np.full(parameters, 0.07)

    def readings(self, start: int, stop: int) -> Iterator[Reading]:
        draw, pool, names = self.random.gauss, self.norms, self.names
        for step in range(start, stop):
            norms = pool[step % len(pool)]
            loss = 2.0 * math.exp(-step / 3000) + 0.5 + draw(0.0, 0.02)
            scalars = {
                "loss": loss,
                "grad/norm": 1.0 + abs(draw(0.0, 0.1)),
                "lr/0": 1e-3,
                "weight_decay/0": 0.01,
                "time/step": 0.1,
            }
            tensors = {"gradient": TensorStats(names, {"norm": norms})}
            if sampled(step):
                tensors["parameter"] = TensorStats(
                    names,
                    {"norm": self.size_norms, "max": self.std, "size": self.sizes, "gain": self.gain, "std": self.std},
                )
            if step and sampled(step - 1):
                scalars["update/step"] = step - 1
                moves = norms * 1e-2
                tensors["update"] = TensorStats(
                    names,
                    {
                        "norm": moves,
                        "ratio": moves / self.size_norms,
                        "changed": np.ones(len(names)),
                        "gradient": norms,
                        "decay": self.size_norms * 1e-5,
                    },
                )
            if step % 1000 == 999:
                scalars["val_loss"] = loss + 0.1
            yield Reading(step, scalars, tensors)


def measure(readings: int) -> dict[str, object]:
    """Time per reading and memory, slice by slice; processor time, so that neighbours do not count."""
    judge, source, process = Judge(DEFAULT), Synthetic(), psutil.Process()
    slices, chunk = [], 1000
    edges = [readings * part // SLICES for part in range(SLICES + 1)]
    for start, stop in pairwise(edges):
        spent, chunks = 0.0, []
        for begin in range(start, stop, chunk):
            made = list(source.readings(begin, min(begin + chunk, stop)))
            began = time.process_time()
            for reading in made:
                judge.observe(reading)
            took = time.process_time() - began
            spent += took
            chunks.append(1e6 * took / len(made))
        gc.collect()
        slices.append(
            {
                "readings": [start, stop],
                "mean_us": 1e6 * spent / max(1, stop - start),
                "median_us": float(np.median(chunks)),
                "rss_mib": process.memory_info().rss / 2**20,
            }
        )
    return {
        "readings": readings,
        "parameters": PARAMETERS,
        "detectors": len(DEFAULT),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "findings": [finding.id for finding in judge.findings],
        "slices": slices,
        "flatness": slices[-1]["median_us"] / slices[1]["median_us"],  # type: ignore[operator]
        "growth_mib": slices[-1]["rss_mib"] - slices[1]["rss_mib"],  # type: ignore[operator]
    }


def show(result: dict[str, object]) -> None:
    slices: list[dict[str, float]] = result["slices"]  # type: ignore[assignment]
    highest = max(part["median_us"] for part in slices)
    print(f"{result['readings']:,} readings, {result['parameters']} parameters, {result['detectors']} detectors\n")
    print(f"{'up to reading':>14}  {'us/reading':>10}  {'RSS MiB':>8}")
    for part in slices:
        bar = "█" * round(30 * part["median_us"] / highest)
        print(f"{part['readings'][1]:>14,}  {part['median_us']:>10.1f}  {part['rss_mib']:>8.1f}  {bar}")  # type: ignore[index]
    print(f"\nlast slice against the second: time x{result['flatness']:.2f}, memory {result['growth_mib']:+.1f} MiB")
    print(f"findings on this healthy run: {result['findings'] or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readings", type=int, default=1_000_000, metavar="N")
    arguments = parser.parse_args()
    result = measure(arguments.readings)
    show(result)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
