"""The user's line that calls backward, as a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seismograd.records import Where


def backward_line(facts: Mapping[str, Any], *, parameter: str | None = None, module: str | None = None) -> Where:
    """Where backward is called, together with the parameter or module that it is about."""
    line = facts.get("line") or {}
    if parameter is not None and module is None:
        module = parameter.rpartition(".")[0] or None
    return Where(
        module=module,
        parameter=parameter,
        phase="backward",
        file=line.get("file"),
        line=line.get("line"),
        code=line.get("code"),
    )
