"""What the detectors of the loop's order share: whose turn it was, where, and how to say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seismograd.records import Where


def whose(facts: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence that says which optimizer it is, where there are several."""
    return {"optimizer": told["kind"], **({"series": told["optimizer"]} if facts["several"] else {})}


def named(facts: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """`the optimizer`, or `optimizer 1 (Adam)`."""
    return f"optimizer {told['optimizer']} ({told['kind']})" if facts["several"] else "the optimizer"


def at(told: Mapping[str, Any], *what: str) -> Where:
    """The user's line that does the first of these that was seen."""
    for one in what:
        place = told.get("places", {}).get(one)
        if place:
            return Where(phase=_PHASES.get(one, one), file=place["file"], line=place["line"], code=place["code"])
    return Where()


def scheduled(facts: Mapping[str, Any], told: Mapping[str, Any]) -> Where:
    """The line that steps the scheduler. Where a framework does that, and all else, from one line of the user's, it is
    the line that made the scheduler."""
    known = told.get("places", {})
    place = known.get("scheduler")
    if place and place == known.get("step") and place in (known.get("backward"), known.get("framework")):
        ours = [each for each in facts["schedules"] if each["optimizer"] == told["optimizer"]]
        made = next((each["made"] for each in ours if each.get("made")), None)
        if made:
            return Where(phase="optimizer", file=made["file"], line=made["line"], code=made["code"])
    return at(told, "scheduler")


_PHASES = {"step": "optimizer", "zero_grad": "optimizer", "clip": "optimizer", "scheduler": "optimizer"}


def in_words(order: list[str]) -> str:
    """The order as it is written in a message."""
    return ", ".join(f"`{_WORDS.get(one, one)}`" for one in order)


_WORDS = {
    "backward": "backward()",
    "step": "step()",
    "zero_grad": "zero_grad()",
    "clip": "clip_grad",
    "unscale": "unscale_()",
    "scheduler": "scheduler.step()",
}
