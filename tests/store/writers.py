"""Writes made-up readings into a store, from as many processes as are wanted, until it is killed or told to end.

    python writers.py STORE FOLDER [--processes 10] [--rate 2000] [--steps 0] [--layers 0]

Each process is forked from this one and notes in FOLDER/NUMBER.log, which outlives it, each reading that it handed
over: its step and the time (8 bytes each). With `--steps` it hands over so many, and closes. What it warns of goes to
stderr.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import time
import traceback
from pathlib import Path

from seismograd.records import Reading, TensorStats
from seismograd.store import recorder, schema, writing  # noqa: F401 (imported before the fork)

NOTE = struct.Struct("<qd")


def reading(step: int, layers: int) -> Reading:
    scalars = {"loss": 1.0 / (1 + step), "grad/norm": float(step), "time/step": 1e-3}
    names = tuple(f"layer.{at}" for at in range(layers))
    tensors = {"gradient": TensorStats(names, {"norm": [step + at / 7 for at in range(layers)]})} if layers else {}
    return Reading(step, scalars, tensors)


def write(where: str, run: str, log: Path, options: argparse.Namespace) -> None:
    sink = recorder.Recorder(schema.url_of(where), run, run)
    began = time.monotonic()
    with open(log, "wb", buffering=0) as notes:
        step = 0
        while step < options.steps or not options.steps:
            now = time.monotonic()
            while step <= (now - began) * options.rate and (step < options.steps or not options.steps):
                sink.write_reading(reading(step, options.layers))
                notes.write(NOTE.pack(step, time.monotonic()))
                step += 1
            time.sleep(0.001)
        sink.close({"run": {"status": "healthy", "steps": step}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prefix", default="run-", help="of the runs' ids")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rate", type=float, default=2000.0, help="readings a second, each process")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--layers", type=int, default=0)
    options = parser.parse_args()
    children = []
    for number in range(options.processes):
        child = os.fork()
        if not child:
            code = 1
            try:
                write(options.store, f"{options.prefix}{number}", options.folder / f"{number}.log", options)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
        print(child, flush=True)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes), default=0))


if __name__ == "__main__":
    main()
