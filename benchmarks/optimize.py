"""What optimisations bring, with proof: the modes on three models, and the tuner against an exhaustive search.

    python benchmarks/optimize.py [--quick] [--only modes] [--only tuner] [--case cnn] [--seconds 60]

`modes` trains an MLP, a CNN with batch norm and a transformer in each `OptimizationMode`. The speed-up is the median of
paired blocks of steps, in turn with the plain loop, with its 95 % interval; memory is what is kept for backward; parity
compares outputs, gradients and a short loss curve with float64, within what other seeds do.

`tuner` asks `sg.tune` for its recommendation, then tries every combination of a smaller set of knobs (fused optimizer,
compiling, layout, threads), and measures the two and the plain loop against one another, in turn. `behind` is
how much faster than the recommendation the best of the combinations is: the goal is no more than 5 %.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import seismograd as sg
from overhead import Case, cases
from seismograd.optimize.tuning.knobs import Knob, Variant, knobs_for
from seismograd.optimize.tuning.lanes import Lane, compare, peak_memory, speedup
from seismograd.optimize.tuning.parity import Reference
from seismograd.optimize.tuning.search import in_words, raise_if_uncompiled
from seismograd.optimize.tuning.setups import Bench

RESULTS = Path(__file__).parent / "results" / "optimize.json"
PARTS = ("modes", "tuner")
MODELS = ("mlp", "cnn", "transformer")
GOAL = 1.05


@dataclass
class ModeRow:
    """One mode on one model, as it is written to JSON."""

    case: str
    mode: str
    step_ms: float | None = None
    speedup_factor: float | None = None
    low: float | None = None
    high: float | None = None
    memory: int | None = None
    memory_savings: float | None = None
    compile_time: float | None = None
    loss_parity: bool | None = None
    parity: str | None = None
    error: str | None = None


@dataclass
class TunerRow:
    """What the tuner said of one model, next to the best of all combinations."""

    case: str
    seconds: float
    recommended: str
    speedup_factor: float
    low: float
    high: float
    beats_baseline: bool
    loss_parity: bool
    combinations: int
    best: str
    best_speedup: float
    behind: float
    behind_low: float
    behind_high: float
    within_goal: bool


def bench_of(case: Case) -> Bench:
    torch.manual_seed(0)
    model, inputs = case.build()
    labels = [torch.randint(0, 10, (len(x),)) for x in inputs]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Bench(model, nn.CrossEntropyLoss(), optimizer, list(zip(inputs, labels, strict=True))[:8])


def lane_of(bench: Bench, variant: Variant) -> Lane:
    lane = Lane(variant.turned(bench.setup()))
    lane.warm_up()
    if variant.compiles:
        raise_if_uncompiled(lane)
    return lane


# -- the modes ---------------------------------------------------------------------------------------------------------


def modes(case: Case, quick: bool) -> Iterator[ModeRow]:
    bench = bench_of(case)
    reference = Reference(bench, 2 if quick else 4)
    base = lane_of(bench, Variant())
    kept = peak_memory(base.setup)
    known = {knob.name: knob for knob in knobs_for(bench)[0]}
    for mode in sg.OptimizationMode:
        knob = known.get(mode.value)
        if knob is not None and not (quick and knob.compiles):
            row = _mode(Variant((knob,)), reference, base, 0.3 if quick else 4.0)
            row.case = case.name
            if row.memory is not None:
                row.memory_savings = 1 - row.memory / kept
            yield row


def _mode(variant: Variant, reference: Reference, base: Lane, seconds: float) -> ModeRow:
    row = ModeRow("", variant.name)
    try:
        setup = variant.turned(reference.bench.setup())
        began = monotonic()
        trace = reference.trace(setup, draws=variant.draws)
        took = monotonic() - began
        parity = reference.judge(trace, variant.dtype(setup))
        lane = Lane(setup)
        lane.warm_up()
        if variant.compiles:
            raise_if_uncompiled(lane)
            row.compile_time = max(0.0, took - len(trace.curve) * lane.seconds)
        until = monotonic() + seconds
        ratio = speedup(compare([base, lane], until, until + 5 * seconds), 0, 1)
        row.step_ms, row.speedup_factor, row.low, row.high = 1e3 * lane.seconds, ratio.middle, ratio.low, ratio.high
        row.memory = peak_memory(lane.setup)
        row.loss_parity, row.parity = parity.ok, parity.verdict
    except Exception as error:
        row.error = in_words(error)
    return row


# -- the tuner ---------------------------------------------------------------------------------------------------------


def grid(bench: Bench, quick: bool) -> list[Variant]:
    """All combinations of the knobs that may help on a CPU: of each kind one, or none."""
    kinds: dict[str, list[Knob | None]] = {}
    for knob in knobs_for(bench)[0]:
        wanted = knob.kind in ("layout", "threads") or knob.name in ("compilation", "fused optimizer")
        if knob.kind == "optimizer" if quick else wanted:
            kinds.setdefault(knob.kind, [None]).append(knob)
    chosen = [tuple(knob for knob in row if knob is not None) for row in product(*kinds.values())]
    return [Variant(knobs) for knobs in chosen if knobs]


def tuner(case: Case, seconds: float, quick: bool, console: Console) -> TunerRow:
    bench = bench_of(case)
    knobs = ["optimizer", "amp"] if quick else None
    with console.status(f"{case.name}: tuning"):
        tuning = sg.tune(bench.model, bench.batches, bench.loss_fn, bench.optimizer, seconds=seconds, knobs=knobs)
    console.print(tuning)
    ours = () if tuning.recommended is None else tuning.recommended.knobs
    known = {knob.name: knob for knob in knobs_for(bench)[0]}
    recommended = Variant(tuple(known[name] for name in ours))
    base = lane_of(bench, Variant())
    tried: list[tuple[float, Variant]] = []
    combinations = grid(bench, quick)
    for at, variant in enumerate(combinations):
        with console.status(f"{case.name}: {at + 1} of {len(combinations)}: {variant.name}"):
            try:
                lane = lane_of(bench, variant)
                until = monotonic() + (0.1 if quick else 1.0)
                tried.append((speedup(compare([base, lane], until, until + 5), 0, 1).middle, variant))
            except Exception as error:
                console.print(f"{variant.name}: {in_words(error)}")
    _, best = max(tried, key=lambda pair: pair[0])
    with console.status(f"{case.name}: {recommended.name} against {best.name}"):
        lanes = [lane_of(bench, one) for one in (Variant(), recommended, best)]
        until = monotonic() + (0.3 if quick else 8.0)
        rounds = compare(lanes, until, until + 10, most=80)
    ratio, whole = speedup(rounds, 0, 1), speedup(rounds, 0, 2)
    behind = speedup(rounds, 1, 2)
    return TunerRow(
        case.name,
        round(tuning.seconds, 1),
        recommended.name,
        ratio.middle,
        ratio.low,
        ratio.high,
        bool(ours) and ratio.low > 1.0,
        tuning.recommended is None or bool(tuning.recommended.parity and tuning.recommended.parity.ok),
        len(tried),
        best.name,
        whole.middle,
        behind.middle,
        behind.low,
        behind.high,
        behind.middle <= GOAL,
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def show(rows: list[ModeRow], tuned: list[TunerRow], console: Console) -> None:
    if rows:
        table = Table(title="Modes against the plain loop", title_justify="left")
        for name in ("model", "mode", "step", "speed-up", "95 %", "memory", "compile", "parity"):
            table.add_column(name, justify="left" if name in {"model", "mode", "parity"} else "right", no_wrap=True)
        for row in rows:
            table.add_row(
                row.case,
                row.mode,
                _told(row.step_ms, "{:.2f} ms"),
                _told(row.speedup_factor, "{:.2f}x"),
                "" if row.low is None else f"{row.low:.2f}-{row.high:.2f}",
                "" if row.memory_savings is None else f"{-row.memory_savings:+.0%}",
                _told(row.compile_time, "{:.1f} s"),
                row.error or f"{'ok' if row.loss_parity else 'WRONG'}: {row.parity}",
            )
        console.print(table)
    if tuned:
        table = Table(title="The tuner against an exhaustive search", title_justify="left")
        for name in ("model", "recommended", "speed-up", "95 %", "best of all", "of", "speed-up", "behind", "95 %"):
            left = name in {"model", "recommended", "best of all"}
            table.add_column(name, justify="left" if left else "right", no_wrap=not left)
        for one in tuned:
            table.add_row(
                one.case,
                one.recommended,
                f"{one.speedup_factor:.2f}x",
                f"{one.low:.2f}-{one.high:.2f}",
                one.best,
                str(one.combinations),
                f"{one.best_speedup:.2f}x",
                f"{one.behind - 1:+.1%}" + ("" if one.within_goal else " (over 5 %)"),
                f"{one.behind_low:.2f}-{one.behind_high:.2f}",
            )
        console.print(table)


def _told(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a small model, nothing compiled: does it run?")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone; may be given again")
    parser.add_argument("--case", action="append", choices=MODELS, help="this model alone; may be given again")
    parser.add_argument("--seconds", type=float, help="what the tuner may take for each model; 60 if left out")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args(arguments)
    parts, wanted = options.only or PARTS, options.case or (MODELS[:1] if options.quick else MODELS)
    console = Console() if sys.stdout.isatty() else Console(width=150)
    rows: list[ModeRow] = []
    tuned: list[TunerRow] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch's compiler says of itself
        for case in [case for case in cases(options.quick) if case.name in wanted]:
            if "modes" in parts:
                with console.status(f"{case.name}: modes"):
                    rows += modes(case, options.quick)
            if "tuner" in parts:
                tuned.append(tuner(case, options.seconds or (3.0 if options.quick else 60.0), options.quick, console))
    show(rows, tuned, console)
    result: dict[str, Any] = {
        "benchmark": "optimize",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "cpu": platform.machine(),
            "threads": torch.get_num_threads(),
        },
        "goal": GOAL,
        "modes": [asdict(row) for row in rows],
        "tuner": [asdict(row) for row in tuned],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
