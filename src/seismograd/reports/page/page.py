"""Puts the page together: one HTML file with everything in it, that asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import seismograd
from seismograd.amounts import duration
from seismograd.reports.page.costs import memory_figure, time_figure
from seismograd.reports.page.curves import Mark, chart, line_of
from seismograd.reports.page.environment import environment, moment
from seismograd.reports.page.findings import label_of, marks_of, story
from seismograd.reports.page.heat import heat_maps
from seismograd.reports.page.markup import Html, joined, tag
from seismograd.reports.page.material import Material, materials_of
from seismograd.reports.page.ranks import rank_section
from seismograd.reports.page.verdict import Verdict, joined_verdict, verdict_of, worst_of
from seismograd.reports.stories import Story, stories
from seismograd.reports.words import many, seconds_of

_OURS = ("loss", "val_loss", "grad", "lr", "time", "memory", "weight_decay", "update", "ranks")
_LINES = 6
"""So many curves of one kind are told apart in one picture."""
_RUNS = 10
"""The curves of so many runs are on one page."""
_OWN = 12
"""So many scalars of the user's own are drawn."""

_HOW = (
    "Where a point stands for several steps, the line is their mean and the band goes from their lowest to their"
    " highest value. Hatched: not finite. Point at a curve, or go to it with the keyboard and use the arrow keys, to"
    " read its values."
)

_LOGO = "M1 10h3l2-6l3 12l3-9l2 5h5"


def render_page(run: Any, *, title: str | None = None) -> str:
    """The page of a stored run, of a report, or of several of them, one after another."""
    materials = materials_of(run)
    if not materials:
        raise ValueError("there is no run to make a page of")
    name = title or str(materials[0].run.get("name") or "run")
    if len(materials) == 1:
        (material,) = materials
        told = stories(material.findings)
        verdict = verdict_of(material, told)
        return _document(name, verdict.word, [_head(name, material), *_sections(material, told, verdict, "", 2)])
    head, parts, verdicts = _head(name, None), [], []
    shown = [replace(each, brief=at >= _RUNS) for at, each in enumerate(materials)]
    for number, material in enumerate(shown, 1):
        anchor, told = f"run-{number}", stories(material.findings)
        verdict = verdict_of(material, told)
        verdicts.append((anchor, verdict))
        title_ = tag("h2", f"Run {number} of {len(materials)}", cls="of-run")
        content = (title_, _meta(material), *_sections(material, told, verdict, f"{anchor}-", 3))
        parts.append(tag("section", *content, id=anchor, cls="run"))
    worst = worst_of(verdict for _, verdict in verdicts)
    return _document(name, worst, [head, joined_verdict(verdicts, name, worst), *parts])


def write_page(text: str, path: str | os.PathLike[str]) -> Path:
    """Writes the page to `path`, whole or not at all, and makes its folder; an `OSError` says what is in the way."""
    from seismograd.reports.report import write_whole

    return write_whole(text, path, "page")


def _document(name: str, status: str, body: Sequence[object]) -> str:
    style, script = _asset("style.css"), _asset("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"seismograd {seismograd.__version__}"),
        tag("title", f"{name}: {status} \N{MIDDLE DOT} Seismograd"),
        tag("style", Html(style)),
    )
    made = f"Made by Seismograd {seismograd.__version__} on {moment(datetime.now(UTC))}."
    page = (
        tag("a", "Skip to the verdict", href="#main", cls="skip"),
        tag("main", *body, id="main", tabindex="-1"),
        tag("footer", tag("p", f"{made} This file is complete: it loads nothing.")),
        tag("script", Html(script)),
    )
    whole = tag("html", tag("head", *head), tag("body", *page), lang="en")
    return f"<!doctype html>\n{whole}\n"


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _head(name: str, material: Material | None) -> Html:
    logo = tag("svg", tag("path", d=_LOGO), viewBox="0 0 20 20", aria_hidden="true", cls="logo")
    brand = tag("p", logo, "Seismograd", cls="brand")
    return tag("header", brand, tag("h1", name), None if material is None else _meta(material), cls="top")


def _meta(material: Material) -> Html:
    run = material.run
    facts = [many(run.get("steps") or 0, "step")]
    if run.get("started"):
        facts.append(moment(run["started"]))
    if math.isfinite(seconds := seconds_of(run)):
        facts.append(duration(seconds))
    if run.get("level"):
        facts.append(f"level {run['level']}")
    if len(material.ranks) > 1:
        facts.append(many(len(material.ranks), "rank"))
    if material.state != "ended":
        facts.append({"live": "still running", "lost": "lost"}[material.state])
    return tag("p", joined((tag("span", fact) for fact in facts), " "), cls="meta")


def _sections(
    material: Material, told: Sequence[Story], verdict: Verdict, prefix: str, level: int
) -> Iterable[Html | None]:
    marks = marks_of(told, prefix)
    costs = [figure for figure in (time_figure(material), memory_figure(material, marks)) if figure is not None]
    sections = [
        (f"Findings ({len(told)})", "findings", _findings(material, told, prefix, level + 1)),
        ("Curves", "curves", _curves(material, marks)),
        ("Ranks", "ranks", rank_section(material, prefix, marks)),
        ("Layers", "layers", heat_maps(material, prefix)),
        ("Time and memory", "costs", joined(costs) if costs else None),
        ("Environment", "environment", environment(material)),
    ]
    shown = [(title, f"{prefix}{ident}", content) for title, ident, content in sections if content is not None]
    yield verdict.html(level)
    links = (tag("li", tag("a", title, href=f"#{ident}")) for title, ident, _ in shown)
    label = f"Parts of {prefix.removesuffix('-').replace('-', ' ')}" if prefix else "Parts of the page"
    yield tag("nav", tag("ul", *links), aria_label=label, cls="parts")
    for title, ident, content in shown:
        yield tag("section", tag(f"h{level}", title, cls="part"), content, id=ident)


def _findings(material: Material, told: Sequence[Story], prefix: str, level: int) -> Html | None:
    every = [story(material, each, number, prefix, level) for number, each in enumerate(told, 1)]
    return joined(every) if every else None


def _curves(material: Material, marks: Sequence[Mark]) -> Html | None:
    names = sorted(material.names)
    wanted = [
        ("Loss", [name for name in names if name.partition("/")[0] in ("loss", "val_loss")], 2.0),
        ("Gradient norm", [name for name in names if name.startswith("grad/norm")], 2.0),
        ("Learning rate", [name for name in names if name.startswith("lr/")], 2.0),
    ]
    wanted += [(name, [name], 3.0) for name in names if name.partition("/")[0] not in _OURS][:_OWN]
    series = material.series(name for _, group, _ in wanted for name in group)
    figures = []
    for title, group, decades in wanted:
        there = [(name, series[name]) for name in group if name in series]
        if not there:
            continue
        lines = [line_of(label_of(name), each) for name, each in there[:_LINES]]
        left = f"{many(len(there) - _LINES, 'more curve')} not drawn." if len(there) > _LINES else ""
        figures.append(chart(title, lines, marks=marks, decades=decades, note=left))
    return joined((tag("p", _HOW, cls="hint"), *figures)) if figures else None
