"""Findings and verdicts as a good compiler prints them: objects that describe themselves; only a console writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seismograd.quiet_rich import Console, ConsoleOptions, RenderableType, RenderResult, Text
from seismograd.records import Finding, Severity
from seismograd.reports.picture import GUTTER, draw, margin
from seismograd.reports.rank_table import SHOWN, rank_lines
from seismograd.reports.ranks import which_ranks
from seismograd.reports.report import finding_of
from seismograd.reports.stories import Story, stories
from seismograd.reports.words import (
    SHORT,
    describe_evidence,
    describe_place,
    ended_by,
    many,
    remarks,
    seconds_of,
    tally,
    which_runs,
)

_SEVERITY = {Severity.INFO: "bold cyan", Severity.WARNING: "bold yellow", Severity.CRITICAL: "bold red"}
_STATUS = {"healthy": "bold green", "warning": "bold yellow", "critical": "bold red", "crashed": "bold red"}

_WIDEST = 120
"""Longer lines are hard to read, however wide the terminal is."""


def render_finding(
    finding: Finding, *, brief: bool = False, run: str | None = None, ranks: int = 1, speaker: str = ""
) -> RenderableType:
    """One finding: what, where, the evidence in one line, what to do. `brief`: no evidence, only the first advice.

    `run` says which run it belongs to where there are several: `run 2`; `ranks` is how many of them the run has.
    `speaker` stands in front, where not only one process writes to the terminal: `rank 3`.
    """
    return _Block(finding, brief, run, ranks, speaker)


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
    ranks: int
    speaker: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        yield from _finding_lines(self.finding, console, width, self.brief, self.run, self.ranks, self.speaker)


@dataclass(frozen=True)
class _Verdict:
    report: Mapping[str, Any]
    height: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        findings = [finding_of(data) for data in self.report.get("findings", ())]
        run = self.report["run"]
        if not run.get("steps") and not findings:
            facts = ["seismograd: no backward pass was seen", *ended_by(run)]
            yield _one_line(Text(", ".join(facts)), width)
            return
        headline = _hanging(Text(), _headline(self.report, findings, width), console, width)
        yield from headline
        ranks = self.report.get("ranks") or ()
        crashed = any((side.get("exit") or {}).get("exception") for side in ranks)  # whose error came first
        if crashed or any(finding.severity is not Severity.INFO for finding in findings):
            room = (self.height or _screen(console)) - len(headline)
            table = rank_lines(ranks, width, min(SHOWN, room // 6))
            yield from _fitted(stories(findings), console, width, room - len(table) - bool(table), _world(self.report))
            if table:
                yield Text()
            yield from table


def _screen(console: Console) -> int:
    return max(24, console.height) - 1 if console.is_terminal else 60


def _headline(report: Mapping[str, Any], findings: Sequence[Finding], width: int) -> Text:
    """In one line of `width` if leaving out the overhead makes it one."""
    run, runs = report["run"], report.get("runs") or ()
    status = run.get("status") or "healthy"
    facts = [many(len(runs), "run")] if len(runs) > 1 else []
    steps = many(run.get("steps") or 0, "step")
    world = _world(report)
    facts += [f"{steps} on {many(world, 'rank')}" if world > 1 else steps, tally(findings) or "nothing found"]
    measured, ending = (run.get("overhead") or {}).get("measured"), ended_by(run)
    if isinstance(measured, (int, float)) and not seconds_of(run) < SHORT:
        overhead = f"overhead {measured:.1%}"
        alone = len(f"seismograd: {status} after {', '.join([*facts, *ending])}")
        if not alone <= width < alone + len(f", {overhead}"):
            facts.append(overhead)
    return Text.assemble("seismograd: ", (status, _STATUS.get(status, "bold")), f" after {', '.join(facts + ending)}")


def _world(report: Mapping[str, Any]) -> int:
    """How many ranks the report knows of."""
    return max(len(report.get("ranks") or ()), report["run"].get("ranks") or 1)


def _fitted(stories: Sequence[Story], console: Console, width: int, room: int, ranks: int) -> Iterable[Text]:
    """The findings in `room` lines: if they do not fit in full, the later ones become brief, then are only named."""
    brief = [_story_lines(story, console, width, brief=True, ranks=ranks) for story in stories]
    full = [_story_lines(story, console, width, brief=False, ranks=ranks) for story in stories]
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


def _story_lines(story: Story, console: Console, width: int, brief: bool, ranks: int) -> list[Text]:
    """A fault in full or in brief, then what follows from it: there is nothing to be done about that but the cause."""
    lines = [] if brief else [Text()]
    lines += _finding_lines(story.finding, console, width, brief, ranks=ranks)
    bullet = _bullet(story.finding)
    if story.also:
        lines += _note(bullet, Text("also", "bold"), f"in {which_runs(sorted(story.also))}", console, width)
    for effect in story.after():
        finding = effect.finding
        name = (f"{finding.severity}[{finding.id}]", _SEVERITY[finding.severity])
        gutter = bullet + Text("then: ", "bold")
        place = "" if set(effect.runs) == set(story.runs) else f" ({which_runs(effect.runs)})"
        who = "" if finding.id.startswith("rank-") else which_ranks(finding, ranks)  # those say themselves who it is
        if who and who != which_ranks(story.finding, ranks):
            place += f" on {who}"
        told = Text.assemble(name, f"{place}: {finding.message}")
        lines += [_one_line(gutter + told, width)] if brief else _hanging(gutter, told, console, width)
    return lines


def _finding_lines(  # noqa: PLR0917
    finding: Finding,
    console: Console,
    width: int,
    brief: bool,
    run: str | None = None,
    ranks: int = 1,
    speaker: str = "",
) -> list[Text]:
    style = _SEVERITY[finding.severity]
    head = Text(f"{speaker}: " if speaker else "", "bold")
    head += Text.assemble((f"{finding.severity}[{finding.id}]", style), (f": {finding.message}", "bold"))
    place = replace(finding, rank=0) if speaker else finding  # it is said in front
    arrow, bullet = Text(f"{' ' * (margin(finding) - 1)}--> ", GUTTER), _bullet(finding)
    lines = _hanging(Text(), head, console, width)
    lines += _hanging(arrow, Text(describe_place(place, run, ranks)), console, width)
    lines += draw(finding, console, width, style, brief)
    for word, text in remarks(finding, brief):
        lines += _note(bullet, Text(word, "bold"), text, console, width)
    evidence = describe_evidence(finding.evidence)
    if evidence and not brief:
        lines.append(_one_line(bullet + Text("evidence: ", "bold") + Text(evidence), width))
    for advice in _advice(finding, brief):
        lines += _note(bullet, Text("help", "bold green"), advice, console, width)
    return lines


def _advice(finding: Finding, brief: bool) -> list[str]:
    """In brief the first one, and none for what only follows from another: there the cause is to be mended."""
    if not brief:
        return list(finding.recommendations)
    return [] if finding.evidence.get("because") is not None else list(finding.recommendations)[:1]


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
