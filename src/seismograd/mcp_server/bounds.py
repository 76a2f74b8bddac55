"""How much a model is told at once: texts, lists and whole answers are cut to size, and say so."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from seismograd.records import strict

MOST = 24_000
"""Characters of an answer's data."""
TEXT = 6_000
"""Characters of its text."""
KEYS = 24
"""Of a mapping: more than any of our own shapes has."""
_LINE = 500
_DOTS = "\N{HORIZONTAL ELLIPSIS}"
_STEPS = ((2000, 200), (800, 60), (400, 25), (160, 10), (80, 4), (40, 1))
"""The longest text and list that are kept, tried one after another until the answer is small enough."""


def bounded(data: Mapping[str, Any], most: int = MOST) -> tuple[dict[str, Any], bool]:
    """The data as strict JSON of at most so many characters, and whether something had to be left out."""
    whole: dict[str, Any] = strict(dict(data))
    for longest, items in _STEPS:
        cut, left_out = _cut(whole, longest, items)
        if _length(cut) <= most:
            return cut, left_out
    return cut, True


def clipped(text: str, most: int = TEXT) -> str:
    """The text, cut where it or a line of it is too long; the cut is told."""
    text = "\n".join(line if len(line) <= _LINE else line[: _LINE - 1] + _DOTS for line in text.split("\n"))
    if len(text) <= most:
        return text
    told = f"\n[cut here: {len(text) - most:,} more characters]"
    return text[: most - len(told)] + told


def rounded(value: float) -> float:
    """Six digits are what a model can use; what is not finite stays as it is."""
    return float(f"{value:.6g}") if math.isfinite(value) else value


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _cut(value: Any, longest: int, items: int) -> tuple[Any, bool]:
    if isinstance(value, str):
        return (value, False) if len(value) <= longest else (value[: longest - 1] + _DOTS, True)
    if isinstance(value, dict):
        pairs = [(str(key)[:longest], _cut(item, longest, items)) for key, item in list(value.items())[:KEYS]]
        return {key: item for key, (item, _) in pairs}, len(value) > KEYS or any(cut for _, (_, cut) in pairs)
    if isinstance(value, list):
        kept = [_cut(item, longest, items) for item in value[:items]]
        return [item for item, _ in kept], len(value) > items or any(cut for _, cut in kept)
    return value, False
