"""Many ranks: how fast a store takes what they read, how long it takes to see them as one run, and to show it.

    python benchmarks/ranks.py [--only PART] [--ranks 1024] [--rounds 8] [--quick] [--out FILE]

Prints tables and writes benchmarks/results/ranks.json, part by part: what another part left there stays. `store`: ranks
are simulated by a few processes, each with its share of them; a rank writes batches of 50 readings, as one does that
steps a hundred times a second. It is done with a folder, in which each rank has a file of its own, and PostgreSQL.
Then the run is opened anew (`cold`), looked at again (`nothing new`, `one rank wrote`, `all ranks wrote`), and asked
for over HTTP by one person. `overhead`: what watching costs each of 2, 4 and 8 processes; `merging`: what the first
rank does for all of them (ranks_overhead.py has both).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

import ranks_overhead
from seismograd.records import Finding, Severity
from seismograd.store import open_store
from seismograd.store.recorder import Batch, Recorder
from seismograd.store.schema import limit_of, url_of
from seismograd.store.writing import Writing
from server import asked, served
from storing.readings import Synthetic

RESULTS = Path(__file__).parent / "results" / "ranks.json"
RUN = "20260101-101500-ranks0"
BATCH = 50
"""Readings that a rank writes at once."""
LAYERS = 12
PROCESSES = 2

VIEWS = {
    "list of runs": "/api/runs",
    "one run": f"/api/runs/{RUN}",
    "loss of a rank": f"/api/runs/{RUN}/series?name=loss&rank=7",
    "loss of all ranks": f"/api/runs/{RUN}/series?name=loss&rank=all&points=100",
    "layers of a rank": f"/api/runs/{RUN}/heat?kind=gradient&column=norm&rank=7",
    "findings": f"/api/runs/{RUN}/findings",
    "events": f"/api/runs/{RUN}/events",
    "report": f"/api/runs/{RUN}/report",
    "page": f"/api/runs/{RUN}/page",
    "metrics": "/metrics",
}


# -- the store ---------------------------------------------------------------------------------------------------------


class Rank:
    """A rank that reads what is made up, and writes it."""

    def __init__(self, where: str, rank: int, world: int) -> None:
        about = {"world_size": world, "host": f"host-{rank // 8}", "pid": 1000 + rank}
        recorder = Recorder(
            url_of(where),
            RUN,
            "many ranks",
            rank=rank,
            world=world,
            limit=max(1 << 20, limit_of() // world),
            about=lambda: about,
        )
        self.rank, self.step = rank, 0
        self._writing: Writing = recorder._open()

    def write(self, source: Synthetic, number: int = BATCH) -> None:
        now = time.time()
        readings = [(source.reading(self.step + at), now) for at in range(number)]
        self.step += number
        batch = Batch(readings, state={"status": "healthy", "level": "basic", "budget": 0.01, "steps": self.step})
        if self.step == number and self.rank % 64 == 3:
            found = Finding("made-up", Severity.WARNING, 1, "made up", rank=self.rank, evidence={"value": 1.0})
            batch.findings[found.key] = found
        if self.step == number:
            batch.events.append({"time": now, "event_type": "note", "message": f"rank {self.rank} begins"})
        self._writing.write(batch)
        self._writing.thin()

    def close(self) -> None:
        self._writing.disconnect()


def work(where: str, ranks: range, world: int, rounds: int) -> None:
    """In a process of its own: writes, says how long it took, and goes on whenever it is told to."""
    source = Synthetic(LAYERS)
    mine = [Rank(where, rank, world) for rank in ranks]
    for each in mine:
        each.write(source, 1)
    print("ready", flush=True)
    for line in sys.stdin:
        began = perf_counter()
        for _ in range(int(line)):
            for each in mine:
                each.write(source)
        print(perf_counter() - began, flush=True)
    for each in mine:
        each.close()


class Workers:
    """All ranks, in a few processes."""

    def __init__(self, where: str, world: int, rounds: int) -> None:
        share = -(-world // PROCESSES)
        self._world = world
        self._processes = []
        began = perf_counter()
        for at in range(PROCESSES):
            ranks = f"{at * share}:{min(world, (at + 1) * share)}"
            command = [sys.executable, __file__, "--work", where, ranks, str(world), str(rounds)]
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
            )
        for process in self._processes:
            if _line(process) != "ready":
                raise SystemExit("a process that simulates ranks did not start")
        self.began = perf_counter() - began

    def write(self, rounds: int) -> float:
        """Seconds that it took all ranks to write so many batches each."""
        began = perf_counter()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{rounds}\n")
            process.stdin.flush()
        for process in self._processes:
            _line(process)
        return perf_counter() - began

    def close(self) -> None:
        for process in self._processes:
            process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def postgres(folder: Path, world: int) -> Iterator[str | None]:
    """The address of an empty database that takes as many connections as there are ranks; none without a server."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pgserver
            from pgserver._commands import pg_ctl
        import psycopg
    except ImportError:
        yield None
        return
    data = folder / "pg"
    server = pgserver.get_server(data, cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"alter system set max_connections = {world + 50}".encode())
            connection.execute(b"create database ranks")
        pg_ctl(["-w", "-m", "fast", "restart"], pgdata=data, user=server.system_user)
        server._postmaster_info = None
        server.ensure_postgres_running()
        yield str(server.get_uri("ranks")).replace("postgres:@", "postgres@")
    finally:
        server.cleanup()


def store(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    folder = Path(tempfile.mkdtemp(prefix="seismograd-ranks-bench-"))
    try:
        rows.append(measured("a file a rank", str(folder / "store"), options))
        with postgres(folder, options.ranks) as server:
            if server is not None:
                rows.append(measured("PostgreSQL", server, options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def measured(name: str, where: str, options: argparse.Namespace) -> dict[str, Any]:
    world, rounds = options.ranks, options.rounds
    workers = Workers(where, world, rounds)
    try:
        took = workers.write(rounds)
        kinds = ("cold", "nothing new", "one rank wrote", "all ranks wrote")
        merge: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(3):
            with open_store(where) as opened:
                merge["cold"].append(_timed(lambda opened=opened: opened.run(RUN)))
        with open_store(where) as opened:
            run = opened.run(RUN)
            assert len(run.ranks) == world, len(run.ranks)
            for _ in range(5):
                time.sleep(0.25)
                merge["nothing new"].append(_timed(run.refresh))
            batches = run.batch
            extra = Rank(where, world, world + 1)
            source = Synthetic(LAYERS)
            for _ in range(5):
                extra.write(source)
                time.sleep(0.25)
                merge["one rank wrote"].append(_timed(run.refresh))
            extra.close()
            for _ in range(3):
                workers.write(1)
                merge["all ranks wrote"].append(_timed(lambda run=run: _all_seen(run)))
            assert run.batch >= batches + 3 * world
        views = shown(where, options)
        size = _size(where)
    finally:
        workers.close()
    return {
        "store": name,
        "ranks": world,
        "steps": rounds * BATCH,
        "start_s": workers.began,
        "readings_per_second": world * rounds * BATCH / took,
        "batches_per_second": world * rounds / took,
        "merge_ms": {what: statistics.median(wall for wall, _ in times) for what, times in merge.items()},
        "merge_processor_ms": {what: statistics.median(spent for _, spent in times) for what, times in merge.items()},
        "views": views,
        "mb": size / 2**20,
    }


def _all_seen(run: Any) -> None:
    """Until everything that was written is seen: what takes long is gathered in parts."""
    told = -1
    while run.refresh().batch != told:
        told = run.batch


def _timed(what: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds, and those of this process on a processor: the machine may have other work."""
    began, processor = perf_counter(), time.process_time()
    what()
    return 1e3 * (perf_counter() - began), 1e3 * (time.process_time() - processor)


def _size(where: str) -> int:
    with open_store(where) as opened:
        from seismograd.store.space import taken

        return taken(opened)


def shown(where: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Over HTTP, one person alone: the first answer, the usual one, its size."""
    found = {}
    with served(where) as port:  # type: ignore[arg-type]
        for name, path in VIEWS.items():
            first, size = asked(port, path, 0.0, 1)
            times, _ = asked(port, path, 0.0, 1 if options.quick else 5)
            found[name] = {"first_ms": first[0], "median_ms": statistics.median(times), "bytes": size}
    return found


# -- telling -----------------------------------------------------------------------------------------------------------


def show(parts: dict[str, Any], console: Console) -> None:
    rows = parts.get("store") or []
    if not rows:
        return
    table = Table(title=f"{rows[0]['ranks']:,} ranks, {rows[0]['steps']:,} steps each", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(row["store"], justify="right")
    figures: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("readings/s", lambda row: f"{row['readings_per_second']:,.0f}"),
        ("batches/s", lambda row: f"{row['batches_per_second']:,.0f}"),
        ("all begin", lambda row: f"{row['start_s']:.1f} s"),
        ("on disk", lambda row: f"{row['mb']:,.0f} MB"),
    ]
    for what in rows[0]["merge_ms"]:
        figures.append(
            (
                f"merge, {what} (processor)",
                lambda row, what=what: f"{row['merge_ms'][what]:,.0f} ({row['merge_processor_ms'][what]:,.0f}) ms",
            )
        )
    for view in VIEWS:
        figures.append(
            (
                view,
                lambda row, view=view: f"{row['views'][view]['median_ms']:,.0f} ms ({row['views'][view]['bytes']:,} B)",
            )
        )
    for name, told in figures:
        table.add_row(name, *(told(row) for row in rows))
    console.print(table)


def overhead(options: argparse.Namespace) -> list[dict[str, Any]]:
    return ranks_overhead.overhead((2,), 40) if options.quick else ranks_overhead.overhead()


def merging(options: argparse.Namespace) -> list[dict[str, Any]]:
    return ranks_overhead.merging((2, 64)) if options.quick else ranks_overhead.merging()


def show_others(parts: dict[str, Any], console: Console) -> None:
    if rows := parts.get("overhead"):
        table = Table(
            "processes", "a step", "watched / unwatched (95 %)", "other ranks", "processor time", "its threads", "read"
        )
        for row in rows:
            table.add_row(
                str(row["ranks"]),
                f"{1e3 * row['step']:.1f} ms",
                f"{row['ratio']:.3f} ({row['low']:.3f}-{row['high']:.3f})",
                f"{row['others']:.3f}",
                f"{row['cpu']:.3f}",
                f"{row['threads']:.2%} (others {row['threads_others']:.2%})",
                f"{row['read']:.0%}",
            )
        console.print(table)
    if rows := parts.get("merging"):
        table = Table(
            "ranks", "a message every", "of a processor, on the first", "to the first", "a rank", "readings", "each"
        )
        for row in rows:
            table.add_row(
                f"{row['ranks']:,}",
                f"{row['cycle']:g} s",
                f"{row['share']:.2%}",
                f"{row['bytes_a_second'] / 1e3:,.0f} kB/s",
                f"{row['bytes_a_rank']:,.0f} B/s",
                f"{row['readings_a_second']:.3g}/s",
                f"{row['reading_bytes']:,} B",
            )
        console.print(table)


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {"store": store, "overhead": overhead, "merging": merging}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few ranks: does it run?")
    parser.add_argument("--only", action="append", metavar="PART", choices=PARTS, help="may be given again")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=8, help="batches that each rank writes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        where, ranks, world, rounds = options.work
        work(where, range(*map(int, ranks.split(":"))), int(world), int(rounds))
        return
    if options.quick:
        options.ranks, options.rounds = min(options.ranks, 16), 2
    console = Console() if sys.stdout.isatty() else Console(width=130)
    made = {name: part(options) for name, part in PARTS.items() if name in (options.only or PARTS)}
    show(made, console)
    show_others(made, console)
    try:
        before = json.loads(options.out.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    result = {
        **before,
        "benchmark": "ranks",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": {"python": platform.python_version(), "cpu": platform.machine(), "cores": os.cpu_count()},
        "load": os.getloadavg()[0],
        **made,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
