"""Who finds the line: Seismograd, detect_anomaly and DebugUnderflowOverflow on programs with one known origin each.

    python benchmarks/localisation.py [--only log_of_zero] [--jobs 2] [--cost]

The programs are in `localisation/programs`, the truth is in each one's header and mark (see `localisation/truth.py`).
Every tool runs every program, unchanged, from outside: `seismograd run`, and the other two by `localisation/peers.py`.
An answer is right if it names the file and line of the op that made the first NaN or Inf. What is read of ours is the
finding that the others follow from, in the JSON report.

DebugUnderflowOverflow knows modules only; its column leaves out lines and ops. It needs transformers:
`pip install 'seismograd[bench]'`.

Exits with 1 if fewer than 95 % of our lines are right, or one is wrong without saying that it is unsure.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from localisation.truth import Answer, Program, programs

RESULTS = Path(__file__).parent / "results" / "localisation.json"
PEERS = Path(__file__).parent / "localisation" / "peers.py"
OURS, ANOMALY, OVERFLOW = "seismograd", "detect_anomaly", "DebugUnderflowOverflow"
TARGET = 0.95
SECONDS = 120
INSTALL = "pip install 'seismograd[bench]'"


@dataclass(frozen=True)
class Row:
    """One tool's answer for one program."""

    program: Program
    tool: str
    answer: Answer

    @property
    def line(self) -> bool:
        return self.program.line_right(self.answer)

    @property
    def op(self) -> bool:
        return self.program.op_right(self.answer)

    @property
    def module(self) -> bool:
        return self.program.module_right(self.answer)

    @property
    def misleads(self) -> bool:
        """It names a place, the wrong one, and does not say that it is unsure."""
        named = self.answer.line is not None or self.answer.phase is not None
        return named and not self.line and not self.answer.unsure

    def to_dict(self) -> dict[str, Any]:
        right = {"line": self.line, "op": self.op, "module": self.module, "misleads": self.misleads}
        return {"program": self.program.name, "tool": self.tool, "right": right, "answer": vars(self.answer)}


# -- asking --------------------------------------------------------------------------------------------------------


def ours(program: Program) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "seismograd", "run", "--quiet", "--report", str(report), str(program.path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            return Answer(said=f"failed: no answer in {SECONDS} s")
        if done.returncode or not report.exists():
            return Answer(said=f"failed: exit code {done.returncode}: {done.stderr.strip()[-200:]}")
        return answer_of(json.loads(report.read_text(encoding="utf-8"))["findings"])


def answer_of(findings: list[dict[str, Any]]) -> Answer:
    """What the finding says that the others of its story follow from."""
    found = [finding for finding in findings if finding["id"].startswith("nonfinite-")]
    if not found:
        return Answer(said="silent")
    root = next((finding for finding in found if "because" not in finding["evidence"]), found[0])
    where, evidence = root["where"], root["evidence"]
    located = where["file"] is not None or where["op"] is not None or where["phase"] in ("input", "optimizer")
    return Answer(
        file=where["file"],
        line=where["line"],
        op=evidence.get("forward_op") or where["op"],
        module=where["module"],
        phase=where["phase"] if located else None,
        unsure=evidence.get("sure") is False,
        said=" ".join(filter(None, [f"{root['id']}: {root['message']}", evidence.get("note")])),
    )


def peer(tool: str, chosen: list[Program]) -> list[Answer]:
    command = [sys.executable, str(PEERS), tool, *(str(program.path) for program in chosen)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * len(chosen), check=False)
    if done.returncode:
        raise RuntimeError(f"{tool} could not be asked: {done.stderr.strip()[-500:]}")
    return [Answer(**json.loads(line)) for line in done.stdout.splitlines()]


def ask(chosen: list[Program], jobs: int, tell: Callable[[str], None]) -> list[Row]:
    """Every tool's answer for every program, `jobs` processes at once."""
    tools = [ANOMALY, OVERFLOW]
    if importlib.util.find_spec("transformers") is None:
        tell(f"{OVERFLOW} is left out, transformers is not installed: {INSTALL}")
        tools.remove(OVERFLOW)

    def mine(program: Program) -> Answer:
        answer = ours(program)
        tell(f"{program.name}: {answer.said}")
        return answer

    with ThreadPoolExecutor(jobs) as pool:
        others = [(tool, pool.submit(peer, tool, chosen)) for tool in tools]
        rows = [Row(program, OURS, answer) for program, answer in zip(chosen, pool.map(mine, chosen), strict=True)]
        for tool, answers in others:
            rows += [Row(program, tool, answer) for program, answer in zip(chosen, answers.result(), strict=True)]
    return rows


def cost(rounds: int = 5) -> dict[str, float]:
    """What the replay costs on the transformer of overhead.py: as a share of a healthy step, and in multiples of the
    step that it explains.

    A share of 0.3 % cannot be told from the noise between two runs. So the healthy part is timed where it is spent:
    everything that the replayer does in a step, and the frame that each module's call costs, measured on its own and
    multiplied by the number of calls.
    """
    import torch
    from torch import nn

    import seismograd as sg
    from overhead import Side, cases
    from seismograd.replay.replayer import Replayer
    from seismograd.sinks import Memory

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = next(case for case in cases(quick=False) if case.name == "transformer").build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    side = Side(model, optimizer, inputs)
    side.steps(4)
    modules = sum(1 for _ in model.modules())
    plain = [_timed(lambda: side.steps(4)) / 4 for _ in range(rounds)]
    spent: list[float] = []
    within = [False]

    def timed(method: Any) -> Any:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if within[0]:
                return method(self, *args, **kwargs)
            within[0] = True
            began = perf_counter()
            try:
                return method(self, *args, **kwargs)
            finally:
                spent[-1] += perf_counter() - began
                within[0] = False

        return run

    names = ("module_starts", "module_ended", "backward_starts", "backward_ended", "before_update", "step_over")
    originals = {name: getattr(Replayer, name) for name in names}
    with sg.watch(model, optimizer, sinks=[Memory()], level="basic"):
        side.steps(8)  # by then it is known which generators the model draws from
        frame = _frame_cost(nn)
        for name, method in originals.items():
            setattr(Replayer, name, timed(method))
        for _ in range(rounds * 4):
            spent.append(0.0)
            side.steps(1)
        for name, method in originals.items():
            setattr(Replayer, name, method)
    step = statistics.median(plain)
    healthy = statistics.median(spent) + modules * frame
    forward, backward = _replays(model, optimizer, side, rounds)
    return {
        "step_ms": 1e3 * step,
        "healthy_us": 1e6 * healthy,
        "healthy_share": healthy / step,
        "module_calls": modules,
        "frame_us": 1e6 * frame,
        "forward_replay_steps": forward / step,
        "backward_replay_steps": backward / step,
    }


def _timed(work: Callable[[], Any]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _frame_cost(nn: Any) -> float:
    """What our frame adds to the call of a module inside of another: the difference of medians, call by call."""
    import torch

    ours, original = nn.Module.__call__, nn.Module.__call__.__wrapped__

    class Many(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: Any) -> Any:
            for _ in range(2000):
                x = self.inner(x)
            return x

    many, x = Many(), torch.zeros(1)
    differences = []
    with torch.no_grad():
        for _ in range(9):
            with_ours = _timed(lambda: many(x))
            nn.Module.__call__ = original
            without = _timed(lambda: many(x))
            nn.Module.__call__ = ours
            differences.append((with_ours - without) / 2000)
    return max(0.0, statistics.median(differences))


def _replays(model: Any, optimizer: Any, side: Any, rounds: int) -> tuple[float, float]:
    """Seconds of a replay that finds a fault in forward, and of one that has to go through backward too."""
    import torch

    import seismograd as sg
    from seismograd.replay.investigation import Investigation
    from seismograd.sinks import Memory

    weight = model.layers.layers[2].linear1.weight
    found: dict[str, list[float]] = {"forward": [], "backward": []}
    original = Investigation.origin

    def timed(self: Any) -> Any:
        began = perf_counter()
        origin = original(self)
        found[kind].append(perf_counter() - began)
        assert origin.phase == kind, origin
        return origin

    Investigation.origin = timed  # type: ignore[method-assign]
    try:
        for kind in found:
            for _ in range(rounds):
                kept = {name: value.clone() for name, value in model.state_dict().items()}
                faulty = model.layers.layers[2].register_forward_hook(_FAULTS[kind])
                with sg.watch(model, optimizer, sinks=[Memory()], level="basic"):
                    side.steps(1)
                faulty.remove()
                model.load_state_dict(kept)
                optimizer.state.clear()
    finally:
        Investigation.origin = original  # type: ignore[method-assign]
    assert bool(torch.isfinite(weight).all())
    return statistics.median(found["forward"]), statistics.median(found["backward"])


_FAULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "forward": lambda module, args, output: output / (output - output).detach().sum(),
    "backward": lambda module, args, output: output + (output - output.detach()).square().sum().sqrt(),
}
"""What goes wrong in the third of the transformer's layers: a division by zero, and the root of zero."""


# -- telling -------------------------------------------------------------------------------------------------------


def _mark(right: bool, row: Row) -> str:
    if right:
        return "[green]yes[/]"
    if row.answer.said == "silent" or row.answer.said.startswith("failed"):
        return f"[dim]{row.answer.said.split(':')[0]}[/]"
    return "[yellow]unsure[/]" if row.answer.unsure else "[red]no[/]"


COLUMNS = {OURS: ("line", "op", "module"), ANOMALY: ("line", "op"), OVERFLOW: ("module",)}
SHORT = {OURS: "ours", ANOMALY: "anomaly", OVERFLOW: "overflow"}


def totals(rows: list[Row]) -> dict[str, dict[str, float]]:
    """The share of programs that each tool is right about."""
    found: dict[str, dict[str, float]] = {}
    for tool, columns in COLUMNS.items():
        own = [row for row in rows if row.tool == tool]
        if own:
            found[tool] = {column: sum(getattr(row, column) for row in own) / len(own) for column in columns}
            found[tool]["misleads"] = sum(row.misleads for row in own) / len(own)
    return found


def show(rows: list[Row], console: Console) -> None:
    table = Table(title="Who finds where the first NaN or Inf was made", title_justify="left")
    table.add_column("program", no_wrap=True)
    table.add_column("the truth", overflow="ellipsis", no_wrap=True, max_width=44)
    shares = totals(rows)
    for tool in shares:
        for column in COLUMNS[tool]:
            table.add_column(f"{SHORT[tool]}\n{column}")
    by_name: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_name.setdefault(row.program.name, {})[row.tool] = row
    for name, answers in by_name.items():
        marks = [_mark(getattr(answers[tool], column), answers[tool]) for tool in shares for column in COLUMNS[tool]]
        table.add_row(name, escape(answers[OURS].program.place), *marks)
    table.add_section()
    percent = [f"{share[column]:.0%}" for tool, share in shares.items() for column in COLUMNS[tool]]
    table.add_row(f"{len(by_name)} programs", "", *percent)
    console.print(table)
    for row in rows:
        if row.tool == OURS and not row.line:
            place = f" ({Path(row.answer.file).name}:{row.answer.line} {row.answer.op})" if row.answer.file else ""
            console.print(escape(f"{row.program.name}: {row.program.place}; ours said{place}: {row.answer.said}"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", action="append", metavar="NAME", help="a program; may be given again")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--cost", action="store_true", help="what a replay costs, instead")
    parser.add_argument("--quick", action="store_true", help="two programs: does it run?")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.cost:
        print(json.dumps(cost()))
        return 0
    known = {program.name: program for program in programs()}
    for name in options.only or ():
        if name not in known:
            parser.error(f"{name!r} is unknown: there are {', '.join(known)}")
    names = options.only or (["log_of_zero", "triplet_distance"] if options.quick else known)
    rows = ask([known[name] for name in names], options.jobs, lambda text: print(text, file=sys.stderr))
    show(rows, Console() if sys.stdout.isatty() else Console(width=150))
    result = {
        "benchmark": "localisation",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "programs": len(names),
        "target": TARGET,
        "totals": totals(rows),
        "rows": [row.to_dict() for row in rows],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    mine = [row for row in rows if row.tool == OURS]
    return int(sum(row.line for row in mine) < TARGET * len(mine) or any(row.misleads for row in mine))


if __name__ == "__main__":
    sys.exit(main())
