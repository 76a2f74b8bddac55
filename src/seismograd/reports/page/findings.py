"""Findings as the page tells them: place, code, evidence drawn, advice; what follows from one stands under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from seismograd.records import Finding, Severity
from seismograd.reports.page.bars import neighbours
from seismograd.reports.page.curves import Mark, chart, line_of
from seismograd.reports.page.markup import Html, joined, prose, tag
from seismograd.reports.page.material import Material
from seismograd.reports.pages import Page, pages
from seismograd.reports.picture import describe_inputs, parts_of
from seismograd.reports.stories import Story
from seismograd.reports.words import describe_place, describe_value, evidence_left, remarks

if TYPE_CHECKING:
    from seismograd.store import Series

ICONS = {
    "critical": "M6 1h8l5 5v8l-5 5H6l-5-5V6zM7 7l6 6M13 7l-6 6",
    "warning": "M10 2l9 16H1zM10 8v5M10 15.5v.5",
    "info": "M10 1a9 9 0 1 0 0 18a9 9 0 0 0 0-18M10 9v5.5M10 5.5v.5",
    "healthy": "M10 1a9 9 0 1 0 0 18a9 9 0 0 0 0-18M6 10.5l3 3l5.5-6.5",
}
ICONS["crashed"] = ICONS["critical"]

_MEMORY = (("memory/allocated", "memory/own", "memory/rss"),)
_TIME = (("time/step", "time/data"),)
_RATE = (("loss", "val_loss"), ("lr/0",))
_GRADIENT = (("grad/norm",), ("loss",))
_CURVES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("memory-leak", "memory-pressure", "growing-graph"), _MEMORY),
    **dict.fromkeys(("data-starvation", "slow-step", "cpu-pressure"), _TIME),
    **dict.fromkeys(("lr-jump", "lr-too-high", "lr-too-low", "scheduler-order"), _RATE),
    **dict.fromkeys(("update-ratio-high", "update-ratio-low", "precision-underflow"), _RATE),
    **dict.fromkeys(("nonfinite-gradient", "nonfinite-parameter"), _GRADIENT),
    **dict.fromkeys(("gradient-explosion", "gradient-vanishing"), _GRADIENT),
    **dict.fromkeys(("missing-zero-grad", "accumulation-mismatch", "ineffective-clipping"), _GRADIENT),
    "nonfinite-loss": (("loss",), ("grad/norm",)),
    "nonfinite-activation": (("loss",), ("grad/norm",)),
    "amp-scale-collapse": (("amp/scale",), ("grad/norm",)),
}
_OTHERS = (("loss", "val_loss"),)
"""What is drawn for a finding that is about nothing else."""

TITLES = {
    "loss": "Loss",
    "val_loss": "Validation loss",
    "grad/norm": "Gradient norm",
    "lr": "Learning rate",
    "time": "Time of a step",
    "memory": "Memory",
    "amp/scale": "Loss scale",
}
_LABELS = {
    "loss": "loss",
    "val_loss": "validation",
    "grad": "gradient norm",
    "lr": "learning rate",
    "time/step": "whole step",
    "time/data": "waiting for data",
    "memory/rss": "whole process",
    "memory/own": "memory of its own",
    "memory/allocated": "device memory",
}
_POINTS, _MOST = 24, 160
"""So many points make a curve, and so many are enough for a small one."""
_DRAWN = 12
"""The evidence of so many findings is drawn; the others are told."""
_CLOSE = 40
"""Steps on either side of a finding that are drawn at least."""
_LONG, _FAR = frozenset(("overfitting", "memory-leak", "loss-plateau", "shuffled-labels", "lr-too-low")), 5000
"""What goes on for long is seen from afar."""


@cache
def _pages() -> dict[str, Page]:
    return pages()


def headline(finding: Finding) -> str:
    """What it is, in one clause, as its page says; nothing for a detector of the user's own."""
    page = _pages().get(finding.id)
    return page.title.partition(": ")[0].rstrip(".") if page is not None else ""


def icon(kind: str) -> Html:
    """A shape for each severity, so that colour is not all that tells them apart."""
    shape = tag("path", d=ICONS.get(kind, ICONS["info"]))
    return tag("svg", shape, cls=f"icon {kind}", viewBox="0 0 20 20", aria_hidden="true")


def badge(kind: str, text: str | None = None) -> Html:
    return tag("span", icon(kind), text or kind, cls=f"badge {kind}")


def story(material: Material, told: Story, number: int, prefix: str, level: int) -> Html:
    """A fault in full, its title a heading of that level, and under it what follows from it."""
    finding = told.finding
    title = headline(finding)
    name = tag("code", finding.id, cls="id")
    parts: list[object] = [
        tag("header", badge(str(finding.severity)), name, tag("span", f"#{number}", cls="number")),
        tag(f"h{level}", prose(title or finding.message), cls="headline"),
        tag("p", prose(finding.message), cls="message") if title else None,
        tag("p", describe_place(finding, ranks=len(material.ranks)), cls="place"),
        code(finding),
        _notes(finding),
        _advice(finding, level + 1),
        _evidence(material, finding) if number <= _DRAWN else None,
        _effects(told, level + 1, len(material.ranks)),
        _more(finding),
    ]
    return tag("article", *parts, cls=f"finding {finding.severity}", id=f"{prefix}finding-{number}")


def code(finding: Finding) -> Html | None:
    """The line where it began, with a mark under the op and what went into it."""
    where = finding.where
    if not (where.code and where.code.strip()):
        return None
    before, op, after = parts_of(where.code, finding.evidence)
    number = "" if where.line is None else str(where.line)
    line = tag("span", tag("span", f"{number} ", cls="no"), before, tag("mark", op) if op else None, after, "\n")
    under = None
    if op:
        drawn = " " * (len(number) + 1 + len(before)) + "^" * len(op) + " "
        under = tag("span", tag("span", drawn, aria_hidden="true"), describe_inputs(finding), cls="under")
    name = f"{where.file}, line {number}" if where.file and number else "the code"
    return tag("pre", tag("code", line, under), tabindex="0", aria_label=name, role="region")


def _notes(finding: Finding) -> Html | None:
    told = [(word, text) for word, text in remarks(finding) if word != "because"]
    if not told:
        return None
    rows = []
    for word, text in told:
        rows += [tag("dt", word), tag("dd", tag("code", text) if word == "saved" else prose(text))]
    return tag("dl", *rows, cls="notes")


def _advice(finding: Finding, level: int) -> Html | None:
    if not finding.recommendations:
        return None
    items = (tag("li", prose(advice)) for advice in finding.recommendations)
    return tag("div", tag(f"h{level}", "What to do"), tag("ol", *items), cls="advice")


def _evidence(material: Material, finding: Finding) -> Html | None:
    """The curves around its step, and the layer among its neighbours."""
    drawn = [*_curves(material, finding), neighbours(material, finding)]
    figures = [figure for figure in drawn if figure is not None]
    return tag("div", *figures, cls="evidence") if figures else None


def _curves(material: Material, finding: Finding) -> Iterable[Html]:
    steps = max(material.run.get("steps") or 0, finding.last_step + 1)
    mark = [Mark(finding.step, f"step {finding.step:,}", finding.severity)]
    for wanted in _CURVES.get(finding.id, _OTHERS):
        series = _around(material, finding, _names(wanted, finding, material.names), steps)
        if not series:
            continue
        lines = [line_of(label_of(name), each) for name, each in series.items()]
        window = min(line.first[0] for line in lines), max(line.last[-1] for line in lines)
        if window[1] > window[0]:
            name = wanted[0]
            title = title_of(name) + (f" on rank {finding.rank}" if len(material.ranks) > 1 else "")
            yield chart(title, lines, unit=unit_of(name), marks=mark, window=window, small=True)


def _around(material: Material, finding: Finding, names: Sequence[str], steps: int) -> dict[str, Series]:
    """The curves around the finding, from as far away as it takes to see a curve: what is old is kept coarsely."""
    back = _reach(finding)
    while True:
        start, stop = max(0, finding.step - back), min(steps - 1, finding.step + back)
        series = material.series(names, start, stop, _MOST, finding.rank)
        most = max((len(each.steps) for each in series.values()), default=0)
        if most >= _POINTS or (start == 0 and stop == steps - 1):
            return series
        back *= 8


def _names(wanted: Sequence[str], finding: Finding, there: Sequence[str]) -> list[str]:
    """The scalars as this run calls them: with several optimizers, those of the finding's."""
    found = []
    for name in wanted:
        own = f"{name}/{finding.evidence.get('series')}"
        found += [own] if own in there else [name] if name in there else [n for n in there if n.startswith(f"{name}/")]
    return found[:1] if wanted is _MEMORY[0] else found


def _reach(finding: Finding) -> int:
    """How many steps on either side are drawn: as far back as what it speaks of, and at least a few."""
    spoken = [
        value
        for name, value in finding.evidence.items()
        if name.endswith("step") and isinstance(value, int) and 0 <= value < finding.step
    ]
    back = max(_CLOSE, int(1.5 * (finding.step - min(spoken, default=finding.step))))
    if finding.id in _LONG:
        back = max(back, min(finding.last_step - finding.step, _FAR))
    return back


def title_of(name: str) -> str:
    return TITLES.get(name) or TITLES.get(name.partition("/")[0], name)


def label_of(name: str) -> str:
    """A scalar's name where it stands beside others."""
    head, _, tail = name.partition("/")
    if head in _LABELS:
        number = tail.removeprefix("norm").removeprefix("/")
        return f"{_LABELS[head]} {number}" if number and name != "lr/0" else _LABELS[head]
    return _LABELS.get(name, name)


def unit_of(name: str) -> str:
    return {"memory": "bytes", "time": "seconds"}.get(name.partition("/")[0], "")


def _effects(told: Story, level: int, ranks: int) -> Html | None:
    items = [
        tag(
            "li",
            badge(str(effect.finding.severity)),
            tag("code", effect.finding.id, cls="id"),
            tag("p", prose(effect.finding.message)),
            tag("p", describe_place(effect.finding, ranks=ranks), cls="place"),
        )
        for effect in told.after()
    ]
    return tag("div", tag(f"h{level}", "What follows from it"), tag("ul", *items), cls="effects") if items else None


def _more(finding: Finding) -> Html | None:
    """The numbers behind it, and why it matters, for who wants to know."""
    parts = []
    left = evidence_left(finding.evidence)
    if left:
        rows = (joined((tag("dt", name), tag("dd", describe_value(value)))) for name, value in left.items())
        parts.append(tag("details", tag("summary", "The numbers"), tag("dl", *rows)))
    page = _pages().get(finding.id)
    if page is not None:
        why = page.body.partition("## Why it matters")[2].partition("\n## ")[0]
        told = [page.title, *(" ".join(part.split()) for part in why.split("\n\n") if part.strip())]
        parts.append(tag("details", tag("summary", "Why it matters"), *(tag("p", prose(each)) for each in told)))
    return joined(parts) if parts else None


def marks_of(stories: Sequence[Story], prefix: str) -> list[Mark]:
    """The steps of the faults, for the curves of the whole run."""
    return [
        Mark(each.finding.step, str(number), each.finding.severity, f"#{prefix}finding-{number}")
        for number, each in enumerate(stories, 1)
        if each.finding.severity is not Severity.INFO
    ]
