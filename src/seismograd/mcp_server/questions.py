"""The tools that only read."""

from __future__ import annotations

import json
from difflib import get_close_matches
from io import StringIO
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from seismograd.mcp_server import shapes
from seismograd.mcp_server.answering import answer, said
from seismograd.mcp_server.bounds import TEXT, bounded, rounded
from seismograd.quiet_rich import Console
from seismograd.records import Finding, strict
from seismograd.reports.page.curves import describe, line_of
from seismograd.reports.page.findings import headline, label_of, unit_of
from seismograd.reports.page.material import materials_of
from seismograd.reports.page.scale import Scale
from seismograd.reports.page.verdict import verdict_of
from seismograd.reports.ranks import merged
from seismograd.reports.stories import Story, stories
from seismograd.reports.terminal import render_finding
from seismograd.reports.words import describe_place, many
from seismograd.server import telling
from seismograd.server.shelf import Shelf
from seismograd.store import Run

POINTS = 240
"""Of all curves of one answer together."""
_SEARCHED = 200
"""Runs that a search looks through."""
_BRIEF = 20
"""Findings that a verdict names."""

Which = Annotated[
    str, Field(description="The run: its id, how the id begins, its name, or 'last' for the newest.", max_length=200)
]
Status = Literal["", "healthy", "warning", "critical", "crashed"]
State = Literal["", "live", "ended", "lost"]


class Questions:
    """What can be asked of the runs in a store."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    @said
    def list_runs(
        self,
        limit: Annotated[int, Field(ge=1, le=50, description="So many.")] = 20,
        offset: Annotated[int, Field(ge=0, description="Where the page begins: next_offset of the one before.")] = 0,
        text: Annotated[str, Field(max_length=200, description="Only runs with this in their name or id.")] = "",
        status: Annotated[Status, Field(description="Only runs with this verdict.")] = "",
        state: Annotated[State, Field(description="Only runs that are so; live: training now.")] = "",
    ) -> Annotated[CallToolResult, shapes.RunList]:
        """List the recorded training runs, newest first, with status, steps and how many findings each has."""
        fitting = [run for run in self._shelf.runs() if telling.fits(run, text, status, state)]
        shown = fitting[offset : offset + limit]
        counts = self._shelf.severities([run.id for run in shown])
        rows = [telling.row_of(run, counts.get(run.id, {})) for run in shown]
        after = offset + len(shown)
        data = {
            "store": self._shelf.shown,
            "total": len(fitting),
            "offset": offset,
            "next_offset": after if after < len(fitting) else None,
            "runs": rows,
        }
        lines = [_line(row) for row in rows] or [f"no run fits in {self._shelf.shown}"]
        if after < len(fitting):
            lines.append(f"{len(shown)} of {len(fitting)} runs; ask again with offset={after}")
        return answer("\n".join(lines), data)

    @said
    def get_verdict(self, run: Which = "last") -> Annotated[CallToolResult, shapes.VerdictTold]:
        """Say how a run went: its status, what is wrong, where it began, what to do first, what could not be seen.

        Begin here. Findings are numbered, the most severe first; get_finding tells one in full.
        """
        one = self._shelf.run(run)
        (material,) = materials_of(one)
        told = stories(material.findings)
        verdict = verdict_of(material, told)
        findings = [_brief(number, each) for number, each in enumerate(merged(one.findings()), 1)]
        last = (one.state.get("summary") or {}).get("last") or {}
        lines = [f"{one.id} ({one.name}): {verdict.word}. {verdict.title}.", " ".join(verdict.sentences)]
        lines += [f"Do this first: {verdict.first}"] if verdict.first else []
        lines += [f"{each['number']}. {each['severity']} {each['id']}, {each['place']}" for each in findings[:_BRIEF]]
        if len(findings) > _BRIEF:
            lines.append(f"{len(findings) - _BRIEF} more: get_finding takes their numbers, up to {len(findings)}")
        data = {
            "run": self._row(one),
            "title": verdict.title,
            "sentences": list(verdict.sentences),
            "first": verdict.first,
            "unseen": list(verdict.unseen),
            "total_findings": len(findings),
            "findings": findings[:_BRIEF],
            "last": {name: rounded(value) if isinstance(value, float) else value for name, value in last.items()},
            "series": one.names(min(one.ranks, default=0)),
        }
        return answer("\n".join(lines), data)

    @said
    def get_finding(
        self,
        run: Which = "last",
        finding: Annotated[
            str, Field(max_length=100, description="Its number in get_verdict ('1' is the gravest), or its id.")
        ] = "1",
    ) -> Annotated[CallToolResult, shapes.FindingTold]:
        """Tell one finding of a run in full: place, the code line, evidence, advice, and what follows from it."""
        one = self._shelf.run(run)
        every = merged(one.findings())
        at = _place_of(finding, every, one)
        each = every[at]
        after = _story_of(each, stories(every))
        numbers = {id(other): number for number, other in enumerate(every, 1)}
        data = {
            **each.to_dict(),
            "run": one.id,
            "number": at + 1,
            "title": headline(each),
            "place": describe_place(each),
            "effects": [_brief(numbers[id(effect.finding)], effect.finding) for effect in after],
            "same_id": [number for number, other in enumerate(every, 1) if other.id == each.id],
        }
        return answer(_printed(each), data)

    @said
    def get_series(  # noqa: PLR0917 (a tool is called by names)
        self,
        run: Which = "last",
        names: Annotated[
            list[str] | None,
            Field(max_length=8, description="Up to 8 scalars, such as ['loss', 'grad/norm', 'lr/0']; null lists them."),
        ] = None,
        start: Annotated[int | None, Field(ge=0, description="From this step on.")] = None,
        stop: Annotated[int | None, Field(ge=0, description="Up to this step, included.")] = None,
        points: Annotated[int, Field(ge=1, le=POINTS, description="At most about so many points of each.")] = 60,
        rank: Annotated[int, Field(ge=0, description="Of several processes, this one.")] = 0,
    ) -> Annotated[CallToolResult, shapes.Curves]:
        """Read scalars over steps, thinned to a few points that keep every spike and NaN: low, high, mean, last, bad.

        Look at the whole first, then closer with start and stop.
        """
        one = self._shelf.run(run)
        known = one.names(rank)
        if not known and rank not in one.ranks and one.ranks:
            raise ToolError(f"the run {one.id} has no rank {rank}: use one of {', '.join(map(str, one.ranks))}")
        wanted = list(dict.fromkeys(names or ()))
        for name in wanted:
            if name not in known:
                near = get_close_matches(name, known, 3, 0.4) or known[:10]
                raise ToolError(f"the run {one.id} has no series {name!r}: there are {', '.join(near) or 'none'}")
        if start is not None and stop is not None and start > stop:
            raise ToolError(f"start {start} is after stop {stop}: give the earlier step as start")
        each = max(1, min(points, POINTS // max(1, len(wanted))))
        found = one.series(wanted, start, stop, points=each, rank=rank) if wanted else {}
        curves = {}
        for name, series in found.items():
            line = line_of(label_of(name), series)
            columns = {part: [rounded(value) for value in getattr(series, part).tolist()] for part in _FLOATS}
            curves[name] = {
                "first": series.first.tolist(),
                "last_step": series.steps.tolist(),
                **columns,
                "bad": series.bad.tolist(),
                "count": series.count.tolist(),
                "steps_a_point": series.width,
                "said": describe(line, Scale.of([], unit_of(name))),
            }
        lines = [curve["said"] for curve in curves.values()]
        lines += [f"{name}: nothing was read there" for name in wanted if name not in found]
        if not wanted:
            lines.append(f"{one.id} has {', '.join(known) or 'no series'}")
        if wanted and each < points:
            lines.append(f"{each} points of each: with fewer names there are more")
        data = {"run": one.id, "rank": rank, "points": each, "series": curves, "available": known}
        return answer("\n".join(lines), data)

    @said
    def explain_finding(
        self,
        id: Annotated[  # noqa: A002 (what the model has read)
            str, Field(max_length=100, description="The finding's id, such as 'gradient-explosion'; empty lists all.")
        ] = "",
    ) -> Annotated[CallToolResult, shapes.Explained]:
        """Say what a kind of finding means: why it matters, how it is judged, what to try, its limits."""
        known = telling.known_pages()
        if not id:
            listed = [{"id": page.id, "title": page.title} for page in known.values()]
            room = TEXT // len(listed) - 1  # every id is told, whatever has to be cut of the titles
            lines = [_short(f"{each['id']}: {each['title']}", room) for each in listed]
            return answer("\n".join(lines), {"id": None, "title": None, "markdown": None, "catalogue": listed})
        page = known.get(id)
        if page is None:
            near = get_close_matches(id, known, 3, 0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "leave the id out to list all of them"
            raise ToolError(f"there is no finding {id!r}: {hint}")
        text = page.markdown()
        return answer(text, {"id": page.id, "title": page.title, "markdown": text, "catalogue": []})

    @said
    def compare_runs(
        self,
        run: Which,
        other: Which,
        rtol: Annotated[float, Field(ge=0, le=1, description="What differs by no more, relatively, is equal.")] = 1e-5,
    ) -> Annotated[CallToolResult, shapes.Compared]:
        """Say where two runs part: the first step, quantity and layer, what that says about the cause, and what was set
        differently."""
        one, two = self._shelf.run(run), self._shelf.run(other)
        compared = one.compare(two, rtol=rtol)
        lines = [f"{compared.verdict}: {one.id} and {two.id}", str(compared), *compared.notes]
        lines += [f"{name}: {_short(pair[0])} against {_short(pair[1])}" for name, pair in compared.settings.items()]
        return answer("\n".join(lines), compared.to_dict())

    @said
    def search_findings(
        self,
        text: Annotated[
            str, Field(max_length=200, description="Part of a finding's id, message, file, module or code line.")
        ] = "",
        severity: Annotated[Literal["", "info", "warning", "critical"], Field(description="Only these.")] = "",
        limit: Annotated[int, Field(ge=1, le=50)] = 20,
    ) -> Annotated[CallToolResult, shapes.FoundFindings]:
        """Search the findings of the newest 200 runs."""
        total, found = self._shelf.count(), []
        runs = self._shelf.runs(_SEARCHED)
        sick = self._shelf.severities([run.id for run in runs])
        for run in runs:
            if severity in ("", *sick.get(run.id, ())) and run.id in sick:
                for number, each in enumerate(merged(run.findings()), 1):
                    if severity in ("", each.severity.value) and _speaks_of(each, text.casefold()):
                        found.append({**_brief(number, each), "run": run.id})
            if len(found) >= limit:
                break
        shown = found[:limit]
        lines = [f"{each['run']} {each['number']}. {each['id']}: {each['message']}" for each in shown]
        data = {"looked_at": len(runs), "total_runs": total, "findings": shown}
        return answer("\n".join(lines) or f"nothing like that in {many(len(runs), 'run')}", data)

    # -- not tools -----------------------------------------------------------------------------------------------

    def report(self, run: str) -> str:
        """A run's report as JSON, its events left out where it would be too long."""
        told, cut = bounded(self._shelf.run(run).report(), 60_000)
        return json.dumps({**told, "cut": cut}, ensure_ascii=False)

    def _row(self, run: Run) -> dict[str, Any]:
        return telling.row_of(run, self._shelf.severities([run.id]).get(run.id, {}))


_FLOATS = ("low", "high", "mean", "last")


def _line(row: dict[str, Any]) -> str:
    found = row["findings"]
    told = f"{row['id']}  {row['name']}  {row['status']}, {row['state']}, {many(row['steps'], 'step')}"
    return f"{told}, {found['critical']} critical, {found['warning']} warning, started {row['started']}"


def _brief(number: int, finding: Finding) -> dict[str, Any]:
    because = finding.evidence.get("because")
    return {
        "number": number,
        "id": finding.id,
        "severity": finding.severity.value,
        "step": finding.step,
        "place": describe_place(finding),
        "message": finding.message,
        "because": None if because is None else str(because),
    }


def _place_of(asked: str, findings: list[Finding], run: Run) -> int:
    """Where in the list the finding stands that is asked for by number or id."""
    if not findings:
        raise ToolError(f"the run {run.id} has no findings: get_verdict says what was looked at")
    ids = [each.id for each in findings]
    if asked in ids:
        return ids.index(asked)
    if asked.isdecimal() and 1 <= int(asked) <= len(ids):
        return int(asked) - 1
    raise ToolError(
        f"the run {run.id} has no finding {asked!r}: give a number from 1 to {len(ids)}, or one of "
        f"{', '.join(dict.fromkeys(ids))}"
    )


def _story_of(finding: Finding, told: list[Story]) -> list[Story]:
    for story in told:
        for each in (story, *story.after()):
            if each.finding is finding:
                return list(each.after())
    return []


def _printed(finding: Finding) -> str:
    out = StringIO()
    Console(file=out, width=110, force_terminal=False).print(render_finding(finding))
    return out.getvalue().rstrip()


def _speaks_of(finding: Finding, text: str) -> bool:
    where = finding.where
    told = (finding.id, finding.message, where.file, where.module, where.parameter, where.code)
    return any(text in part.casefold() for part in told if part)


def _short(value: Any, most: int = 120) -> str:
    text = str(strict(value))
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
