"""Made-up readings of a long run, and a quick way to put a million of them into a store."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from seismograd.records import Reading, TensorStats
from seismograd.store.recorder import MOST, Recorder
from seismograd.store.schema import limit_of, url_of


class Synthetic:
    """The readings of a run: a loss that falls and levels off in its noise, times, memory, tables of its layers.

    With layers every reading has the norms of their gradients, and each `spacing`-th the dearer tables, as at the level
    `advanced`. The values come from a pool of noise, so that making them costs little.
    """

    def __init__(self, layers: int = 0, *, spacing: int = 10, seed: int = 0, pool: int = 4096) -> None:
        rng = np.random.default_rng(seed)
        self.names = tuple(f"layers.{at}.weight" for at in range(layers))
        self._spacing = spacing
        self._noise = rng.normal(size=pool).tolist()
        float32 = rng.lognormal(-2.0, 0.3, (997, layers)).astype(np.float32)  # as torch computes them
        self._norms = [row.astype(np.float64) for row in float32]

    def reading(self, step: int) -> Reading:
        noise = self._noise
        a, b = noise[step % len(noise)], noise[(step * 7 + 3) % len(noise)]
        scalars = {
            "loss": 2.0 * math.exp(-step / 3000) + 0.5 + 0.02 * a,
            "grad/norm": 1.0 + 0.1 * abs(b),
            "lr/0": 1e-3,
            "weight_decay/0": 0.01,
            "time/step": 0.1 + 0.002 * b,
            "time/data": 0.01 + 0.001 * abs(a),
            "time/forward": 0.03 + 0.001 * b,
            "time/backward": 0.05 + 0.001 * a,
            "memory/rss": 1e9 + 4096.0 * (step // 1000),
        }
        if step % 1000 == 999:
            scalars["val_loss"] = scalars["loss"] + 0.1
        return Reading(step, scalars, self._tables(step) if self.names else {})

    def readings(self, start: int, stop: int) -> Iterator[Reading]:
        for step in range(start, stop):
            yield self.reading(step)

    def _tables(self, step: int) -> dict[str, TensorStats]:
        norms = self._norms[(step * 13) % len(self._norms)]
        if step % self._spacing:
            return {"gradient": TensorStats(self.names, {"norm": norms})}
        other = self._norms[(step * 5 + 1) % len(self._norms)]
        none = np.zeros(len(norms))
        return {
            "gradient": TensorStats(self.names, {"norm": norms, "max": other, "mean": norms - other, "zeros": none}),
            "parameter": TensorStats(self.names, {"norm": other, "max": norms, "mean": other - norms}),
            "update": TensorStats(self.names, {"norm": norms * 1e-2, "ratio": norms / other, "changed": none + 1.0}),
        }


def feed(
    where: str | os.PathLike[str] | None,
    steps: int,
    *,
    layers: int = 0,
    run: str = "long-run",
    name: str = "long run",
    limit: int | None = None,
    changed: Callable[[Reading], Reading] = lambda reading: reading,
    report: Mapping[str, Any] | None = None,
) -> Recorder:
    """Puts a run of so many steps into the store as fast as it takes them, and none is left out; returns its recorder.

    `changed` may turn a reading into another one: a spike, a NaN. The run ends as `report` says.
    """
    recorder = Recorder(url_of(where), run, name, limit=limit_of(limit), state=lambda: {"steps": steps})
    source = Synthetic(layers)
    batch = MOST // 4
    for start in range(0, steps, batch):
        for reading in source.readings(start, min(start + batch, steps)):
            recorder.write_reading(changed(reading))
        if not recorder.flush(60.0):
            raise RuntimeError(f"the store cannot be written: {recorder.trouble}")
    recorder.close({"run": {"id": run, "name": name, "status": "healthy", "steps": steps}, **(report or {})})
    return recorder
