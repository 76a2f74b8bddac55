"""Findings and verdicts as a good compiler prints them: objects that describe themselves; only a console writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from seismograd.records import Finding, Severity, strict
from seismograd.reports.report import finding_of

_SEVERITY = {Severity.INFO: "bold cyan", Severity.WARNING: "bold yellow", Severity.CRITICAL: "bold red"}
_STATUS = {"healthy": "bold green", "warning": "bold yellow", "critical": "bold red", "crashed": "bold red"}
_GUTTER = "bold blue"

_WIDEST = 120
"""Longer lines are hard to read, however wide the terminal is."""

_TOLD_ELSEWHERE = {"because", "series"}


def render_finding(finding: Finding, *, brief: bool = False) -> RenderableType:
    """One finding: what, where, the evidence in one line, what to do. `brief`: no evidence, only the first advice."""
    return _Block(finding, brief)


def render_verdict(report: Mapping[str, Any], *, height: int | None = None) -> RenderableType:
    """The verdict on a run in at most one screen (of `height` lines), most important first; if healthy, one line."""
    return _Verdict(report, height)


@dataclass(frozen=True)
class _Block:
    finding: Finding
    brief: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _finding_lines(self.finding, console, min(options.max_width, _WIDEST), self.brief)


@dataclass(frozen=True)
class _Verdict:
    report: Mapping[str, Any]
    height: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        findings = [finding_of(data) for data in self.report.get("findings", ())]
        headline = _hanging(Text(), _headline(self.report["run"], findings), console, width)
        yield from headline
        if any(finding.severity is not Severity.INFO for finding in findings):
            room = (self.height or _screen(console)) - len(headline)
            yield from _fitted(_tree(findings), console, width, room)


def _screen(console: Console) -> int:
    return max(24, console.height) - 1 if console.is_terminal else 60


def _headline(run: Mapping[str, Any], findings: Sequence[Finding]) -> Text:
    status = run.get("status") or "healthy"
    steps = run.get("steps") or 0
    facts = [_many(steps, "step"), _tally(findings) or "nothing found"]
    measured = (run.get("overhead") or {}).get("measured")
    if isinstance(measured, (int, float)):
        facts.append(f"overhead {measured:.1%}")
    if exception := (run.get("exit") or {}).get("exception"):
        facts.append(str(exception).splitlines()[0])
    return Text.assemble("seismograd: ", (status, _STATUS.get(status, "bold")), f" after {', '.join(facts)}")


def _tally(findings: Sequence[Finding]) -> str:
    """`2 critical, 1 warning`; remarks are named, since a healthy run does not show them."""
    parts = []
    for severity in (Severity.CRITICAL, Severity.WARNING):
        if number := sum(finding.severity is severity for finding in findings):
            parts.append(f"{number} {severity}")
    remarks = dict.fromkeys(finding.id for finding in findings if finding.severity is Severity.INFO)
    if remarks:
        parts.append(f"{_many(len(remarks), 'remark')} ({', '.join(remarks)})")
    return ", ".join(parts)


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _tree(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """The findings in their order, each followed by what follows from it, with the depth it stands at."""
    placed: list[tuple[Finding, int]] = []
    left = list(findings)

    def place(finding: Finding, depth: int) -> None:
        left.remove(finding)
        placed.append((finding, depth))
        for other in [other for other in left if other.evidence.get("because") == finding.id]:
            if other in left:
                place(other, depth + 1)

    ids = {finding.id for finding in findings}
    for root in [finding for finding in findings if finding.evidence.get("because") not in ids]:
        place(root, 0)
    while left:  # findings that blame each other in a circle
        place(left[0], 0)
    return placed


def _fitted(tree: Sequence[tuple[Finding, int]], console: Console, width: int, room: int) -> Iterable[Text]:
    """The findings in `room` lines: if they do not fit in full, the later ones become brief, then are only named."""

    def draw(finding: Finding, depth: int, brief: bool) -> list[Text]:
        indent = " " * 4 * min(depth, 2)
        lines = _finding_lines(finding, console, width - len(indent), brief or depth > 0)
        gap = [Text()] if depth == 0 and not brief else []
        return gap + [Text(indent) + line for line in lines]

    brief = [draw(finding, depth, brief=True) for finding, depth in tree]
    full = [draw(finding, depth, brief=False) for finding, depth in tree]
    shown: list[Text] = []
    for at in range(len(tree)):
        rest = sum(map(len, brief[at + 1 :]))
        after = min(rest, 1)  # at least the line that names those left out
        if len(shown) + len(full[at]) + (rest if at else after) <= room:  # the first is shown in full if it can be
            block = full[at]
        elif at == 0 or len(shown) + len(brief[at]) + after <= room:
            block = brief[at]
        else:
            ids = ", ".join(dict.fromkeys(finding.id for finding, _ in tree[at:]))
            left_out = Text(f"... and {len(tree) - at} more in the report: {ids}", style="dim")
            return [*shown, _one_line(left_out, width)]
        shown += block
    return shown


def _finding_lines(finding: Finding, console: Console, width: int, brief: bool) -> list[Text]:
    style = _SEVERITY[finding.severity]
    head = Text.assemble((f"{finding.severity}[{finding.id}]", style), (f": {finding.message}", "bold"))
    lines = _hanging(Text(), head, console, width)
    lines += _hanging(Text("  --> ", _GUTTER), Text(describe_place(finding)), console, width)
    if finding.where.code:
        lines.append(_one_line(Text.assemble(("   |  ", _GUTTER), finding.where.code.strip()), width))
    if finding.evidence.get("because") is not None:
        lines += _note("because", str(finding.evidence["because"]), "bold", console, width)
    evidence = describe_evidence(finding.evidence)
    if evidence and not brief:
        lines.append(_one_line(Text.assemble(("   = ", _GUTTER), ("evidence: ", "bold"), evidence), width))
    for advice in _advice(finding, brief):
        lines += _note("help", advice, "bold green", console, width)
    return lines


def _advice(finding: Finding, brief: bool) -> list[str]:
    """In brief the first one, and none for what only follows from another: there the cause is to be mended."""
    if not brief:
        return list(finding.recommendations)
    return [] if "because" in finding.evidence else list(finding.recommendations)[:1]


def describe_place(finding: Finding) -> str:
    """File and line, module, parameter and op as far as they are known, then the steps."""
    where = finding.where
    parts = []
    if where.file is not None:
        parts.append(where.file if where.line is None else f"{where.file}:{where.line}")
    if where.parameter is not None:
        parts.append(f"parameter {where.parameter}")
    elif where.module is not None:
        parts.append(f"module {where.module or '(the model itself)'}")
    if where.op is not None:
        parts.append(f"op {where.op} in {where.phase}" if where.phase else f"op {where.op}")
    elif where.phase is not None:
        parts.append(where.phase)
    if isinstance(series := finding.evidence.get("series"), int):
        parts.append(f"optimizer {series}")
    if finding.rank:
        parts.append(f"rank {finding.rank}")
    if finding.last_step > finding.step:
        parts.append(f"steps {finding.step} to {finding.last_step} ({_many(finding.count, 'time')})")
    else:
        parts.append(f"step {finding.step}")
    return ", ".join(parts)


def describe_evidence(evidence: Mapping[str, Any]) -> str:
    """The evidence in one line: `norm=3.2e+08, limit=100`."""
    return ", ".join(f"{name}={_value(value)}" for name, value in evidence.items() if name not in _TOLD_ELSEWHERE)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(strict(value))
    if isinstance(value, Mapping):
        return "{" + _few([f"{key}: {_value(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + _few([_value(item) for item in value]) + "]"
    return " ".join(str(value).split())


def _few(items: Sequence[str]) -> str:
    shown = ", ".join(items[:3])
    return shown if len(items) <= 3 else f"{shown}, and {len(items) - 3} more"


def _note(word: str, text: str, style: str, console: Console, width: int) -> list[Text]:
    return _hanging(Text.assemble(("   = ", _GUTTER), (f"{word}: ", style)), Text(text), console, width)


def _hanging(gutter: Text, body: Text, console: Console, width: int) -> list[Text]:
    """`body` wrapped beside `gutter`, later lines set under its first word."""
    hang = min(len(gutter) or 4, width // 2)
    whole = gutter + body
    head = whole.wrap(console, width)[0]
    rest = whole[len(head.plain) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    lines = [head]
    if rest:
        lines += [Text(" " * hang) + line for line in rest.wrap(console, width - hang)]
    for line in lines:
        line.rstrip()
    return lines


def _one_line(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text
