"""What is known of a run's time: how soon a slow loop is found, whether its cause is right, and what looking costs.

    python benchmarks/timing.py [--quick] [--only starvation] [--only slow] [--only cost] [--rounds 3]

`starvation` and `slow` train small loops with one thing wrong each and ask for the step at which it was told, and
whether the stage or the difference is the right one; `speed-up` is what the trial of more workers measured, `trial` the
seconds that it took. Naps stand for slow work, so that other programs on this machine change little.

`cost` compares watched steps with and without the parts that always look at time (phases, garbage collection, loaders,
pace, traps), in turn, in one process, every step read. The ratio is that of medians over blocks, with a bootstrap 95 %
interval over pairs of blocks, in CPU time of the thread, which other programs change least; `us` is the difference in
microseconds a step, `of a step` its share of an unwatched one.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

import seismograd as sg
from overhead import Case, Paused, Side, bootstrap, cases
from seismograd.onlookers.resources import loading as loading_of_ours
from seismograd.onlookers.resources.loading import Loading
from seismograd.onlookers.resources.pace import Pace
from seismograd.onlookers.resources.traps import Traps
from seismograd.probes.timing import Timing
from seismograd.training import TrainingDebugger

RESULTS = Path(__file__).parent / "results" / "timing.json"
PARTS = ("starvation", "slow", "cost")
NAP = 0.003


# -- loops with one thing wrong --------------------------------------------------------------------------------------


class Points(Dataset[Any]):
    """Samples that nap where they are told to."""

    def __init__(self, count: int = 320, *, reading: float = 0.0, making: float = 0.0, either: float = 0.0) -> None:
        self.x = torch.randn(count, 8)
        self.naps = reading, making, either

    def __len__(self) -> int:
        return len(self.x)

    def load_file(self, index: int) -> Tensor:
        sleep(self.naps[0])
        return self.x[index]

    def augment(self, x: Tensor) -> Tensor:
        sleep(self.naps[1])
        return -x

    def __getitem__(self, index: int) -> Any:
        sleep(self.naps[2])
        x = self.augment(self.load_file(index))
        return x, int(x[0] > 0)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(320):
            sleep(NAP)
            x = torch.randn(8)
            yield x, int(x[0] > 0)


def slow_collate(samples: list[Any]) -> Any:
    sleep(8 * NAP)
    return default_collate(samples)


@dataclass(frozen=True)
class Kind:
    """A loop, and what has to be said of it: `None` if nothing is."""

    name: str
    part: str
    expected: str | None
    run: Callable[[], TrainingDebugger]


def trained(
    batches: Any, after: Callable[[int, nn.Module], object] | None = None, model: nn.Module | None = None
) -> TrainingDebugger:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)) if model is None else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            if after is not None:
                after(step, model)
    return watch


def made(count: int, length: Callable[[int], int] = lambda step: 16) -> Iterator[Any]:
    for step in range(count):
        x = torch.randn(length(step), 8)
        yield x, (x[:, 0] > 0).long()


class Long(nn.Module):
    """A model that takes its time with each row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        sleep(1e-4 * len(x))
        return self.inner(x)


class SlowFile(io.BytesIO):
    def write(self, data: Any) -> int:
        sleep(0.0005)
        return super().write(data)


def compiled() -> TrainingDebugger:
    torch._dynamo.reset()
    model: Any = torch.compile(nn.Linear(8, 2), backend="eager", dynamic=False)
    return trained(made(40, lambda step: 16 + step % 7), model=model)


def kinds() -> list[Kind]:
    def loaded(name: str, expected: str | None, dataset: Callable[[], Any], **options: Any) -> Kind:
        return Kind(name, "starvation", expected, lambda: trained(DataLoader(dataset(), batch_size=8, **options)))

    def stepped(
        name: str,
        expected: str | None,
        after: Callable[[int, nn.Module], object],
        length: Callable[[int], int] = lambda step: 16,
    ) -> Kind:
        return Kind(name, "slow", expected, lambda: trained(made(96, length), after, Long()))

    return [
        loaded("reads slowly", "reading", lambda: Points(reading=NAP), shuffle=True),
        loaded("transforms slowly", "transform", lambda: Points(making=NAP), shuffle=True),
        loaded("slow __getitem__", "sample", lambda: Points(either=NAP), shuffle=True),
        loaded("collates slowly", "collate", Points, collate_fn=slow_collate),
        loaded("one worker, forked", "reading", lambda: Points(reading=1.5 * NAP), num_workers=1),
        loaded(
            "one worker, spawned",
            "reading",
            lambda: Points(reading=1.5 * NAP),
            num_workers=1,
            multiprocessing_context="spawn",
        ),
        loaded("stream", "sample", Stream),
        loaded("in memory", None, Points),
        loaded("two workers that keep up", None, lambda: Points(reading=2e-4), num_workers=2),
        stepped("gc.collect() in the loop", "gc", lambda step, _: gc.collect() if step % 3 == 0 else None),
        stepped("long batches now and then", "size", lambda *_: None, lambda step: 1600 if step % 12 == 11 else 8),
        stepped("checkpoint after each step", "checkpoint", lambda _, m: torch.save(m.state_dict(), SlowFile())),
        Kind("new shapes under torch.compile", "slow", "recompile", compiled),
        stepped("machine is busy", None, lambda step, _: sleep(0.1) if step % 9 == 8 else None),
        stepped(
            "checkpoint now and then", None, lambda s, m: torch.save(m.state_dict(), SlowFile()) if s % 24 == 0 else 0
        ),
    ]


@dataclass
class Found:
    """One loop, as it is written to JSON."""

    kind: str
    part: str
    expected: str | None
    told: str | None
    right: bool
    step: int | None
    severity: str | None
    speedup: float | None
    trial_seconds: float | None


def diagnose(kind: Kind, seed: int) -> Found:
    torch.manual_seed(seed)
    trials: list[float] = []
    original = Loading._try

    def timed(self: Loading, *args: Any) -> Any:
        began = perf_counter()
        try:
            return original(self, *args)
        finally:
            trials.append(perf_counter() - began)

    loading_of_ours.Loading._try = timed  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            watch = kind.run()
    finally:
        loading_of_ours.Loading._try = original  # type: ignore[method-assign]
    key = {"data-starvation": "stage", "slow-step": "cause"}
    findings = [finding for finding in watch.findings if finding.id in key]
    finding = findings[0] if findings else None
    told = None if finding is None else str(finding.evidence[key[finding.id]])
    right = told == kind.expected
    return Found(
        kind.name,
        kind.part,
        kind.expected,
        told,
        right,
        None if finding is None else finding.step,
        None if finding is None else finding.severity.value,
        None if finding is None else finding.evidence.get("speedup"),
        trials[0] if trials else None,
    )


# -- what looking costs --------------------------------------------------------------------------------------------


class Bare(Timing):
    """Knows how long a step took, and the watch, and nothing else."""

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...


class Loaded(Side):
    """Takes its batches from a loader."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: list[Tensor]) -> None:
        super().__init__(model, optimizer, inputs)
        whole = TensorDataset(torch.cat(inputs), torch.cat(self.labels))
        self.batches = endless(DataLoader(whole, batch_size=len(inputs[0])))

    def steps(self, count: int) -> None:
        model, optimizer = self.model, self.optimizer
        for _ in range(count):
            x, y = next(self.batches)
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


@dataclass
class Cost:
    """What the parts that look at time cost on one model."""

    case: str
    plain_ms: float
    ratio: float
    low: float
    high: float
    microseconds: float
    share: float


def cost(case: Case, steps: int, pairs: int) -> Cost:
    torch.manual_seed(0)
    model, inputs = case.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    plain, without, whole = (Loaded(model, optimizer, inputs) for _ in range(3))
    watches = [sg.watch(model, optimizer, sinks=[], budget=1.0, strict=True) for _ in range(2)]
    loop: Any = watches[0]._loop
    loop._timing.close()
    loop._reader.timing = loop._timing = Bare()
    loop._timing._collector.close()
    lookout = loop._lookout
    lookout._onlookers = [each for each in lookout._onlookers if not isinstance(each, (Loading, Pace, Traps))]
    lookout._hearers = {}
    without.around, whole.around = (Paused(watch) for watch in watches)
    try:
        block = max(2, steps // pairs)
        for side in (plain, without, whole):
            side.block(30)
        samples = np.array([_round((plain, without, whole), block, at) for at in range(pairs)])
    finally:
        for watch in watches:
            watch.close()
    low, high = bootstrap(samples[:, 1:])
    middle = np.median(samples, axis=0)
    more = float(np.median(samples[:, 2] - samples[:, 1]))
    return Cost(
        case.name, 1e3 * float(middle[0]), float(middle[2] / middle[1]), low, high, 1e6 * more, more / float(middle[0])
    )


def _round(sides: tuple[Side, ...], block: int, at: int) -> list[float]:
    """The CPU seconds of a step on each side, begun with another one each time."""
    taken = [0.0] * len(sides)
    for turn in range(len(sides)):
        which = (turn + at) % len(sides)
        taken[which] = sides[which].block(block)[1]
    return taken


# -- tables --------------------------------------------------------------------------------------------------------


def show(found: list[Found], costs: list[Cost], console: Console) -> None:
    if found:
        table = Table(title="Loops that lose time, and what was said", title_justify="left")
        for name in ("loop", "expected", "told", "right", "at step", "speed-up", "trial"):
            table.add_column(name, justify="left" if name in {"loop", "expected", "told"} else "right", no_wrap=True)
        for kind in dict.fromkeys(each.kind for each in found):
            rows = [each for each in found if each.kind == kind]
            told = sorted({f"{each.told} ({each.severity})" if each.told else "nothing" for each in rows})
            table.add_row(
                kind,
                rows[0].expected or "nothing",
                ", ".join(told),
                f"{sum(each.right for each in rows)}/{len(rows)}",
                _median([each.step for each in rows], "{:.0f}"),
                _median([each.speedup for each in rows], "{:.1f}x"),
                _median([each.trial_seconds for each in rows], "{:.1f} s"),
            )
        console.print(table)
    if costs:
        table = Table(title="What always looking at time costs a step that is read", title_justify="left")
        for name in ("model", "step", "ratio", "95 %", "us", "of a step"):
            table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
        for row in costs:
            table.add_row(
                row.case,
                f"{row.plain_ms:.2f} ms",
                f"{row.ratio:.3f}",
                f"{row.low:.3f}-{row.high:.3f}",
                f"{row.microseconds:.0f}",
                f"{row.share:.1%}",
            )
        console.print(table)


def _median(values: list[Any], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(float(np.median(known))) if known else ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one round, small models: does it run?")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone; may be given again")
    parser.add_argument("--rounds", type=int, help="how often each loop is trained, each time with another seed")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args(arguments)
    parts = options.only or PARTS
    torch.set_num_threads(1)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    chosen = [kind for kind in kinds() if kind.part in parts]
    if options.quick:
        chosen = [kind for kind in chosen if kind.name in {"reads slowly", "in memory", "machine is busy"}]
    found: list[Found] = []
    for kind in chosen:
        for seed in range(options.rounds or (1 if options.quick else 3)):
            with console.status(kind.name):
                found.append(diagnose(kind, seed))
    costs = []
    if "cost" in parts:
        wanted = {"mlp"} if options.quick else {"mlp", "cnn"}
        for case in [case for case in cases(options.quick) if case.name in wanted]:
            with console.status(case.name):
                costs.append(cost(case, *((24, 4) if options.quick else (case.steps, max(16, case.steps // 12)))))
    show(found, costs, console)
    result = {
        "benchmark": "timing",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": {"torch": torch.__version__, "python": platform.python_version(), "cpu": platform.machine()},
        "found": [asdict(row) for row in found],
        "cost": [asdict(row) for row in costs],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
