"""The ranks of a run as a small table for the terminal: the gravest, and what the others have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from seismograd.amounts import duration, number
from seismograd.quiet_rich import Text
from seismograd.reports.ranks import Side, counted, gravest_first, number_of
from seismograd.reports.words import ended_by

SHOWN = 8
"""So many ranks have a line of their own."""

_STYLES = {
    "healthy": "green",
    "warning": "yellow",
    "critical": "bold red",
    "crashed": "bold red",
    "live": "bold cyan",
    "lost": "red",
}
_RIGHT = ("rank", "steps", "loss", "a step")
_DROPPED = ("overhead", "host", "a step", "loss", "steps", "state")
"""In this order, where there is no room."""


def rank_lines(ranks: Sequence[Side], width: int, most: int = SHOWN) -> list[Text]:
    """A heading and a line for each rank; of more than `most` only for the gravest, and one for the rest."""
    if len(ranks) < 2 or most < 1:
        return []
    chosen = list(ranks) if len(ranks) <= most + 1 else sorted(gravest_first(ranks)[:most], key=_number)
    rows = [_cells(side) for side in chosen]
    columns = [name for name in rows[0] if any(row[name].plain for row in rows)]
    for name, several in (("host", _differ(ranks, "host")), ("attempt", _differ(ranks, "attempt"))):
        if not several and name in columns:
            columns.remove(name)
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in columns}
    for name in _DROPPED:
        longer = max(0, widths.get("findings", 0) - width // 3)  # of a long exception the end is cut, not all else
        if sum(widths.values()) + 2 * len(widths) - longer > width and name in widths:
            del widths[name]
    lines = [_line({name: Text(name, "bold") for name in widths}, widths)]
    lines += [_line(row, widths) for row in rows]
    if len(chosen) < len(ranks):
        named = {side["rank"] for side in chosen}
        lines.append(Text(_rest([side for side in ranks if side["rank"] not in named]), "dim"))
    for line in lines:
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
    return lines


def _number(side: Side) -> int:
    return int(side["rank"])


def _differ(ranks: Iterable[Side], name: str) -> bool:
    return len({side.get(name) for side in ranks}) > 1


def _cells(side: Side) -> dict[str, Text]:
    status, life = str(side.get("status") or "healthy"), side.get("life")
    found = counted(side.get("findings") or {})
    ending = ended_by({"exit": side.get("exit") or {}})
    told = ", ".join([*([found] if found else []), *ending])
    state = str(life) if life in ("live", "lost") else ""
    return {
        "rank": Text(str(side["rank"])),
        "host": Text(_printed(side.get("host"))),
        "attempt": Text(str(side.get("attempt") or 0)),
        "steps": Text(f"{side.get('steps') or 0:,}"),
        "status": Text(status, _STYLES.get(status, "")),
        "state": Text(state, _STYLES.get(state, "")),
        "loss": Text(_value(side.get("loss"))),
        "a step": Text(_time(side.get("seconds"))),
        "overhead": Text(_share(side.get("overhead"))),
        "findings": Text(_printed(told)),
    }


def _line(cells: dict[str, Text], widths: dict[str, int]) -> Text:
    line = Text()
    for name, width in widths.items():
        cell = cells[name].copy()
        room = " " * max(0, width - cell.cell_len)
        line += Text("  ") + (Text(room) + cell if name in _RIGHT else cell + Text(room))
    return line


def _rest(others: Sequence[Side]) -> str:
    """What those that have no line are like, from the lowest to the highest."""
    kinds: dict[str, int] = {}
    for side in others:
        kinds[str(side.get("status") or "healthy")] = kinds.get(str(side.get("status") or "healthy"), 0) + 1
    parts = [f"{count:,} {status}" if len(kinds) > 1 else status for status, count in kinds.items()]
    parts.append(f"{_span([side.get('steps') or 0 for side in others], '{:,.0f}'.format)} steps")
    losses = [side.get("loss") for side in others]
    if any(value is not None for value in losses):
        parts.append(f"loss {_span(losses, number)}")
    times = [side.get("seconds") for side in others]
    if any(value is not None for value in times):
        parts.append(f"{_span(times, duration)} a step")
    return f"  and {len(others):,} more: {', '.join(parts)}"


def _span(values: Iterable[Any], written: Any) -> str:
    numbers = [each for each in map(number_of, values) if each is not None]
    finite = [each for each in numbers if math.isfinite(each)]
    if not finite:
        return "not finite"
    told = list(dict.fromkeys((written(min(finite)), written(max(finite)))))
    bad = len(numbers) - len(finite)
    return " to ".join(told) + (f" ({bad:,} not finite)" if bad else "")


def _value(value: Any) -> str:
    found = number_of(value)
    return "" if found is None else number(found)


def _time(value: Any) -> str:
    found = number_of(value)
    return "" if found is None or not math.isfinite(found) else duration(found)


def _share(value: Any) -> str:
    found = number_of(value.get("measured") if isinstance(value, dict) else value)
    return "" if found is None or not math.isfinite(found) else f"{found:.1%}"


def _printed(value: Any) -> str:
    """In one line, without what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(value or "").split()))
