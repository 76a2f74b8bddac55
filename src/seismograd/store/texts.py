"""JSON in the store: strict, with NaN and infinities as words."""

from __future__ import annotations

import json
import re
from typing import Any

from seismograd.records import strict
from seismograd.store.blobs import DamagedError

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""A NUL as JSON has it; behind a backslash it is text, as in a line of code that is told."""


def to_json(value: Any) -> str:
    """`value` as JSON that any database and any browser reads."""
    text = json.dumps(strict(value), allow_nan=False, separators=(",", ":"))
    return _NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text)


def from_json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise DamagedError(f"it has JSON that cannot be read: {error}") from None


def plain(text: str) -> str:
    """`text` without what a database refuses: NUL, and halves of characters."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
