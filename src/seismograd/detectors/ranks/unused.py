"""What `unused-parameter` says of `DistributedDataParallel`, which waits for the gradient of every parameter."""

from __future__ import annotations

from seismograd.detectors.ranks.facts import LISTED, count, mapping, words
from seismograd.detectors.wording import found, names, parameter
from seismograd.protocols import Detector
from seismograd.records import Finding, Reading, Severity, Where

_FLAG = "`DistributedDataParallel(model, find_unused_parameters=True)`"


def stops(detector: Detector, reading: Reading) -> Finding | None:
    """The error that it raises when a parameter had no gradient."""
    facts = reading.facts["ddp"]
    unused, gone = words(facts.get("unused")), count(facts.get("gone"))
    if not unused and not facts.get("message"):
        return None
    one = len(unused) == 1
    which = names(unused) if unused else "a parameter"
    message = (
        f"`DistributedDataParallel` stops the training: {which} had no gradient in the last backward, and it waits for"
        f" that of every parameter on every rank: {'it has' if one or not unused else 'they have'} no part in the loss."
    )
    evidence = {"unused": unused[:LISTED], "parameters": max(len(unused), count(facts.get("count"))), "limit": 0}
    if gone and not unused:
        message = (
            f"`DistributedDataParallel` stops the training: it waits for the gradients of {gone} parameters that are"
            " no longer in the model. They were replaced after the model was wrapped, and what took their place is"
            " unknown to it: nothing averages that."
        )
        evidence["parameters"] = gone
    if facts.get("message"):
        evidence["error"] = str(facts["message"])[:500]
    advice = [
        f"If {'it is' if one else 'they are'} to be trained, use what {'it makes' if one else 'they make'} in the loss;"
        " if not, delete the module, or `requires_grad_(False)` before the model is wrapped.",
        f"If it depends on the batch, {_FLAG}: it then looks through the graph at each step.",
    ]
    if gone and not unused:
        advice = [
            "Make the model whole before it is wrapped: a new head, `model.fc = ...`, belongs before"
            " `DistributedDataParallel(model)`; then make the optimizer from the wrapped model's parameters."
        ]
    where = parameter(unused[0], "backward") if unused else Where(phase="backward")
    return found(detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)


def searched(detector: Detector, reading: Reading, limit: int) -> Finding | None:
    """It looks for unused parameters at each step, and there are none."""
    told = mapping(reading.facts["ranks"], "unused")
    steps = count(told.get("steps"))
    if not told.get("find_unused") or told.get("never") or told.get("at_times") or steps < limit:
        return None
    if mapping(reading.facts["ranks"], "signs").keys() & {"ungraded", "graded_otherwise"}:
        return None
    message = (
        f"`find_unused_parameters=True`, and in {steps:,} passes every parameter had its gradient:"
        " `DistributedDataParallel` walks over the whole graph after each forward pass for nothing."
    )
    evidence = {"steps": steps, "limit": limit}
    advice = [
        "Leave `find_unused_parameters=True` out, unless a part of the model is used only for some batches. Hugging"
        " Face's `Trainer` sets it by itself: `TrainingArguments(ddp_find_unused_parameters=False)`."
    ]
    return found(detector, reading, Severity.INFO, message, evidence, advice=advice, where=Where(phase="forward"))
