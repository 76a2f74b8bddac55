"""Leaks and what holds them: steps to detection, rightness of the name and line, false alarms, and what it all costs.

    python benchmarks/memory.py [--quick] [--only leaks] [--only losses_with_graphs] [--seeds 0,1,2]

Four parts, each by its name under `--only`: `leaks` are the programs of `tests/patients/sick_memory.py`, whose leaking
lines say what holds the memory, `growth` those of `healthy_memory.py`, which grow for a good reason; each runs in a
process of its own. `cost` compares steps under a watch with steps under one without the parts that look for leaks (the
memory probe, the onlooker, the detector), in short blocks in turn, as `overhead.py` does. `search` looks for what holds
memory in a process with a million objects of its own.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import platform
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from overhead import Paused, Side, bootstrap, cases
from seismograd.detectors import DEFAULT
from seismograd.memory import holders, snapshots
from seismograd.onlookers.resources.holders import Holders
from seismograd.sinks import Memory
from seismograd.training import TrainingDebugger, watch

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "memory.json"
PATIENTS = HERE.parent / "tests"
PARTS = ("leaks", "growth", "cost", "search")
FILES = {"leaks": "sick_memory", "growth": "healthy_memory"}
MARK = re.compile(r"# leaks: (.*)$")


# -- programs ------------------------------------------------------------------------------------------------------


def programs(part: str) -> dict[str, Any]:
    """The patients of one file, by name."""
    if str(PATIENTS) not in sys.path:
        sys.path.insert(0, str(PATIENTS))
    module = importlib.import_module(f"patients.{FILES[part]}")
    register = importlib.import_module("patients.register")
    return {
        name: patient
        for name, patient in {**register.SICK, **register.HEALTHY}.items()
        if patient.program.__module__ == module.__name__
    }


def one(part: str, name: str, seed: int) -> dict[str, Any]:
    """Runs a program in this process, and says what was found of its memory."""
    began = perf_counter()
    run = programs(part)[name].run(seed)
    findings = [finding for finding in run.findings if finding.id == "memory-leak"]
    told: dict[str, Any] = {"name": name, "seed": seed, "found": bool(findings), "seconds": perf_counter() - began}
    told["alarms"] = sorted({f.id for f in run.findings if f.severity.value != "info"})
    if findings:
        finding = findings[0]
        lines = (PATIENTS / "patients" / f"{FILES[part]}.py").read_text().splitlines()
        mark = MARK.search(lines[finding.where.line - 1]) if finding.where.line else None
        told |= {
            "step": finding.step,
            "holder": finding.evidence.get("holder"),
            "line": finding.where.line,
            "right_line": mark is not None,
            "right_name": mark is not None and mark[1] == finding.evidence.get("holder"),
            "message": finding.message,
        }
    return told


def ask(part: str, name: str, seed: int) -> dict[str, Any]:
    """The same in a fresh process, whose memory nobody has used before."""
    command = [sys.executable, __file__, "--one", part, name, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


# -- cost ----------------------------------------------------------------------------------------------------------


@dataclass
class Cost:
    """Steps under a watch, with what looks for leaks and without."""

    case: str
    step_ms: float
    ratio: float
    low: float
    high: float
    cpu_ratio: float
    looks: int
    calls_us: dict[str, float] = field(default_factory=dict)


def cost(name: str, steps: int, pairs: int, quick: bool) -> Cost:
    torch.manual_seed(0)
    case = next(case for case in cases(quick) if case.name == name)
    model, inputs = case.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    detectors = tuple(detector for detector in DEFAULT if detector.id != "memory-leak")
    without = watch(model, optimizer, sinks=[Memory(100)], detectors=detectors)
    with_parts = watch(model, optimizer, sinks=[Memory(100)])
    _leave_out(without)
    sides = [Side(model, optimizer, inputs) for _ in range(2)]
    for side, each in zip(sides, (without, with_parts), strict=True):
        side.around = Paused(each)
    block = max(2, steps // pairs)
    try:
        for each, side in zip((without, with_parts), sides, strict=True):
            side.block(min(block, 100))
            each.governor.drain()
            side.block(min(block, 100))
        samples = np.array([_pair(sides, block, swap=bool(at % 2)) for at in range(pairs)])
        looks = next(o for o in with_parts._loop._lookout._onlookers if isinstance(o, Holders))._looks.number
    finally:
        without.close()
        with_parts.close()
    wall, cpu = samples[:, :, 0], samples[:, :, 1]
    low, high = bootstrap(wall)
    return Cost(
        case=name,
        step_ms=1e3 * float(np.median(wall[:, 0])),
        ratio=float(np.median(wall[:, 1]) / np.median(wall[:, 0])),
        low=low,
        high=high,
        cpu_ratio=float(np.median(cpu[:, 1]) / np.median(cpu[:, 0])),
        looks=looks,
    )


def _leave_out(run: TrainingDebugger) -> None:
    """Takes what looks for leaks out of a watch."""
    loop: Any = run._loop
    loop._lookout._onlookers = [each for each in loop._lookout._onlookers if not isinstance(each, Holders)]
    loop._reader._probes = [probe for probe in loop._reader._probes if probe.name != "memory"]


def _pair(sides: list[Side], block: int, *, swap: bool) -> list[tuple[float, float]]:
    if swap:
        second = sides[1].block(block)
        return [sides[0].block(block), second]
    return [sides[0].block(block), sides[1].block(block)]


def calls() -> dict[str, float]:
    """What the signs cost, in microseconds a call; each is taken at one step in sixteen at most, later ever less."""
    times = {}
    for name, call in (
        ("rss", snapshots.rss),
        ("allocated blocks", sys.getallocatedblocks),
        ("limit", snapshots.limit),
        ("used", snapshots.used),
        ("uss", snapshots.uss),
    ):
        took = []
        for _ in range(20):
            began = perf_counter()
            call()
            took.append(perf_counter() - began)
        times[name] = 1e6 * statistics.median(took)
    return times


# -- search --------------------------------------------------------------------------------------------------------


class Record:
    """What a program may have a million of."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.words = [at]


def search(objects: int) -> dict[str, Any]:
    """Looks for a list that grows among so many other objects."""
    everything = [{"at": at, "words": (at,)} if at % 2 else Record(at) for at in range(objects // 2)]
    by_number = {at: [at] for at in range(objects // 10)}
    model = torch.nn.Linear(16, 16)
    history: list[torch.Tensor] = []
    looks, seconds, named = holders.Looks(), [], 0
    for step in range(0, 80, 10):
        for _ in range(10):
            history.append(model(torch.randn(4, 16)).sum())
        look = looks.look(step, {"": model}, sys._getframe())
        seconds.append(look.seconds)
        named += any(each["name"] == "history" and each["graphs"] for each in look.growing)
    alive = len(gc.get_objects())
    assert len(everything) + len(by_number) > objects // 3
    return {
        "objects": alive,
        "first_ms": 1e3 * seconds[0],
        "median_ms": 1e3 * statistics.median(seconds),
        "longest_ms": 1e3 * max(seconds),
        "named": named,
        "looks": len(seconds),
        "calls_us": calls(),
    }


# -- telling -------------------------------------------------------------------------------------------------------


def show_programs(part: str, rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f"{part}: {len(rows)} runs")
    for head in ("program", "found at step", "holder", "name", "line", "alarms"):
        table.add_column(head)
    for row in rows:
        right = [("yes" if row[key] else "[red]no[/]") if row["found"] else "" for key in ("right_name", "right_line")]
        missed = "[red]never[/]" if part == "leaks" else ""
        at = str(row.get("step")) if row["found"] else missed
        table.add_row(row["name"], at, str(row.get("holder") or ""), *right, ", ".join(row["alarms"]))
    console.print(table)
    if part == "leaks":
        steps = sorted(row["step"] for row in rows if row["found"])
        found, named = len(steps), sum(row.get("right_name", False) and row["right_line"] for row in rows)
        median = steps[len(steps) // 2] if steps else None
        console.print(f"found {found} of {len(rows)}, name and line right {named}, median step {median}")
    else:
        alarms = sum(bool(row["alarms"]) for row in rows)
        console.print(f"false alarms: {alarms} of {len(rows)}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few programs, few steps: does it run?")
    parser.add_argument("--only", action="append", metavar="NAME", help="a part or a program; may be given again")
    parser.add_argument("--seeds", default="0", help="of the programs: 0,1,2")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--one", nargs=3, metavar=("PART", "PROGRAM", "SEED"), help="run one program here")
    options = parser.parse_args(arguments)
    if options.one:
        part, name, seed = options.one
        print(json.dumps(one(part, name, int(seed)), allow_nan=False))
        return
    chosen = _chosen(parser, options.only)
    torch.set_num_threads(1)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    result: dict[str, Any] = {
        "benchmark": "memory",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": {"torch": torch.__version__, "python": platform.python_version(), "cpu": platform.machine()},
    }
    for part in FILES:
        names = chosen[part][:2] if options.quick and not options.only else chosen[part]
        rows = []
        for name in names:
            for seed in map(int, options.seeds.split(",")):
                with console.status(name):
                    rows.append(ask(part, name, seed))
        if rows:
            show_programs(part, rows, console)
            result[part] = rows
    if "cost" in chosen:
        steps, pairs = (40, 4) if options.quick else (2400, 120)
        rows_of_cost = [cost("mlp", steps, pairs, options.quick)]
        if not options.quick:
            rows_of_cost.append(cost("cnn", 240, 40, options.quick))
        for row in rows_of_cost:
            console.print(
                f"cost, {row.case}: a watched step of {row.step_ms:.2f} ms takes {row.ratio:.3f} times as long with "
                f"what looks for leaks ({row.low:.3f}-{row.high:.3f}; CPU {row.cpu_ratio:.3f}; {row.looks} looks)"
            )
        result["cost"] = [vars(row) for row in rows_of_cost]
    if "search" in chosen:
        told = search(30_000 if options.quick else 1_000_000)
        console.print(
            f"search among {told['objects']:,} objects: first look {told['first_ms']:.0f} ms, median "
            f"{told['median_ms']:.0f} ms, longest {told['longest_ms']:.0f} ms; the list was named in "
            f"{told['named']} of {told['looks']} looks"
        )
        result["search"] = told
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


def _chosen(parser: argparse.ArgumentParser, only: list[str] | None) -> dict[str, list[str]]:
    """The parts that are wanted, with their programs."""
    names = {part: list(programs(part)) for part in FILES}
    wanted = set(only or PARTS)
    known = {*PARTS, *(name for each in names.values() for name in each)}
    if wanted - known:
        parser.error(f"--only {min(wanted - known)!r} is unknown: there are {', '.join([*PARTS, *sorted(known)])}")
    chosen = {part: [name for name in names[part] if name in wanted or part in wanted] for part in FILES}
    return chosen | {part: [] for part in ("cost", "search") if part in wanted}


if __name__ == "__main__":
    main()
