"""What recording a run costs: write rate, size, the training step, queries; next to TensorBoard's writer and mlflow.

    python benchmarks/store.py [--quick] [--only write] [--out FILE]

Five parts, each by its name under `--only`. `write`: the same readings into a SQLite store, a PostgreSQL one and
the peers, as fast as each takes them, and how the whole series of the loss is read again. `long`: a run with 200
layers, a million steps of it, under the default limit. `query`: how long it takes to open a store and to ask it, after
ten thousand and a million steps. `cost`: watched training steps with the store against watched ones without it, in
turn in one process, as `overhead.py` compares. `kill`: processes that write and are killed; what of it was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from seismograd.store import NoRunError, Store, open_store
from storing.peers import PEERS
from storing.readings import Synthetic, feed

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "store.json"
PARTS = ("write", "long", "query", "cost", "kill")
WRITERS = HERE.parent / "tests" / "store" / "writers.py"


@contextmanager
def postgres(folder: Path) -> Iterator[Callable[[str], str] | None]:
    """Makes databases and says their addresses; `None` where there is no server."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pgserver
        import psycopg
    except ImportError:
        yield None
        return
    server = pgserver.get_server(folder / "pg", cleanup_mode="delete")

    def made(name: str) -> str:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return str(server.get_uri(name)).replace("postgres:@", "postgres@")

    try:
        yield made
    finally:
        server.cleanup()


def places(name: str, folder: Path, server: Callable[[str], str] | None) -> dict[str, str]:
    found = {"SQLite": str(folder / name)}
    if server is not None:
        found["PostgreSQL"] = server(name)
    return found


# -- the parts -----------------------------------------------------------------------------------------------------


def write(folder: Path, server: Callable[[str], str] | None, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for layers, steps in ((0, 300 if quick else 20_000), (200, 60 if quick else 300)):
        for name, where in places(f"write_{layers}", folder, server).items():
            began = perf_counter()
            recorder = feed(where, steps, layers=layers)
            took = perf_counter() - began
            began = perf_counter()
            with open_store(where) as store:
                run = store.run("long-run")
                losses = int(run.series("loss")["loss"].count.sum())
                size = run.bytes
            rows.append(_row(f"Seismograd, {name}", layers, steps, took, size, perf_counter() - began, losses))
            rows[-1]["processor_us_per_step"] = 1e6 * recorder.spent / steps
        for peer in PEERS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # theirs
                try:
                    sink = peer(folder / f"{peer.__name__}_{layers}")  # type: ignore[call-arg]
                except ImportError:
                    continue
                source = Synthetic(layers)
                began = perf_counter()
                for reading in source.readings(0, steps):
                    sink.write(reading)
                sink.close()
                took = perf_counter() - began
                began = perf_counter()
                losses = sink.losses()
            rows.append(_row(sink.name, layers, steps, took, sink.size(), perf_counter() - began, losses))
    return rows


def _row(  # noqa: PLR0917
    who: str, layers: int, steps: int, took: float, size: int, read: float, losses: int
) -> dict[str, Any]:
    assert losses == steps, (who, losses)
    return {
        "who": who,
        "layers": layers,
        "steps": steps,
        "steps_per_second": steps / took,
        "bytes_per_step": size / steps,
        "read_series_ms": 1e3 * read,
    }


def long(folder: Path, quick: bool) -> dict[str, Any]:
    """A long run with many layers: its size does not grow with it."""
    steps, layers = (1500, 20) if quick else (1_000_000, 200)
    where = folder / "long"
    began = perf_counter()
    recorder = feed(where, steps, layers=layers)
    took = perf_counter() - began
    with open_store(where) as store:
        run = store.run("long-run")
        return {
            "steps": steps,
            "layers": layers,
            "steps_per_second": steps / took,
            "processor_us_per_step": 1e6 * recorder.spent / steps,
            "mb": run.bytes / 2**20,
            "mb_on_disk": sum(path.stat().st_size for path in where.iterdir()) / 2**20,
            "limit_mb": recorder.limit / 2**20,
            "whole": run.whole,
        }


def query(folder: Path, server: Callable[[str], str] | None, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for steps in (200, 600) if quick else (10_000, 1_000_000):
        for name, where in places(f"query_{steps}", folder, server).items():
            layers = 20 if quick else 50
            feed(where, steps if steps < 100_000 else steps - 5000)
            feed(where, 5000 if steps >= 100_000 else steps, layers=layers, run="layers")
            with open_store(where) as store:
                asked = questions(where, store, steps)
                times = {what: _median(ask, 3 if quick else 15) for what, ask in asked.items()}
            rows.append({"store": name, "steps": steps, "ms": times})
    return rows


def questions(where: str, store: Store, steps: int) -> dict[str, Callable[[], Any]]:
    run, wide, middle = store.run("long-run"), store.run("layers"), steps // 2

    def opened() -> None:
        with open_store(where) as anew:
            anew.runs()

    return {
        "open and list": opened,
        "list": lambda: store.runs(limit=50),
        "series, all": lambda: run.series(["loss", "grad/norm"], points=1000),
        "series, zoomed": lambda: run.series(["loss"], middle, middle + 2000, points=1000),
        "series, newest": lambda: run.series(["loss"], steps - 7000, points=1000),
        "heat": lambda: wide.heat("gradient", "norm"),
        "findings": run.findings,
    }


def _median(ask: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = perf_counter()
        ask()
        times.append(1e3 * (perf_counter() - began))
    return statistics.median(times)


def cost(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Blocks of steps under a watch with a store and under one without, in turn; the ratio of their medians."""
    import torch

    from overhead import Paused, Side, bootstrap, cases
    from seismograd.training import watch

    torch.set_num_threads(1)
    rows = []
    for case in cases(quick)[:1] if quick else cases(quick)[:2]:
        for level in ("basic", "advanced"):
            torch.manual_seed(0)
            model, inputs = case.build()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
            options: dict[str, Any] = {"level": level, "sinks": [], "strict": True}
            without = watch(model, optimizer, store=False, **options)
            with_store = watch(model, optimizer, store=folder / f"cost-{case.name}-{level}", **options)
            plain, stored = Side(model, optimizer, inputs), Side(model, optimizer, inputs)
            plain.around, stored.around = Paused(without), Paused(with_store)
            pairs, block = (2, 4) if quick else (30, max(6, case.steps // 60))
            for side in (plain, stored):
                side.block(50)
            for each in (without, with_store):
                each.governor.drain()
            samples = np.array([[plain.block(block), stored.block(block)] for _ in range(pairs)])
            wall = samples[:, :, 0]
            spent = with_store.recorder.spent if with_store.recorder else 0.0
            report = with_store.report()["run"]
            without.close()
            with_store.close()
            low, high = bootstrap(wall)
            rows.append(
                {
                    "case": case.name,
                    "level": level,
                    "step_ms": 1e3 * float(np.median(wall[:, 0])),
                    "ratio": float(np.median(wall[:, 1]) / np.median(wall[:, 0])),
                    "low": low,
                    "high": high,
                    "processor_seconds": spent,
                    "overhead": report["overhead"],
                    "thinned": report["store"]["thinned"],
                }
            )
    return rows


def kill(folder: Path, quick: bool) -> dict[str, Any]:
    """Kills processes that write, and looks at how old what is missing was."""
    chance, lost, kills = random.Random(1), [], 0
    for at in range(1 if quick else 10):
        where, notes = folder / f"kill-{at % 2}", folder / f"notes-{at}"
        notes.mkdir()
        command = [sys.executable, str(WRITERS), str(where), str(notes), "--prefix", f"{at}-", "--processes", "10"]
        with subprocess.Popen([*command, "--rate", "200"], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            children = [int(parent.stdout.readline()) for _ in range(10)]
            moments = sorted((time.monotonic() + chance.uniform(0.05, 4.0), number) for number in range(10))
            for moment, number in moments:
                time.sleep(max(0.0, moment - time.monotonic()))
                os.kill(children[number], signal.SIGKILL)
                kills += 1
            parent.wait()
        with open_store(where) as store:
            for number in range(10):
                log = notes / f"{number}.log"
                data = log.read_bytes() if log.exists() else b""
                told = list(struct.iter_unpack("<qd", data[: len(data) // 16 * 16]))
                try:
                    there = sum(1 for _ in store.run(f"{at}-{number}").readings())
                except NoRunError:
                    there = 0
                if there < len(told):
                    lost.append(told[-1][1] - told[there][1])
    return {"kills": kills, "median_s": statistics.median(lost) if lost else 0.0, "most_s": max(lost, default=0.0)}


# -- telling -------------------------------------------------------------------------------------------------------


def show(result: dict[str, Any], console: Console) -> None:
    if rows := result.get("write"):
        table = _table(
            "The same readings, written as fast as they are taken", "layers", "steps/s", "bytes/step", "read loss"
        )
        for row in rows:
            figures = (
                f"{row['steps_per_second']:,.0f}",
                f"{row['bytes_per_step']:,.0f}",
                f"{row['read_series_ms']:.1f} ms",
            )
            table.add_row(row["who"], str(row["layers"]), *figures)
        console.print(table)
    if row := result.get("long"):
        console.print(
            f"{row['steps']:,} steps with {row['layers']} layers: {row['mb']:.1f} MB of {row['limit_mb']:.0f} "
            f"({row['mb_on_disk']:.1f} MB on disk), {row['steps_per_second']:,.0f} steps/s, "
            f"{row['processor_us_per_step']:.0f} us of processor time a step"
        )
    if rows := result.get("query"):
        table = _table("Milliseconds to ask (median)", "steps", *rows[0]["ms"])
        for row in rows:
            table.add_row(row["store"], f"{row['steps']:,}", *(f"{value:.1f}" for value in row["ms"].values()))
        console.print(table)
    if rows := result.get("cost"):
        table = _table(
            "A watched step with the store / without it", "level", "step", "ratio", "95 %", "share", "budget"
        )
        for row in rows:
            share, budget = row["overhead"]["measured"], row["overhead"]["budget"]
            figures = (f"{row['ratio']:.3f}", f"{row['low']:.3f}-{row['high']:.3f}", f"{share:.2%}", f"{budget:.0%}")
            table.add_row(row["case"], row["level"], f"{row['step_ms']:.2f} ms", *figures)
        console.print(table)
    if row := result.get("kill"):
        console.print(f"{row['kills']} killed: lost {row['median_s']:.2f} s (median), at most {row['most_s']:.2f} s")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few steps: does it run?")
    parser.add_argument("--only", action="append", metavar="PART", choices=PARTS, help="may be given again")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args(arguments)
    wanted = options.only or PARTS
    console = Console() if sys.stdout.isatty() else Console(width=130)
    folder = Path(tempfile.mkdtemp(prefix="seismograd-store-"))
    parts: dict[str, Any] = {}
    try:
        with postgres(folder) as server:
            if "write" in wanted:
                parts["write"] = write(folder, server, options.quick)
            if "query" in wanted:
                parts["query"] = query(folder, server, options.quick)
        if "long" in wanted:
            parts["long"] = long(folder, options.quick)
        if "cost" in wanted:
            parts["cost"] = cost(folder, options.quick)
        if "kill" in wanted:
            parts["kill"] = kill(folder, options.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(parts, console)
    result = {
        "benchmark": "store",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": {"python": platform.python_version(), "cpu": platform.machine(), "cores": os.cpu_count()},
        "load": os.getloadavg()[0],
        **parts,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
