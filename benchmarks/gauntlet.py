"""Sick and healthy programs through the real command line: what is found, what is named, and false alarms.

    python benchmarks/gauntlet.py [--seeds 0,1,2] [--jobs 2] [--only forgot_zero_grad] [--suite programs] [--peers]
                                  [--resume]

Three suites: the scripts of `gauntlet/programs`, those of `gauntlet/blind`, whose authors knew nothing of the
detectors, and all patients of `tests/patients`. Each is run by `seismograd run`, unchanged. A sick one is *detected* if
there is any warning or critical finding, *diagnosed* if an id that its header names is among the first three findings.
Any warning about a healthy one is a false alarm.
`--peers` runs the same scripts under other tools (see `gauntlet/peers.py`): `pip install 'seismograd[bench]'`.
Answers are kept as they come: after Ctrl-C `--resume` asks only for what is missing.

Exits with 1 if fewer than 90 % are detected, fewer than 80 % diagnosed, more than 2 % of the healthy ones give a false
alarm, or a script ends otherwise than under plain python.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gauntlet.cases import Case, blind, patients, programs
from seismograd.reports.pages import GROUPS

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "gauntlet.json"
PAGE = HERE.parent / "docs" / "gauntlet.md"
PART = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
"""Of the page: what was made of one kind of scripts."""
OURS = "seismograd"
PEERS = {
    "torchmortem": "torchmortem",
    "neuraldbg": "neuraldbg",
    "torchinstruments": "torchinstruments",
    "detect_anomaly": "torch",
    "DebugUnderflowOverflow": "transformers",
}
"""The other tools, and the module that each needs."""
KINDS = {"program": "programs", "blind": "blind programs", "patient": "patients"}
DETECTED, DIAGNOSED, ALARMS = 0.90, 0.80, 0.02
FIRST = 3
QUICK = ("forgot_zero_grad", "softmax_then_cross_entropy", "short_script", "xor")
INSTALL = "pip install 'seismograd[bench]'"


@dataclass(frozen=True)
class Row:
    """What one tool said of one script."""

    case: Case
    seed: int
    tool: str
    said: list[str] = field(default_factory=list)
    """Ids, or a peer's own words, in its order; ours with their severity."""
    detected: bool = False
    diagnosed: bool = False
    step: int | None = None
    """Of the first warning."""
    seconds: float = 0.0
    failed: str = ""
    """Why there is no answer, or what went wrong besides."""

    @property
    def verdict(self) -> str:
        if self.case.expects is None:
            return "FALSE ALARM" if self.detected else "silent"
        if self.diagnosed:
            return "diagnosed" if self.detected else "INFO ONLY"
        return "detected" if self.detected else "MISSED"

    def line(self) -> str:
        expected = "" if self.case.expects is None or self.diagnosed else f" (is: {', '.join(self.case.expects)})"
        parts = [f"{self.case.kind} {self.case.name}, seed {self.seed}: {self.verdict}{expected}", *self.said[:FIRST]]
        return "; ".join([*parts, *([self.failed] if self.failed else [])])

    def to_dict(self) -> dict[str, Any]:
        about = {"name": self.case.name, "kind": self.case.kind, "class": self.case.group, "expects": self.case.expects}
        own = {key: value for key, value in vars(self).items() if key != "case"}
        return {**about, **own, "verdict": self.verdict}

    @classmethod
    def from_dict(cls, case: Case, kept: dict[str, Any]) -> Row:
        return cls(case, **{name: kept[name] for name in cls.__dataclass_fields__ if name != "case"})


# -- asking --------------------------------------------------------------------------------------------------------


def ours(case: Case, seed: int, seconds: float) -> Row:
    """Runs it as a user would, and reads the report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.json"
        command = [sys.executable, "-m", "seismograd", "run", "--quiet", "--no-capture", "--report", str(report)]
        paths = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, "PYTHONPATH": paths, "SEISMOGRAD_LEVEL": "advanced"}
        began = perf_counter()
        try:
            done = subprocess.run(
                [*command, str(case.script(folder, seed))],
                capture_output=True, text=True, timeout=seconds, cwd=folder, env=env, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Row(case, seed, OURS, seconds=seconds, failed=f"failed: no end in {seconds:g} s")
        took = perf_counter() - began
        failed = ""
        if done.returncode != case.exits:
            failed = f"failed: exit code {done.returncode}: {done.stderr.strip()[-300:]}"
        findings = json.loads(report.read_text(encoding="utf-8"))["findings"] if report.exists() else []
    return judged(case, seed, findings, took, failed)


def judged(case: Case, seed: int, findings: list[dict[str, Any]], seconds: float = 0.0, failed: str = "") -> Row:
    """What the findings of a report amount to."""
    loud = [finding for finding in findings if finding["severity"] != "info"]
    blind = [finding["message"] for finding in findings if finding["id"] == "blind-probe"]
    return Row(
        case,
        seed,
        OURS,
        said=[f"{finding['severity']} {finding['id']}: {finding['message']}" for finding in findings],
        detected=bool(loud),
        diagnosed=bool(set(case.expects or ()) & {finding["id"] for finding in findings[:FIRST]}),
        step=min((finding["step"] for finding in loud), default=None),
        seconds=seconds,
        failed=failed or "; ".join(blind),
    )


def peer(tool: str, cases: list[Case], seed: int, seconds: float, tell: Callable[[Row], None]) -> None:
    """One tool's answers, a fork for each script."""
    with tempfile.TemporaryDirectory() as name:
        scripts = [str(case.script(Path(name), seed)) for case in cases]
        command = [sys.executable, str(HERE / "gauntlet" / "peers.py"), tool, str(seconds), *scripts]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        answers = 0
        for case, line in zip(cases, process.stdout, strict=False):
            answer = json.loads(line)
            said = answer["said"]
            named = {name for _, ids in said[:FIRST] for name in ids}
            diagnosed = bool(named & set(case.expects or ()))
            failed = answer.get("failed", "")
            tell(Row(case, seed, tool, [text for text, _ in said], bool(said), diagnosed, failed=failed))
            answers += 1
        if process.wait() or answers < len(cases):
            raise RuntimeError(f"{tool} could not be asked: {process.stderr.read().strip()[-500:]}")


def ask(rows: list[Row], cases: list[Case], asked: list[tuple[str, int]], *, jobs: int, seconds: float) -> None:
    """Adds to `rows` the answers of every tool and seed that are not there, `jobs` processes at once."""
    known = {(row.case, row.seed, row.tool) for row in rows}
    total = len(cases) * len(asked)
    lock = threading.Lock()

    def tell(row: Row) -> None:
        with lock:
            rows.append(row)
            print(f"[{len(rows)}/{total}] {row.tool}: {row.line()}"[:400], file=sys.stderr, flush=True)

    def work(tool: str, seed: int, left: list[Case]) -> None:
        if tool == OURS:
            tell(ours(left[0], seed, seconds))
        else:
            peer(tool, left, seed, seconds, tell)

    pool = ThreadPoolExecutor(jobs)
    try:
        begun = []
        for tool, seed in asked:
            left = [case for case in cases if (case, seed, tool) not in known]
            parts = [[case] for case in left] if tool == OURS else [left] if left else []
            begun += [pool.submit(work, tool, seed, part) for part in parts]
        for each in begun:
            each.result()
    finally:
        pool.shutdown(cancel_futures=True)
    order = {case: at for at, case in enumerate(cases)}
    rows.sort(key=lambda row: (asked.index((row.tool, row.seed)), order[row.case]))


def kept(path: Path, cases: list[Case], asked: list[tuple[str, int]]) -> list[Row]:
    """The answers of an earlier run, as far as they are asked for."""
    if not path.exists():
        return []
    known = {(case.kind, case.name): case for case in cases}
    found = []
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        case = known.get((row["kind"], row["name"]))
        if case is not None and (row["tool"], row["seed"]) in asked:
            found.append(Row.from_dict(case, row))
    return found


# -- telling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Total:
    """What a tool made of the scripts of one class."""

    group: str
    scripts: int
    detected: int
    diagnosed: int
    steps: float | None

    @property
    def cells(self) -> list[str]:
        if self.group == "healthy":
            return [_share(self.detected, self.scripts)]
        return [_share(self.detected, self.scripts), _share(self.diagnosed, self.scripts)]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def totals(rows: list[Row]) -> list[Total]:
    """By class, all sick ones together, and the healthy ones (whose `detected` are false alarms)."""
    groups: dict[str, list[Row]] = {group: [] for group in (*GROUPS, "other", "all", "healthy")}
    for row in rows:
        groups[row.case.group].append(row)
        if row.case.expects is not None:
            groups["all"].append(row)
    found = []
    for group, own in groups.items():
        if own:
            steps = [row.step for row in own if row.step is not None]
            median = statistics.median(steps) if steps else None
            counts = [sum(getattr(row, name) for row in own) for name in ("detected", "diagnosed")]
            found.append(Total(group, len(own), *counts, median))
    return found


def grid(rows: list[Row], tools: list[str]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines of the table: a line for each class, the false alarms last."""
    by_tool = {tool: {each.group: each for each in totals([row for row in rows if row.tool == tool])} for tool in tools}
    headings = ["class", "runs", *(f"{tool}: detected / diagnosed" for tool in tools), "median step"]
    lines = []
    for group, first in by_tool[tools[0]].items():
        name = "healthy: false alarms" if group == "healthy" else group
        cells = [" / ".join(by_tool[tool][group].cells) for tool in tools]
        lines.append([name, str(first.scripts), *cells, "-" if first.steps is None else f"{first.steps:g}"])
    return headings, lines


def show(rows: list[Row], tools: list[str], console: Console) -> None:
    for kind, title in KINDS.items():
        own = [row for row in rows if row.case.kind == kind]
        if not own:
            continue
        headings, lines = grid(own, tools)
        table = Table(title=title, title_justify="left")
        for heading in headings:
            table.add_column(heading.replace(": ", ":\n"))
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for row in wrong(rows):
        console.print(escape(row.line()), soft_wrap=True)


def wrong(rows: list[Row]) -> list[Row]:
    """Ours that should be otherwise: misses, wrong diagnoses, false alarms, and what failed."""
    mine = [row for row in rows if row.tool == OURS]
    return [row for row in mine if row.failed or row.verdict not in ("diagnosed", "silent")]


def markdown(rows: list[Row], tools: list[str], kind: str, command: str) -> str:
    """The table of one kind, and the list of what is wrong, for the page."""
    own = [row for row in rows if row.case.kind == kind]
    headings, lines = grid(own, tools)
    ruler = ["---", *["--:"] * (len(headings) - 1)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in ([KINDS[kind], *headings[1:]], ruler, *lines))
    bad = [f"- `{row.case.name}` (seed {row.seed}): {row.verdict.lower()}{_instead(row)}" for row in wrong(own)]
    rest = "What is not as it should be:\n\n" + "\n".join(bad) if bad else "Everything is as it should be."
    return f"`{command}`, {datetime.now(UTC):%Y-%m-%d}:\n\n{table}\n\n{rest}\n"


def _instead(row: Row) -> str:
    said = ", ".join(f"`{text.split(' ', 1)[1].split(':')[0]}`" for text in row.said[:FIRST]) or "nothing"
    expected = "" if row.case.expects is None else f"; it is {' or '.join(f'`{name}`' for name in row.case.expects)}"
    return f", said {said}{expected}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=_numbers, default=[0], help="e.g. 0,1,2")
    parser.add_argument("--peer-seeds", type=_numbers, help="of the other tools, if not the same")
    parser.add_argument("--suite", choices=("programs", "blind", "patients"), help="one of them; all if left out")
    parser.add_argument("--only", action="append", metavar="NAME", help="a program or patient; may be given again")
    parser.add_argument("--peers", action="store_true", help="the same scripts under other tools")
    parser.add_argument("--tool", action="append", choices=(OURS, *PEERS), help="these only; may be given again")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for one script")
    parser.add_argument("--quick", action="store_true", help="four programs: does it run?")
    parser.add_argument("--page", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--resume", action="store_true", help="keep the answers that are there, ask for the rest")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    known = {"programs": programs, "blind": blind, "patients": patients}
    suites = [options.suite] if options.suite else ["programs"] if options.quick else list(known)
    cases = [case for suite in suites for case in known[suite]()]
    chosen = options.only or (QUICK if options.quick else ())
    for name in chosen:
        if name not in {case.name for case in cases}:
            parser.error(f"{name!r} is neither a program nor a patient: there are {', '.join(c.name for c in cases)}")
    cases = [case for case in cases if not chosen or case.name in chosen]
    tools = options.tool or [OURS, *(PEERS if options.peers else ())]
    for tool in list(tools):
        if tool != OURS and importlib.util.find_spec(PEERS[tool]) is None:
            print(f"{tool} is left out, it is not installed: {INSTALL}", file=sys.stderr)
            tools.remove(tool)
    others = options.peer_seeds or options.seeds
    asked = [(tool, seed) for tool in tools for seed in (options.seeds if tool == OURS else others)]
    rows = kept(options.out, cases, asked) if options.resume else []
    try:
        ask(rows, cases, asked, jobs=options.jobs, seconds=options.timeout)
    except KeyboardInterrupt:
        print(f"Stopped after {len(rows)} answers; `--resume` goes on from there.", file=sys.stderr)
        return 130
    finally:
        save(rows, tools, options.out)
    show(rows, tools, Console() if sys.stdout.isatty() else Console(width=160))
    if options.page:
        words = " ".join(["python benchmarks/gauntlet.py", *(arguments if arguments is not None else sys.argv[1:])])
        words = re.sub(r" --(page|resume|out \S+)", "", words)
        texts = {kind: markdown(rows, tools, kind, words) for kind in {row.case.kind for row in rows}}
        page = PAGE.read_text(encoding="utf-8")
        page = PART.sub(lambda part: part[1] + texts[part[2]] + part[3] if part[2] in texts else part[0], page)
        PAGE.write_text(page, encoding="utf-8")
    return int(not good(rows))


def _numbers(text: str) -> list[int]:
    """Of a list with commas."""
    return [int(each) for each in text.split(",")]


def save(rows: list[Row], tools: list[str], path: Path) -> None:
    result = {
        "benchmark": "gauntlet",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "targets": {"detected": DETECTED, "diagnosed": DIAGNOSED, "false alarms": ALARMS},
        "totals": {tool: [vars(each) for each in totals([row for row in rows if row.tool == tool])] for tool in tools},
        "rows": [row.to_dict() for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def good(rows: list[Row]) -> bool:
    """Ours keep to the targets, and every script ended as it should."""
    by_group = {each.group: each for each in totals([row for row in rows if row.tool == OURS])}
    sick, healthy = by_group.get("all"), by_group.get("healthy")
    return (
        (sick is None or (sick.detected >= DETECTED * sick.scripts and sick.diagnosed >= DIAGNOSED * sick.scripts))
        and (healthy is None or healthy.detected <= ALARMS * healthy.scripts)
        and not any(row.failed for row in rows if row.tool == OURS)
    )


if __name__ == "__main__":
    sys.exit(main())
