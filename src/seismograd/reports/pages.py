"""The page of a finding, made from its detector: what it is, why it matters, what to try, its limits."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from seismograd.detectors import DEFAULT
from seismograd.protocols import Detector

_HEADING = re.compile(r"^[#* ]*(Why it matters|What to try)\s*[:.]?\**\s*:?\s*(.*)$")


@dataclass(frozen=True)
class Page:
    """What a person should know about one finding."""

    id: str
    title: str
    body: str
    """Markdown, with the headings *Why it matters* and *What to try*."""
    needs: tuple[str, ...]
    follows: tuple[str, ...]
    limits: dict[str, Any]

    def markdown(self, level: int = 1) -> str:
        """The whole page, its title as a heading of that level."""
        mark = "#" * level
        parts = [f"{mark} {self.id}", self.title, self.body.replace("\n## ", f"\n{mark}# ")]
        if self.limits:
            limits = "\n".join(f"- `{name}` = {value!r}" for name, value in self.limits.items())
            parts.append(f"{mark}# Limits\n\n{limits}")
        parts.append(f"Needs: {', '.join(f'`{need}`' for need in self.needs) or 'nothing'}.")
        if self.follows:
            parts.append(f"May follow from: {', '.join(f'`{cause}`' for cause in self.follows)}.")
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def page_of(detector: Detector) -> Page:
    """The page of one detector."""
    docstring = inspect.getdoc(type(detector)) or ""
    title, _, body = docstring.partition("\n\n")
    return Page(
        id=detector.id,
        title=" ".join(title.split()),
        body=_with_headings(body),
        needs=tuple(detector.needs),
        follows=tuple(detector.follows),
        limits=_limits(detector),
    )


def pages() -> dict[str, Page]:
    """The pages of all detectors that come with Seismograd, by id."""
    return {page.id: page for page in sorted(map(page_of, DEFAULT), key=lambda page: page.id)}


def _limits(detector: Detector) -> dict[str, Any]:
    if not is_dataclass(detector):
        return {}
    return {field.name: getattr(detector, field.name, MISSING) for field in fields(detector)}


def _with_headings(body: str) -> str:
    lines = []
    for line in body.splitlines():
        heading = _HEADING.match(line)
        lines.append(f"\n## {heading[1]}\n\n{heading[2]}" if heading else line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
