"""What watching costs: watched and unwatched steps, in turn, in one process, on one thread.

    python benchmarks/overhead.py [--quick] [--only mlp] [--steps 2000]

Each row trains one model. Short blocks of watched and unwatched steps alternate, and everything that a watch sets in
torch and on the model is taken away for the unwatched ones. (Two copies of a model would not do: they can differ by a
fifth, by where they lie in memory.) The ratio is that of the medians over blocks, with a bootstrap 95 % interval that
resamples pairs of neighbouring blocks, so that what else runs on the machine falls on both sides alike. `cpu` is the
same ratio in CPU time of the thread, `mean` that of the means, which also holds rare dear steps that a median of blocks
can miss. What a watch may use freely at its start is taken away first: this is the steady state.

The variant `nothing` compares unwatched blocks with unwatched ones. Its ratio would be 1 on a quiet machine: where it
is not, its distance from 1 is the noise, and no smaller overhead can be told from this table.

`--only run`, and a whole run, also measure a script under `seismograd run`: see run.py, which does that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

import run
from seismograd import patches
from seismograd.sinks import Memory
from seismograd.training import TrainingDebugger
from seismograd.training import watch as open_watch

RESULTS = Path(__file__).parent / "results" / "overhead.json"
LEVELS = ("basic", "advanced", "extreme")
RECOVERIES = {"skip": {"nonfinite-*": "skip"}, "rollback": {"critical": "rollback"}}
"""At the level `basic`: every step is read then, and the second keeps a state every 50 steps."""
VARIANTS = ("nothing", *LEVELS, *RECOVERIES, "detect_anomaly", "naive loop")
WHOLE_SCRIPTS = "run"
TARGETS = {
    ("mlp", "basic"): 1.03,
    ("cnn", "basic"): 1.01,
    ("transformer", "basic"): 1.01,
    **{
        (case, level): most
        for case in ("mlp", "cnn", "transformer")
        for level, most in (("advanced", 1.05), ("extreme", 1.15))
    },
}


# -- the models ----------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """A layer that a net of a thousand of them can still be trained with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.03 * relu(self.linear(x))


class Encoder(nn.Module):
    """A transformer over tokens that names a class for each sequence."""

    def __init__(self, layers: int, width: int, tokens: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


@dataclass(frozen=True)
class Case:
    """One model and its data; `steps` is how many are measured on each side by default."""

    name: str
    build: Callable[[], tuple[nn.Module, list[Tensor]]]
    steps: int


def cases(quick: bool) -> list[Case]:
    def mlp() -> tuple[nn.Module, list[Tensor]]:
        wide = 32 if quick else 512
        layers = nn.Sequential(nn.Linear(784, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10))
        return layers, [torch.randn(64, 784) for _ in range(16)]

    def cnn() -> tuple[nn.Module, list[Tensor]]:
        size, channels = (8, (3, 4, 4, 4)) if quick else (32, (3, 32, 64, 64))
        blocks: list[nn.Module] = []
        for before, after in pairwise(channels):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        blocks += [nn.Flatten(), nn.Linear(channels[-1] * (size // 8) ** 2, 10)]
        return nn.Sequential(*blocks), [torch.randn(32, 3, size, size) for _ in range(8)]

    def transformer() -> tuple[nn.Module, list[Tensor]]:
        layers, width, length = (1, 16, 8) if quick else (4, 256, 64)
        return Encoder(layers, width), [torch.randint(0, 1000, (8, length)) for _ in range(8)]

    def deep(depth: int) -> Case:
        def build() -> tuple[nn.Module, list[Tensor]]:
            return nn.Sequential(*(Residual(64) for _ in range(depth))), [torch.randn(64, 64) for _ in range(4)]

        return Case(f"mlp-{depth}-layers", build, {10: 900, 100: 144}.get(depth, 36))

    depths = (5, 10) if quick else (10, 100, 1000)
    return [Case("mlp", mlp, 1500), Case("cnn", cnn, 240), Case("transformer", transformer, 96), *map(deep, depths)]


# -- one side of a comparison --------------------------------------------------------------------------------------


class Side:
    """One way to train a model; `block` times some of its steps."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: list[Tensor]) -> None:
        self.model, self.optimizer, self.inputs = model, optimizer, inputs
        self.labels = [
            torch.randint(0, 10, (len(x),), generator=torch.Generator().manual_seed(at)) for at, x in enumerate(inputs)
        ]
        self.after_backward: Callable[[nn.Module], object] | None = None
        self.around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self._at = 0

    def steps(self, count: int) -> None:
        model, optimizer, extra = self.model, self.optimizer, self.after_backward
        for _ in range(count):
            place = self._at % len(self.inputs)
            self._at += 1
            optimizer.zero_grad()
            loss = cross_entropy(model(self.inputs[place]), self.labels[place])
            loss.backward()
            if extra is not None:
                extra(model)
            optimizer.step()

    def block(self, count: int) -> tuple[float, float]:
        """Wall time and CPU time of a step, in seconds."""
        with self.around():
            wall, cpu = perf_counter(), thread_time()
            self.steps(count)
            return (perf_counter() - wall) / count, (thread_time() - cpu) / count


def naive(model: nn.Module) -> None:
    """What the seed documents do after each backward: several syncs for each parameter."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.norm().item()
            bool(torch.isnan(parameter.grad).any())
            bool(torch.isinf(parameter.grad).any())


@contextlib.contextmanager
def anomalies() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            yield


class Paused:
    """Lets a watch listen only inside its own blocks; outside them torch is as if it were not there."""

    def __init__(self, watch: TrainingDebugger) -> None:
        self._loop: Any = watch._loop
        self._pause()

    def _pause(self) -> None:
        patches.forget(self._loop)
        self._loop._replayer.recorder.lines.disarm()
        self._left = perf_counter()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        away = perf_counter() - self._left
        self._loop._step_began += away  # the governor must not take the pause for a long step
        self._loop._reader.timing.skip(away)
        patches.listen(self._loop)
        self._loop._replayer.resume(self._loop.governor.reads)
        try:
            yield
        finally:
            self._pause()


# -- measuring -----------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One comparison, as it is written to JSON."""

    case: str
    variant: str
    parameters: int
    plain_ms: float
    """The median unwatched step."""
    ratio: float
    low: float
    high: float
    mean_ratio: float
    cpu_ratio: float
    blocks: int
    block_steps: int
    target: float | None = None
    watch: dict[str, Any] = field(default_factory=dict)


def compare(case: Case, variant: str, steps: int, pairs: int) -> Row:
    torch.manual_seed(0)
    model, inputs = case.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    plain, other = Side(model, optimizer, inputs), Side(model, optimizer, inputs)
    watch: TrainingDebugger | None = None
    if variant in LEVELS or variant in RECOVERIES:
        level, recovery = variant if variant in LEVELS else "basic", RECOVERIES.get(variant)
        watch = open_watch(model, optimizer, level=level, recovery=recovery, sinks=[Memory(100)], strict=True)
        other.around = Paused(watch)
    elif variant == "detect_anomaly":
        other.around = anomalies
    elif variant == "naive loop":
        other.after_backward = naive
    try:
        block = max(2, steps // pairs)
        warm_up(plain, other, watch, block)
        before = _spent(watch)
        samples = np.array([_pair(plain, other, block, swap=bool(at % 2)) for at in range(pairs)])
        told = _told(watch, before)
    finally:
        if watch is not None:
            watch.close()
    wall, cpu = samples[:, :, 0], samples[:, :, 1]
    low, high = bootstrap(wall)
    return Row(
        case=case.name,
        variant=variant,
        parameters=sum(1 for _ in model.parameters()),
        plain_ms=1e3 * float(np.median(wall[:, 0])),
        ratio=_ratio(wall),
        low=low,
        high=high,
        mean_ratio=float(wall[:, 1].mean() / wall[:, 0].mean()),
        cpu_ratio=_ratio(cpu),
        blocks=pairs,
        block_steps=block,
        target=TARGETS.get((case.name, variant)),
        watch=told,
    )


def warm_up(plain: Side, other: Side, watch: TrainingDebugger | None, block: int) -> None:
    """Runs both sides in, and takes away the time that a watch may use freely at its start."""
    plain.block(min(block, 50))
    other.block(min(block, 50))
    if watch is None:
        return
    other.block(min(block, 50))
    watch.governor.drain()
    other.block(min(block, 100))


def _pair(plain: Side, other: Side, block: int, *, swap: bool) -> list[tuple[float, float]]:
    if swap:
        second = other.block(block)
        return [plain.block(block), second]
    return [plain.block(block), other.block(block)]


def _ratio(samples: np.ndarray) -> float:
    return float(np.median(samples[:, 1]) / np.median(samples[:, 0]))


def bootstrap(samples: np.ndarray, draws: int = 2000) -> tuple[float, float]:
    """The 95 % interval of the ratio of medians, from pairs drawn with replacement."""
    chosen = samples[np.random.default_rng(0).integers(0, len(samples), (draws, len(samples)))]
    ratios = np.median(chosen[:, :, 1], axis=1) / np.median(chosen[:, :, 0], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def _spent(watch: TrainingDebugger | None) -> tuple[float, float, int, int]:
    if watch is None:
        return (0.0, 0.0, 0, 0)
    governor = watch.governor
    return (governor.own, governor.elapsed, governor.steps, governor.read_steps)


def _told(watch: TrainingDebugger | None, before: tuple[float, float, int, int]) -> dict[str, Any]:
    """What the watch itself says that it cost while it was measured."""
    if watch is None:
        return {}
    own, elapsed, steps, read = (now - then for now, then in zip(_spent(watch), before, strict=True))
    return {
        "overhead": watch.report()["run"]["overhead"],
        "share": own / elapsed if elapsed else 0.0,
        "steps": steps,
        "read_steps": read,
        "own_us": 1e6 * own / max(1, steps),
        "findings": sorted({finding.id for finding in watch.findings}),
    }


def import_time(repeats: int) -> dict[str, Any]:
    """`import seismograd` in a fresh interpreter: the best of some tries, in milliseconds."""
    code = (
        "import sys, time; began = time.perf_counter(); import seismograd; "
        "print(time.perf_counter() - began, 'torch' in sys.modules)"
    )
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(repeats)
    ]
    seconds = [float(said[0]) for said in found]
    return {
        "best_ms": 1e3 * min(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "imports_torch": any(said[1] == "True" for said in found),
        "target_ms": 50,
    }


# -- telling -------------------------------------------------------------------------------------------------------


def show(rows: list[Row], imported: dict[str, Any], console: Console) -> None:
    table = Table(title="A step's time, watched / unwatched (one thread)", title_justify="left")
    for name in ("model", "variant", "step", "ratio", "95 %", "mean", "cpu", "target", "own share", "reads", "own"):
        table.add_column(name, justify="left" if name in ("model", "variant") else "right", no_wrap=True)
    last = None
    for row in rows:
        if last not in (None, row.case):
            table.add_section()
        told = row.watch
        over = row.target is not None and row.low > row.target
        table.add_row(
            row.case if row.case != last else "",
            row.variant,
            f"{row.plain_ms:.2f} ms",
            f"[red]{row.ratio:.3f}[/]" if over else f"{row.ratio:.3f}",
            f"{row.low:.3f}-{row.high:.3f}",
            f"{row.mean_ratio:.3f}",
            f"{row.cpu_ratio:.3f}",
            f"{row.target:.2f}" if row.target else "",
            f"{told['share']:.2%}" if told else "",
            f"{told['read_steps']}/{told['steps']}" if told else "",
            f"{told['own_us']:.0f} us" if told else "",
        )
        last = row.case
    console.print(table)
    console.print(
        f"import seismograd: {imported['best_ms']:.1f} ms (target {imported['target_ms']} ms), "
        f"torch {'IS' if imported['imports_torch'] else 'not'} imported"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="tiny models and few steps: does it run?")
    parser.add_argument("--only", action="append", metavar="NAME", help="a model or a variant; may be given again")
    parser.add_argument("--steps", type=int, help="measured steps on each side, for every model")
    parser.add_argument("--pairs", type=int, help="pairs of blocks that the steps are divided into")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args(arguments)
    known = cases(options.quick)
    chosen, variants = _chosen(parser, known, options.only)
    torch.set_num_threads(1)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    pairs = options.pairs or (4 if options.quick else 0)
    rows: list[Row] = []
    for case in chosen:
        steps = options.steps or (40 if options.quick else case.steps)
        parts = pairs or max(8, steps // 12)
        for variant in variants:
            with console.status(f"{case.name}, {variant}"):
                row = compare(case, variant, steps, parts)
            rows.append(row)
            console.print(f"{case.name}, {variant}: {row.ratio:.3f} ({row.low:.3f}-{row.high:.3f})", style="dim")
    imported = import_time(2 if options.quick else 7)
    if rows:
        show(rows, imported, console)
    if not options.only or WHOLE_SCRIPTS in options.only:
        run.main(["--quick"] if options.quick else [])
    result = {
        "benchmark": "overhead",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": {"torch": torch.__version__, "python": platform.python_version(), "cpu": platform.machine()},
        "rows": [vars(row) for row in rows],
        "import": imported,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


def _chosen(
    parser: argparse.ArgumentParser, known: list[Case], only: list[str] | None
) -> tuple[list[Case], tuple[str, ...]]:
    wanted = set(only or ())
    if wanted == {WHOLE_SCRIPTS}:
        return [], ()
    unknown = wanted - {case.name for case in known} - set(VARIANTS) - {WHOLE_SCRIPTS}
    if unknown:
        parser.error(
            f"--only {unknown.pop()!r} is unknown: there are {', '.join([c.name for c in known] + [*VARIANTS])}"
        )
    chosen = [case for case in known if case.name in wanted] or known
    return chosen, tuple(variant for variant in VARIANTS if variant in wanted) or VARIANTS


if __name__ == "__main__":
    main()
