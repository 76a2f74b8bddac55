"""How a container that grows is told of, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seismograd.amounts import size

_FAR = 10_000_000
"""A limit that is further away than so many steps is not counted down to."""


def reaches(slope: float, limit: float, left: float) -> str:
    """When there will be no memory left."""
    if slope <= 0 or not limit:
        return ""
    steps = left / slope
    if steps > _FAR:
        return f" The limit of {size(limit)} is far away at this rate."
    return f" At this rate the limit of {size(limit)} is reached in about {float(f'{steps:.2g}'):,.0f} steps."


def the_holder(each: Mapping[str, Any], why: str) -> str:
    """One sentence: what, where, what it holds, how fast it grows."""
    place = f" in {each['file']}:{each['line']}" if each["line"] else f" in {each['file']}" if each["file"] else ""
    name, count, slope = each["name"], each["count"], each["rate"] * each["each"]
    if why == "hooks":
        return (
            f"`{name}` has {count:,} hooks, one more with each `{each['scope']}`{place}, "
            f"{_number(each['rate'])} a step: none is ever removed, and each runs at every call."
        )
    if why == "threads":
        return f"{count:,} threads are alive, {_number(each['rate'])} more with each step{place}: none of them ends."
    kind = {"cache": "cache of", "tensor": "tensor", "array": "array"}.get(each["kind"], each["kind"])
    head = f"{kind[0].upper()}{kind[1:]} `{name}`{place}, {each['scope']},"
    pace = f"it grows by {_number(each['rate'])} a step, {size(slope)}"
    if each["kind"] in ("tensor", "array"):
        return f"{head} has {count:,} elements and {pace.replace(' a step', ' elements a step')}."
    unread = ", and nothing reads it" if why == "unread" else ""
    return f"{head} holds {count:,} {_items(each)}; {pace}{unread}."


def groups(alive: Sequence[Mapping[str, Any]], show: int = 3) -> str:
    """The live tensors that take most: `46 of [8, 64] float32, 92 kB (46 in history)`."""
    told = []
    for group in alive[:show]:
        held = sorted(group["held"].items(), key=lambda each: -each[1])[:show]
        who = ", ".join(f"{count:,} in {name}" for name, count in held)
        told.append(f"{group['count']:,} of {group['shape']} {group['dtype']}, {size(group['bytes'])} ({who})")
    return "; ".join(told)


def _items(each: Mapping[str, Any]) -> str:
    holds, inside = each["holds"], each["tensors"]
    if holds == "exceptions":
        return "exceptions, which keep the locals of where they were raised"
    if holds == "tensors":
        what = "tensors" if inside <= 1 else f"items with {_number(inside)} tensors each"
        return f"{what} that keep their graphs" if each["graphs"] else what
    if each["graphs"]:
        return f"{holds} whose tensors keep their graphs"
    if each["by_tensors"]:
        return "results under keys that are tensors and so are never found again"
    return str(holds)


def _number(value: float) -> str:
    return f"{value:.3g}"


def advice(each: Mapping[str, Any], why: str) -> tuple[str, ...]:
    """What to do, for the kind that was found."""
    name, value = each["name"], each["value"]
    if why == "hooks":
        return (
            f"Register the hook once, before the loop; or keep what `{each['scope']}` returns, `handle`, and call "
            "`handle.remove()` when it has done its work.",
        )
    if why == "threads":
        return ("Start one thread before the loop and hand it work through a queue, or join each one.",)
    if each["holds"] == "exceptions":
        return (
            "Keep what they say, `str(error)`: an exception keeps its traceback, and that every local of the "
            "functions that it passed through, with their graphs.",
        )
    if why == "keys":
        return (
            f"A tensor is equal only to itself, so `{name}` never finds one again: cache by a number or a string.",
            "Bound it all the same: `@lru_cache(maxsize=128)`.",
        )
    first = _instead(each, value)
    if "default argument" in each["scope"]:
        return (first, f"A default argument is made once and lives as long as the function: `{name}=None`, and a new "
                "one inside.")  # fmt: skip
    if each["kind"] == "cache":
        return (f"Bound the cache of `{name}`: `@lru_cache(maxsize=128)`.",)
    bounded = f"`deque(maxlen=1000)` for `{name}`" if each["kind"] in ("list", "deque") else "let go of the oldest"
    return (first, f"If they are needed, bound them ({bounded}), or write them to disk.")


def _instead(each: Mapping[str, Any], value: str) -> str:
    what = value if value and value.replace(".", "").replace("_", "").isalnum() else None
    if each["graphs"] and each["numel"] == 1:
        put = f"`{what}.item()`" if what else "numbers (`.item()`)"
        verb = "Append" if each["how"] in ("append", "appendleft") else "Keep"
        return f"{verb} {put}{f' instead of `{what}`' if what else ''}: a number keeps no graph."
    if each["graphs"]:
        put = f"`{what}.detach()`" if what else "`.detach()`ed tensors"
        more = " (and `.cpu()`, to leave the accelerator's memory)" if each["device"] not in ("", "cpu") else ""
        return f"Keep {put}{more}{f' instead of `{what}`' if what else ''}: without its graph it is only its values."
    if each["kind"] in ("tensor", "array"):
        return f"Keep only the part that is used, or a running mean, instead of joining more to `{each['name']}`."
    return "Keep only what is used later: a number, a running mean, the newest few."
