"""A run in a notebook's cell: a card of HTML with its own style, without a script, of bounded size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seismograd.amounts import number
from seismograd.records import Finding, Severity
from seismograd.reports.page.curves import Line, Mark, chart, line_of
from seismograd.reports.page.findings import badge, code, headline, label_of
from seismograd.reports.page.markup import Html, prose, tag
from seismograd.reports.page.material import materials_of
from seismograd.reports.page.verdict import verdict_of
from seismograd.reports.stories import Story, stories
from seismograd.reports.words import describe_place, many, tally

if TYPE_CHECKING:
    from seismograd.store import Run

_POINTS = 160
_FINDINGS = 5
"""So many are shown in full; the others are counted."""
_ROWS = 30
_LONGEST = 600
"""Characters of any one text."""
_REM = 14
"""Pixels: a notebook's own root size may be anything."""

_DRAWN = re.compile(
    r"^(\.(critical|warning|info|healthy|badge|icon|id|headline|place|no|under|chart-head|title|log|legend|axes|small|plot"
    r"|y|x|line|dots|band|bad|mark|c1|grid)\b|figcaption|mark |path\.grid)"
)
"""The rules of the page's style that the parts of a card need."""
_DARK = ('[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast", "html[theme=dark]")
_LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light", "html[theme=light]")
"""How JupyterLab, VS Code and Colab say which theme is on, whatever the system prefers."""


def card(
    status: str,
    word: str,
    title: str,
    facts: Sequence[str],
    *,
    figure: Html | None = None,
    told: Sequence[Story] = (),
    notes: Sequence[object] = (),
) -> str:
    """The card itself."""
    grave = _grave(told)
    more = len(grave) - _FINDINGS
    parts = (
        tag("div", badge(status, word), tag("b", prose(_short(title))), tag("span", ", ".join(facts)), cls="sg-head"),
        figure,
        *(_finding(number, story) for number, story in enumerate(grave[:_FINDINGS], 1)),
        tag("p", f"and {many(more, 'more finding')}", cls="place") if more > 0 else None,
        *notes,
    )
    return tag("div", tag("style", _style()), *parts, cls=f"sg-cell {status}")


def run_card(run: Run | Mapping[str, Any]) -> str:
    """The card of a stored run, or of a report."""
    material = materials_of(run)[0]
    told = stories(material.findings)
    verdict = verdict_of(material, told)
    about = material.run
    facts = [str(about.get("name") or "run"), many(about.get("steps") or 0, "step")]
    if about.get("id"):
        facts.append(str(about["id"]))
    names = [name for name in material.names if name.partition("/")[0] in ("loss", "val_loss")][:4]
    lines = [line_of(label_of(name), each) for name, each in material.series(names, points=_POINTS).items()]
    sentence = tag("p", prose(_short(verdict.sentences[-1])), cls="place") if verdict.sentences else None
    return card(
        verdict.status,
        verdict.word,
        verdict.title,
        [_short(fact, 80) for fact in facts],
        figure=loss_figure(lines, told),
        told=told,
        notes=() if told else (sentence,),
    )


def loss_figure(lines: Sequence[Line], told: Sequence[Story]) -> Html | None:
    """The losses over steps, with a number where something began."""
    if not any(len(line.first) > 1 for line in lines):
        return None
    found = [story.finding for story in _grave(told)[:_FINDINGS]]
    marks = [Mark(each.step, str(at), each.severity) for at, each in enumerate(found, 1)]
    return chart("Loss", lines, marks=marks, small=True, numbers=False)


def _grave(told: Sequence[Story]) -> list[Story]:
    return [story for story in told if story.finding.severity is not Severity.INFO]


def runs_table(runs: Sequence[Run]) -> str:
    """Runs in a table, the first of them."""
    head = tag("tr", *(tag("th", name) for name in ("", "run", "name", "steps", "loss", "started")))
    rows = [head]
    for run in runs[:_ROWS]:
        last = ((run.state.get("summary") or {}).get("last") or {}).get("loss")
        cells = (
            badge(run.status),
            tag("code", run.id),
            _short(run.name, 60),
            f"{run.steps:,}",
            "" if last is None else number(float(last)),
            f"{run.started:%Y-%m-%d %H:%M}",
        )
        rows.append(tag("tr", *(tag("td", cell) for cell in cells), cls=run.status))
    more = tag("p", f"and {many(len(runs) - _ROWS, 'more run')}", cls="place") if len(runs) > _ROWS else None
    return tag("div", tag("style", _style()), tag("table", *rows), more, cls="sg-cell")


def findings_card(
    status: str, title: str, facts: Sequence[str], findings: Sequence[Finding], rows: Iterable[tuple[str, str]] = ()
) -> str:
    """The card of findings that belong to no run, with a table below."""
    table = [tag("tr", tag("td", name), tag("td", _short(text))) for name, text in list(rows)[:_ROWS]]
    notes = (tag("details", tag("summary", "What was checked"), tag("table", *table)),) if table else ()
    return card(status, status, title, facts, told=stories(findings), notes=notes)


def shown_or_none(make: Callable[[], str]) -> str | None:
    """The HTML; nothing if it cannot be made, so that the text is shown instead."""
    try:
        return str(make())
    except Exception:
        return None


def summary_of(findings: Sequence[Finding]) -> str:
    """`1 critical, 2 warning`, or that there is nothing."""
    return tally([each for each in findings if each.severity is not Severity.INFO]) or "nothing found"


def _finding(place: int, story: Story) -> Html:
    finding = story.finding
    name = tag("code", finding.id, cls="id")
    advice = finding.recommendations[0] if finding.recommendations else None
    follow = list(dict.fromkeys(each.finding.id for each in story.after()))
    return tag(
        "div",
        tag("div", badge(str(finding.severity)), name, tag("span", f"#{place}"), cls="sg-head"),
        tag("p", prose(_short(finding.message or headline(finding)))),
        tag("p", _short(describe_place(finding)), cls="place"),
        code(finding) if len(finding.where.code or "") <= _LONGEST else None,
        tag("p", tag("b", "What to do: "), prose(_short(advice))) if advice else None,
        tag("p", _short(f"From it follow: {', '.join(follow)}"), cls="place") if follow else None,
        cls=f"sg-finding {finding.severity}",
    )


def _short(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


@cache
def _style() -> Html:
    """The page's own colours and drawing rules, held within the card."""
    text = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    light, dark = (block.strip() for block in re.findall(r":root \{(.*?)\}", text, re.DOTALL)[:2])
    rules = "\n".join(line for line in text.splitlines() if _DRAWN.match(line))
    own = Path(__file__).with_name("cell.css").read_text(encoding="utf-8")
    themed = [f".sg-cell {{ {light} }}", f"@media (prefers-color-scheme: dark) {{ .sg-cell {{ {dark} }} }}"]
    themed += [f"{', '.join(f'{name} .sg-cell' for name in _LIGHT)} {{ color-scheme: light; {light} }}"]
    themed += [f"{', '.join(f'{name} .sg-cell' for name in _DARK)} {{ color-scheme: dark; {dark} }}"]
    whole = "\n".join([*themed, f".sg-cell {{ {own}\n{rules} }}"])
    pixels = re.sub(r"(\d*\.?\d+)rem\b", lambda found: f"{float(found[1]) * _REM:g}px", whole)
    return Html(re.sub(r"\s+", " ", pixels))
