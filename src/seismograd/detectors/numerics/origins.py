"""From the origin of a value that is not finite to what its finding says: id, place, sentence, evidence, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seismograd.detectors.numerics.patterns import Account, account_of, spoken
from seismograd.detectors.numerics.patterns.elsewhere import place
from seismograd.detectors.wording import number
from seismograd.records import Operand, Origin, Reading, Where, strict

FINDINGS = {
    "input": "nonfinite-input",
    "optimizer": "nonfinite-parameter",
    "forward": "nonfinite-activation",
    "loss": "nonfinite-loss",
    "backward": "nonfinite-gradient",
}
"""The finding that each phase belongs to."""

UPSTREAM = ("lr-too-high", "lr-jump", "bad-initialization", "loss-explosion", "gradient-explosion")
"""Faults of finite numbers that end in numbers which are not."""

_SHOWN = 5
"""Indices and inputs in the evidence: the first few say enough."""

_NOT_OURS = frozenset({"because", "series", "run", "limit"})
"""Names in the evidence that mean something to judge and reports: no fact may take them."""


def own(detector: str, reading: Reading) -> Origin | None:
    """The origin of this reading, if it is the one that this detector has to tell of."""
    origin = reading.origin
    return origin if origin is not None and FINDINGS.get(origin.phase) == detector else None


def told(
    origin: Origin, said: str, advice: Sequence[str] = (), step: int | None = None
) -> tuple[str, dict[str, Any], list[str], Where]:
    """Message, evidence, recommendations and place of the finding whose origin it is.

    `said` is the first sentence without its full stop: what happened at which step; empty, and the message is only
    why. `advice` is what helps whatever the origin is.
    """
    account = account_of(origin, step)
    why = _with_doubt(account.why, origin)
    message = f"{said}. {_capital(why, origin)}." if said else f"{why}."
    return message, evidence_of(origin, account), [*account.advice, *advice], place_of(origin)


def following(detector: str, reading: Reading, advice: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What the origin adds to a finding that it does not belong to: its cause in the evidence, other advice.

    Where the origin could not be found out, the note that says why is in the evidence, and the last advice.
    """
    origin = reading.origin
    if origin is None or FINDINGS.get(origin.phase) == detector:
        return {}, advice
    cause = FINDINGS.get(origin.phase)
    if cause is not None:
        return {"because": cause}, [f"It follows from `{cause}` of this step: mend that."]
    note = _sentence(origin.note or "Where it began could not be found out")
    kept = {name: origin.facts[name] for name in ("capture", "capture_note") if name in origin.facts}
    return {"note": note, **kept}, [*advice, note]


def place_of(origin: Origin) -> Where:
    """The place as a finding names it: in backward with the op of the forward pass, whose line it is."""
    where = origin.where
    return replace(where, op=origin.forward_op or where.op, phase=origin.phase or where.phase)


def evidence_of(origin: Origin, account: Account | None = None) -> dict[str, Any]:
    """What is known of it, ready for JSON. `origin` is the phase: findings without it have no such evidence.

    `because` is None where it needs no other fault to explain it: the judge then looks for no cause.
    """
    account = account or account_of(origin)
    evidence: dict[str, Any] = {name: _plain(fact) for name, fact in origin.facts.items() if name not in _NOT_OURS}
    evidence |= {"origin": origin.phase, "pattern": account.pattern or "unknown", "value": float(origin.value)}
    known: dict[str, Any] = {
        "op": origin.where.op,
        "forward_op": origin.forward_op,
        "bad": origin.bad,
        "size": origin.size,
        "shape": list(origin.shape),
        "dtype": origin.dtype,
        "index": [list(index) for index in origin.index[:_SHOWN]],
        "first_bad": first_bad(origin),
        "inputs": [_short(each) for each in origin.inputs[:_SHOWN]],
        "arguments": _plain(origin.arguments),
        "columns": list(origin.columns) if origin.columns else None,
        "note": _sentence(origin.note) if origin.note else None,
    }
    evidence |= {name: value for name, value in known.items() if value not in (None, "", [], {}, 0)}
    if not origin.sure:
        evidence["sure"] = False
    if account.alone:
        evidence["because"] = None
    return evidence


def made(origin: Origin) -> str:
    """What happened, without the step: ``` `log` in `head` made -Inf in 14 of 512 values ```."""
    op, module = spoken(origin.where.op), origin.where.module
    inside = f"`{module}`" if module else "the model" if module == "" else ""
    if op:
        who = f"`{op}` in {inside} made" if inside else f"`{op}` made"
    else:
        who = f"{inside} returned" if inside else "the forward pass made"
    many = f" in {origin.bad:,} of {origin.size:,} values" if origin.size > 1 and origin.bad else ""
    return f"{who} {number(origin.value)}{many}"


def moment(origin: Origin) -> str:
    """Which call or micro-batch of the step it was: `, in micro-batch 2 of 4`, ``, at the 37th call of `tanh` ``."""
    facts, parts = origin.facts, []
    for name, word in (("micro_batch", "micro-batch"), ("call", "call")):
        at, of = facts.get(name), facts.get(f"{name}es" if name == "micro_batch" else f"{name}s")
        if isinstance(at, int) and isinstance(of, int) and of > 1:
            parts.append(f", in {word} {at} of {of}")
    before = facts.get("time_step")
    if isinstance(before, int) and before > 0:
        op = spoken(origin.forward_op or origin.where.op)
        parts.append(f", at the {_ordinal(before + 1)} call" + (f" of `{op}`" if op else ""))
    return "".join(parts)


def first_bad(origin: Origin) -> str:
    """Where the first bad element is, and how many more there are: `sample 3, feature 17 [3, 17] (and 13 more)`."""
    if not origin.index or not origin.index[0]:
        return ""
    index = origin.index[0]
    named = "element"
    if _by_sample(origin):
        named = place(index) if len(index) < 3 else f"sample {index[0]}"
    more = f" (and {origin.bad - 1:,} more)" if origin.bad > 1 else ""
    return f"{named} {list(index)}{more}"


def _by_sample(origin: Origin) -> bool:
    """Whether the first axis is that of samples: not in a weight, nor in the gradient of one."""
    if origin.phase == "optimizer" or origin.facts.get("sample_axis", 0) != 0:
        return False
    return not any(each.parameter and each.shape == origin.shape for each in origin.inputs)


def _short(operand: Operand) -> dict[str, Any]:
    """An input in few words: counts of nothing are left out."""
    always = {"name": operand.name, "shape": list(operand.shape), "dtype": operand.dtype.removeprefix("torch.")}
    rest = ("low", "high", "size", "zeros", "negatives", "nan", "inf", "parameter")
    values = {name: getattr(operand, name) for name in rest}
    kept = {name: value for name, value in values.items() if value or (name in {"low", "high"} and value is not None)}
    return {**always, **kept}


def _plain(value: Any) -> Any:
    """`value` with containers and scalars that JSON has; floats stay floats, as elsewhere in the evidence."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) and value >= 2**63:  # a negative number, as autograd keeps it
        return value - 2**64
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return strict(value)


def _with_doubt(why: str, origin: Origin) -> str:
    if origin.sure:
        return why
    return f"{why} (unsure: {origin.note.rstrip('. ')})" if origin.note else f"{why} (unsure)"


def _capital(text: str, origin: Origin) -> str:
    """With a capital, unless it begins with the name of the op."""
    named = {spoken(op) for op in (origin.where.op, origin.forward_op)}
    return text if text.split(maxsplit=1)[0].strip(";:,") in named else text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _ordinal(at: int) -> str:
    tail = "th" if 10 <= at % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(at % 10, "th")
    return f"{at}{tail}"
