"""Findings and verdicts as a good compiler prints them: objects that describe themselves; only a console writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from typing import Any

from seismograd.judge import is_located
from seismograd.quiet_rich import Console, ConsoleOptions, RenderableType, RenderResult, Text
from seismograd.records import Finding, Severity, strict
from seismograd.reports.picture import DRAWN, GUTTER, draw, margin
from seismograd.reports.report import finding_of

_SEVERITY = {Severity.INFO: "bold cyan", Severity.WARNING: "bold yellow", Severity.CRITICAL: "bold red"}
_STATUS = {"healthy": "bold green", "warning": "bold yellow", "critical": "bold red", "crashed": "bold red"}

_WIDEST = 120
"""Longer lines are hard to read, however wide the terminal is."""

_LONGEST = 100
"""Of an exception's first line: all of it stands in the traceback."""

_SHORT = 30.0
"""Seconds: in a shorter run the watch lives off its grace, and its share of the time says nothing about longer ones."""

_TOLD_ELSEWHERE = {"because", "run", "series"}


def render_finding(finding: Finding, *, brief: bool = False, run: str | None = None) -> RenderableType:
    """One finding: what, where, the evidence in one line, what to do. `brief`: no evidence, only the first advice.

    `run` says which run it belongs to where there are several: `run 2`.
    """
    return _Block(finding, brief, run)


def render_verdict(report: Mapping[str, Any], *, height: int | None = None) -> RenderableType:
    """The verdict on a run in at most one screen (of `height` lines), most important first; if healthy, one line.

    A report with `runs` in it is on several, and each of its findings says which (`evidence["run"]`).
    """
    return _Verdict(report, height)


@dataclass(frozen=True)
class _Block:
    finding: Finding
    brief: bool
    run: str | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _finding_lines(self.finding, console, min(options.max_width, _WIDEST), self.brief, self.run)


@dataclass(frozen=True)
class _Verdict:
    report: Mapping[str, Any]
    height: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        findings = [finding_of(data) for data in self.report.get("findings", ())]
        run = self.report["run"]
        if not run.get("steps") and not findings:
            facts = ["seismograd: no backward pass was seen", *_ending(run)]
            yield _one_line(Text(", ".join(facts)), width)
            return
        headline = _hanging(Text(), _headline(self.report, findings, width), console, width)
        yield from headline
        if any(finding.severity is not Severity.INFO for finding in findings):
            room = (self.height or _screen(console)) - len(headline)
            yield from _fitted(_stories(findings), console, width, room)


def _screen(console: Console) -> int:
    return max(24, console.height) - 1 if console.is_terminal else 60


def _headline(report: Mapping[str, Any], findings: Sequence[Finding], width: int) -> Text:
    """In one line of `width` if leaving out the overhead makes it one."""
    run, runs = report["run"], report.get("runs") or ()
    status = run.get("status") or "healthy"
    facts = [_many(len(runs), "run")] if len(runs) > 1 else []
    facts += [_many(run.get("steps") or 0, "step"), _tally(findings) or "nothing found"]
    measured, ending = (run.get("overhead") or {}).get("measured"), _ending(run)
    if isinstance(measured, (int, float)) and not _seconds(run) < _SHORT:
        overhead = f"overhead {measured:.1%}"
        alone = len(f"seismograd: {status} after {', '.join([*facts, *ending])}")
        if not alone <= width < alone + len(f", {overhead}"):
            facts.append(overhead)
    return Text.assemble("seismograd: ", (status, _STATUS.get(status, "bold")), f" after {', '.join(facts + ending)}")


def _seconds(run: Mapping[str, Any]) -> float:
    """How long the run took; NaN if that is not known."""
    try:
        return (datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])).total_seconds()
    except (KeyError, TypeError, ValueError):
        return math.nan


def _ending(run: Mapping[str, Any]) -> list[str]:
    """What ended the run, in the words of a person; nothing if it came to its end."""
    told = str((run.get("exit") or {}).get("exception") or "").strip()
    name, _, text = (told.splitlines() or [""])[0].partition(":")
    if name == "KeyboardInterrupt":
        return ["stopped by Ctrl-C"]
    if name.startswith("SIG"):
        return [f"stopped by {name}"]
    if name == "SystemExit":
        return [f"sys.exit({text.strip()})"] if text.strip() not in {"", "0", "None"} else []
    first = f"{name}:{text}" if text else name
    return [first if len(first) <= _LONGEST else first[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"] if first else []


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


@dataclass
class _Story:
    """A fault, what follows from it, and the other runs that have it too."""

    finding: Finding
    effects: list[_Story] = field(default_factory=list)
    also: list[int] = field(default_factory=list)

    @property
    def runs(self) -> list[int]:
        return sorted({self.finding.evidence.get("run", 0), *self.also})

    def after(self) -> Iterable[_Story]:
        """All that follows, each followed by what follows from it."""
        for effect in self.effects:
            yield effect
            yield from effect.after()


def _stories(findings: Sequence[Finding]) -> list[_Story]:
    """The faults in their order, each with its effects. What several runs have in common is told once."""
    told: dict[Any, _Story] = {}
    story_of: list[_Story] = []
    cause_of = [_cause(finding, findings) for finding in findings]
    for at, finding in enumerate(findings):
        run, cause = finding.evidence.get("run"), cause_of[at]
        same = at if run is None else (finding.key, cause is not None and findings[cause].key)
        story = told.setdefault(same, _Story(finding))
        if run is not None and run not in story.runs:
            story.also.append(run)
        story_of.append(story)
    causes: dict[int, _Story] = {}  # by the identity of the effect
    for story, cause in zip(story_of, cause_of, strict=True):
        if cause is not None:
            causes.setdefault(id(story), story_of[cause])
    roots = []
    for story in told.values():
        if _in_circle(story, causes):
            del causes[id(story)]
        if id(story) in causes:
            causes[id(story)].effects.append(story)
        else:
            roots.append(story)
    return roots


def _cause(finding: Finding, findings: Sequence[Finding]) -> int | None:
    """Where in `findings` the cause of `finding` stands: in its own run, and in its series and rank if it can be."""
    because, run = finding.evidence.get("because"), finding.evidence.get("run")
    places = [
        at
        for at, other in enumerate(findings)
        if other.id == because and other is not finding and other.evidence.get("run") == run
    ]
    return min(
        places, key=lambda at: (not is_located(findings[at]), findings[at].key[1:] != finding.key[1:]), default=None
    )


def _in_circle(story: _Story, causes: Mapping[int, _Story]) -> bool:
    """Whether its causes lead back to the story itself."""
    at, seen = causes.get(id(story)), set[int]()
    while at is not None and at is not story and id(at) not in seen:
        seen.add(id(at))
        at = causes.get(id(at))
    return at is story


def _fitted(stories: Sequence[_Story], console: Console, width: int, room: int) -> Iterable[Text]:
    """The findings in `room` lines: if they do not fit in full, the later ones become brief, then are only named."""
    brief = [_story_lines(story, console, width, brief=True) for story in stories]
    full = [_story_lines(story, console, width, brief=False) for story in stories]
    shown: list[Text] = []
    for at in range(len(stories)):
        rest = sum(map(len, brief[at + 1 :]))
        after = min(rest, 1)  # at least the line that names those left out
        if len(shown) + len(full[at]) + (rest if at else after) <= room:  # the first is shown in full if it can be
            block = full[at]
        elif at == 0 or len(shown) + len(brief[at]) + after <= room:
            block = brief[at]
        else:
            left = [finding for story in stories[at:] for finding in (story, *story.after())]
            ids = ", ".join(dict.fromkeys(story.finding.id for story in left))
            return [*shown, _one_line(Text(f"... and {len(left)} more in the report: {ids}", style="dim"), width)]
        shown += block
    return shown


def _story_lines(story: _Story, console: Console, width: int, brief: bool) -> list[Text]:
    """A fault in full or in brief, then what follows from it: there is nothing to be done about that but the cause."""
    lines = [] if brief else [Text()]
    lines += _finding_lines(story.finding, console, width, brief)
    bullet = _bullet(story.finding)
    if story.also:
        lines += _note(bullet, Text("also", "bold"), f"in {_runs(sorted(story.also))}", console, width)
    for effect in story.after():
        finding = effect.finding
        name = (f"{finding.severity}[{finding.id}]", _SEVERITY[finding.severity])
        gutter = bullet + Text("then: ", "bold")
        place = "" if set(effect.runs) == set(story.runs) else f" ({_runs(effect.runs)})"
        told = Text.assemble(name, f"{place}: {finding.message}")
        lines += [_one_line(gutter + told, width)] if brief else _hanging(gutter, told, console, width)
    return lines


def _runs(numbers: Sequence[int]) -> str:
    """`run 2`, `runs 2, 3 and 4`, `runs 2, 3, 4 and 6 more`."""
    if len(numbers) == 1:
        return f"run {numbers[0]}"
    shown = [str(number) for number in numbers]
    if len(shown) > 8:
        shown = [*shown[:7], f"{len(shown) - 7} more"]
    return f"runs {', '.join(shown[:-1])} and {shown[-1]}"


def _finding_lines(finding: Finding, console: Console, width: int, brief: bool, run: str | None = None) -> list[Text]:
    style = _SEVERITY[finding.severity]
    head = Text.assemble((f"{finding.severity}[{finding.id}]", style), (f": {finding.message}", "bold"))
    arrow, bullet = Text(f"{' ' * (margin(finding) - 1)}--> ", GUTTER), _bullet(finding)
    lines = _hanging(Text(), head, console, width)
    lines += _hanging(arrow, Text(describe_place(finding, run)), console, width)
    lines += draw(finding, console, width, style, brief)
    for word, text in _remarks(finding, brief):
        lines += _note(bullet, Text(word, "bold"), text, console, width)
    evidence = describe_evidence(finding.evidence)
    if evidence and not brief:
        lines.append(_one_line(bullet + Text("evidence: ", "bold") + Text(evidence), width))
    for advice in _advice(finding, brief):
        lines += _note(bullet, Text("help", "bold green"), advice, console, width)
    return lines


def _remarks(finding: Finding, brief: bool) -> Iterable[tuple[str, str]]:
    """What stands below the picture: the cause, the first bad element, and how it was found."""
    evidence = finding.evidence
    if evidence.get("because") is not None:
        yield "because", str(evidence["because"])
    if brief or "origin" not in evidence:
        return
    if evidence.get("first_bad"):
        yield "first bad", str(evidence["first_bad"])
    note = str(evidence.get("note") or "")
    if note and note.rstrip(".").lower() not in finding.message.lower():
        yield "note", note
    if evidence.get("library"):
        yield "note", f"inside a library, at {evidence['library']}"
    if evidence.get("compiled"):
        yield "note", "found by running the model without torch.compile"
    if evidence.get("capture_note"):
        yield "note", str(evidence["capture_note"])
    if evidence.get("capture"):
        run = PurePath(str(evidence["capture"])).parent.name
        yield "saved", f"seismograd replay {run} --model FILE.py:CLASS"


def _advice(finding: Finding, brief: bool) -> list[str]:
    """In brief the first one, and none for what only follows from another: there the cause is to be mended."""
    if not brief:
        return list(finding.recommendations)
    return [] if finding.evidence.get("because") is not None else list(finding.recommendations)[:1]


def describe_place(finding: Finding, run: str | None = None) -> str:
    """File and line, module, parameter and op as far as they are known, then run, optimizer, rank and steps."""
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
    if run is not None or isinstance(number := finding.evidence.get("run"), int):
        parts.append(run or f"run {number}")
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
    """The evidence in one line: `norm=3.2e+08, limit=100`. What the picture of an origin tells is left out."""
    told = _TOLD_ELSEWHERE | DRAWN if "origin" in evidence else _TOLD_ELSEWHERE
    return ", ".join(f"{name}={_value(value)}" for name, value in evidence.items() if name not in told)


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


def _bullet(finding: Finding) -> Text:
    """What begins a line below the picture, set under its bar."""
    return Text(f"{' ' * margin(finding)}= ", GUTTER)


def _note(bullet: Text, word: Text, text: str, console: Console, width: int) -> list[Text]:
    return _hanging(bullet + word + Text(": ", word.style), Text(text), console, width)


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
