"""Training scripts as people write them do the same under `seismograd run` as without it, and get the right report.

Each script in `tests/scripts` says in its header what is expected of it: see the README there.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import seismograd

FOLDER = Path(__file__).parent / "scripts"
KEYS = {"run", "exit", "findings", "stderr", "args", "stdin", "module", "target", "exception"}
KEYS |= {"options", "loose", "seconds", "when"}


@dataclass(frozen=True)
class Script:
    """One script and what its header says."""

    path: Path  # inside the folder
    status: str
    steps: tuple[int, ...] | None  # of each training; None: whatever they are
    runs: int | None
    findings: tuple[str, ...] | None  # None: whatever they are
    exit: int = 0
    stderr: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    stdin: bytes = b""
    module: str = ""
    target: str = ""  # what is run instead of the file itself
    exception: str = ""  # what the report names, where the last traceback does not
    options: tuple[str, ...] = ()
    loose: frozenset[str] = frozenset()
    seconds: float = 120
    thorough: bool = False  # left to `make thorough`

    @property
    def name(self) -> str:
        return self.path.with_suffix("").as_posix()

    @property
    def command(self) -> list[str]:
        return [*(["-m", self.module] if self.module else [self.target or self.path.as_posix()]), *self.args]


def header(text: str) -> list[tuple[str, str]]:
    """The `# key: value` lines between the docstring and the first statement."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:  # as it is meant to be
        statements = []
    if statements and isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        begin, statements = statements[0].end_lineno or 0, statements[1:]
    else:
        begin = 0
    end = statements[0].lineno - 1 if statements else None
    matches = (re.fullmatch(r"# ([a-z]+):(?: (.*))?", line) for line in text.splitlines()[begin:end])
    return [(match[1], (match[2] or "").strip()) for match in matches if match and match[1] != "coding"]


def source(path: Path) -> str:
    """The text as Python reads it: with a byte order mark, or in another encoding."""
    with tokenize.open(path) as file:
        return file.read()


def read(path: Path) -> Script | None:
    """The script at `path`, or `None` if its header asks for nothing: a part of another one."""
    lines = [(key, value) for key, value in header(source(path)) if key in KEYS]
    said = dict(lines)
    if "run" not in said:
        return None
    if said["run"] == "none":  # the process is gone before it could report
        expected = {"status": "none", "steps": "any", "runs": "any"}
    else:
        expected = dict(word.split("=") for word in said["run"].split())
    unknown = expected.keys() - {"status", "steps", "runs"}
    assert not unknown, f"{path.name}: `run:` knows no {', '.join(unknown)}"
    counts = expected["steps"]
    steps = None if counts == "any" else tuple(int(count) for count in counts.split("+"))
    runs = expected.get("runs") or str(len(steps or (0,)))
    found = said.get("findings", "none" if expected["status"] in ("healthy", "crashed") else "any")
    return Script(
        path=path.relative_to(FOLDER),
        status=expected["status"],
        steps=steps,
        runs=None if runs == "any" else int(runs),
        findings=None if found == "any" else tuple(re.findall(r"[a-z][a-z-]+", found.replace("none", ""))),
        exit=int(said.get("exit", "0").split()[0]),
        stderr=tuple(value for key, value in lines if key == "stderr"),
        args=tuple(said.get("args", "").split()),
        stdin=said.get("stdin", "").encode().decode("unicode_escape").encode(),
        module=said.get("module", ""),
        target=said.get("target", ""),
        exception=said.get("exception", ""),
        options=tuple(said.get("options", "").split()),
        loose=frozenset(re.findall(r"\w+", said.get("loose", ""))),
        seconds=float(said.get("seconds", "120")),
        thorough=said.get("when") == "thorough",
    )


SCRIPTS = [script for path in sorted(FOLDER.rglob("*.py")) if (script := read(path))]


@dataclass
class Outcome:
    """What a process left behind."""

    code: int
    out: bytes
    err: str
    files: dict[str, bytes] = field(default_factory=dict)


def execute(script: Script, before: list[str], folder: Path) -> Outcome:
    """Runs the script in a fresh copy, always in the same place, so that paths are equal too."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    top = FOLDER / script.path.parts[0]
    if top.is_dir():
        shutil.copytree(top, folder / top.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(top, folder)
    done = subprocess.run(
        [sys.executable, *before, *script.command],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        input=script.stdin,
        capture_output=True,
        timeout=script.seconds,
        check=False,
    )
    files = {
        path.relative_to(folder).as_posix(): b"" if path.suffix == ".pyc" else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return Outcome(done.returncode, done.stdout, done.stderr.decode(errors="replace"), files)


def lines_of(text: str) -> list[str]:
    """The lines without what differs from process to process: addresses in memory."""
    return re.sub(r"0x[0-9a-f]+", "0x", text).splitlines()


def tracebacks(lines: list[str]) -> list[list[str]]:
    """Each traceback from its first line to that of the exception."""
    found = []
    for begin, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last):"):  # those inside a group have no end of their own
            length = sum(1 for _ in itertools.takewhile(lambda one: one[:1] == " " or not one, lines[begin + 1 :]))
            found.append(lines[begin : begin + length + 2])
    return found


def compare(ours: list[str], theirs: list[str]) -> tuple[list[str], list[str]]:
    """The lines of theirs that do not come, in their order, among ours; and those of ours that are not theirs."""
    at, added = 0, []
    for line in ours:
        if at < len(theirs) and line == theirs[at]:
            at += 1
        else:
            added.append(line)
    return theirs[at:], added


def differences(plain: Outcome, watched: Outcome, script: Script) -> list[str]:
    """What a user would notice, or a script that reads the output of this one."""
    problems = []
    if plain.code != script.exit:
        problems.append(f"plain python exited with {plain.code}, the header says {script.exit}")
    if watched.code != plain.code:
        problems.append(f"exit code {watched.code}, plain {plain.code}")
    if watched.out != plain.out and "stdout" not in script.loose:
        problems.append(f"stdout {watched.out!r}\n   plain {plain.out!r}")
    if watched.files.keys() != plain.files.keys():
        problems.append(f"files {sorted(watched.files)}\n   plain {sorted(plain.files)}")
    elif "files" not in script.loose:
        changed = [name for name in plain.files if plain.files[name] != watched.files[name]]
        if changed:
            problems.append(f"files that differ: {changed}")
    for text in script.stderr:
        if text not in plain.err or text not in watched.err:
            problems.append(f"{text!r} is not in stderr" + " of plain python either" * (text not in plain.err))
    return problems + differences_of_stderr(plain, watched, script)


def differences_of_stderr(plain: Outcome, watched: Outcome, script: Script) -> list[str]:
    problems = []
    ours, theirs = lines_of(watched.err), lines_of(plain.err)
    if "stderr" not in script.loose:
        if tracebacks(ours) != tracebacks(theirs):
            problems.append("another traceback")
        lost, added = compare(ours, theirs)
        if lost:
            problems.append(f"stderr lacks {lost}")
        strange = [line for line in added if line and not line.startswith("seismograd:")]
        if script.status == "healthy" and strange:
            problems.append(f"stderr has more than the script's lines and ours: {strange}")
    if f'File "{Path(seismograd.__file__).parent}' in watched.err:
        problems.append("a frame of seismograd's in stderr")
    return problems


def report_problems(plain: Outcome, watched: Outcome, script: Script, path: Path) -> list[str]:
    """What is wrong with the report and the last words."""
    if script.status == "none":
        return []
    if not path.exists():
        return ["no report"]
    report = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"bare {name}"))
    run, trainings = report["run"], report.get("runs", [report])
    problems = []
    if run["status"] != script.status:
        problems.append(f"status {run['status']}, not {script.status}")
    if script.runs is not None and len(trainings) != script.runs:
        problems.append(f"{len(trainings)} trainings with steps {steps_of(trainings)}, not {script.runs}")
    if script.steps is not None:
        if len(script.steps) > 1 and steps_of(trainings) != list(script.steps):
            problems.append(f"steps {steps_of(trainings)}, not {list(script.steps)}")
        if run["steps"] != sum(script.steps):
            problems.append(f"{run['steps']} steps, not {sum(script.steps)}")
    found = [finding["id"] for finding in report["findings"]]
    everywhere = set(found).union(finding["id"] for one in trainings for finding in one["findings"])
    if script.findings == () and everywhere:
        problems.append(f"findings {sorted(everywhere)}: " + "; ".join(one["message"] for one in report["findings"]))
    if script.findings and (found[:1] != [script.findings[0]] or not everywhere.issuperset(script.findings)):
        problems.append(f"findings {found}, not {list(script.findings)}")
    if watched.code >= 0 and run["exit"]["code"] != watched.code:
        problems.append(f"exit code {run['exit']['code']} in the report")
    problems += exception_problems(run["exit"]["exception"], tracebacks(plain.err.splitlines()), script)
    said = [line for line in watched.err.splitlines() if line.startswith("seismograd: healthy")]
    if "--quiet" not in script.options and len(said) != (script.status == "healthy" and script.steps != (0,)):
        problems.append(f"{len(said)} lines say `seismograd: healthy`")
    if script.steps == (0,) and "no backward pass was seen" not in watched.err:
        problems.append("`no backward pass was seen` is not said")
    return problems


def steps_of(trainings: list[dict[str, Any]]) -> list[int]:
    return [one["run"]["steps"] for one in trainings]


def exception_problems(told: str | None, seen: list[list[str]], script: Script) -> list[str]:
    """The report has the exception that ended the script, by the name without its module, and only then."""
    if script.exception:
        right = told is not None and script.exception in told.split("\n")[0]
    elif script.status != "crashed":
        right = told is None or told.startswith("KeyboardInterrupt")
    else:
        name, _, message = seen[-1][-1].partition(":") if seen else ("", "", "")
        right = told is not None and told.startswith(name.split(".")[-1] + (":" + message if message else ""))
    return [] if right else [f"exception {told!r} in the report, {seen[-1][-1:] if seen else 'none'} in the traceback"]


def test_the_headers_are_understood() -> None:
    for path in FOLDER.glob("*.py"):
        said = header(source(path))
        assert not (wrong := [key for key, _ in said if key not in KEYS]), f"{path.name}: unknown {wrong}"
        assert read(path), f"{path.name} has no `# run:` line; what it imports belongs in a folder with it"


CASES = [
    pytest.param(script, id=script.name, marks=[pytest.mark.thorough] if script.thorough else []) for script in SCRIPTS
]


@pytest.mark.parametrize("script", CASES)
def test_a_script_is_left_as_it_is_and_reported_on(script: Script, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    plain = execute(script, [], tmp_path / "work")
    watched = execute(script, ["-m", "seismograd", "run", "--report", str(report), *script.options], tmp_path / "work")
    problems = differences(plain, watched, script) + report_problems(plain, watched, script, report)
    assert not problems, "\n".join(["", *(f"- {one}" for one in problems), "stderr:", watched.err[-6000:]])
