"""HTML that cannot be broken by what is put into it: a text is escaped unless it is HTML already."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

from seismograd.records import strict

_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that no page may hold, or that turn the text around them: they are spelled out."""

_CODE = re.compile(r"`([^`\n]+)`")
_EMPTY = frozenset(("br", "circle", "img", "line", "meta", "path", "polygon", "rect"))


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """The text as HTML shows it: nothing of it is markup, nor in a quoted attribute."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(_UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `cls` is `class`, `data_x` is `data-x`; an attribute that is `None` or `False` is left out."""
    told = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = "class" if key == "cls" else key.replace("_", "-")
        told.append(label if value is True else f'{label}="{escape(value)}"')
    if name in _EMPTY:
        return Html(f"<{' '.join(told)} />")
    return Html(f"<{' '.join(told)}>{joined(children)}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """The parts one after another; what is `None` is left out."""
    return Html(escape(between).join(escape(part) for part in parts if part is not None))


def prose(text: str) -> Html:
    """A sentence of ours or of a finding's: what stands in backticks is code."""
    pieces = _CODE.split(text)
    return joined(tag("code", piece) if at % 2 else piece for at, piece in enumerate(pieces))


def data(value: Any, **attributes: object) -> Html:
    """Plain values for the page's script, as strict JSON that cannot end its element."""
    text = json.dumps(strict(value), separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return tag("script", Html(text), type="application/json", **attributes)
