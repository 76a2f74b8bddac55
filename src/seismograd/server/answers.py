"""Answers in strict JSON."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response

from seismograd.records import strict


def written(value: Any) -> bytes:
    """`value` as strict JSON: a number that is none becomes "NaN", "Infinity" or "-Infinity"."""
    try:
        return to_json(value, inf_nan_mode="strings", fallback=strict)
    except (PydanticSerializationError, ValueError):  # half a surrogate pair has no UTF-8
        return json.dumps(strict(value), separators=(",", ":"), allow_nan=False).encode()


class Answer(Response):
    """Some strict JSON. Arrays may be NumPy's."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return written(content)
