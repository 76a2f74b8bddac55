"""Patterns of what no op made: the batch, and the optimizer's update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seismograd.detectors.numerics.patterns.case import LARGEST, Account
from seismograd.detectors.wording import number
from seismograd.records import Origin


def batch(origin: Origin) -> Account:
    """NaN or Inf that came with the data."""
    facts = origin.facts
    argument = str(facts.get("argument") or "the batch")
    samples, total = facts.get("samples"), facts.get("of_samples")
    word = number(origin.value)
    if isinstance(samples, int) and isinstance(total, int):
        verb = "holds" if samples == 1 else "hold"
        why = f"{samples:,} of {total:,} samples of the batch {verb} {word}"
    else:
        many = f" in {origin.bad:,} of {origin.size:,} values" if origin.size > 1 else ""
        why = (
            f"{argument} of the batch holds {word}{many}"
            if argument != "the batch"
            else f"{argument} holds {word}{many}"
        )
    if origin.index:
        why += f"; the first is {place(origin.index[0])} of {argument}"
    clean = "Look at those samples, and leave them out or mend them in the Dataset: `torch.isfinite(x).all()`."
    scale = (
        "If features are divided by their standard deviation, a constant feature divides by 0: use"
        " `std.clamp_min(1e-8)`."
    )
    every = isinstance(samples, int) and samples == total and samples > 1
    advice = [scale, clean] if every else [clean, scale]
    if every:
        advice[0] = "Every sample has it, so it is made on the way, not in the data. " + advice[0]
    if "target" in argument or "label" in argument:
        advice.append("A target that is missing should not count: mask its term of the loss, or drop the sample.")
    dtype = (origin.dtype or "").removeprefix("torch.")
    if word != "NaN" and dtype == "float16":
        advice.append(f"Values above {LARGEST[dtype]:g} are Inf in float16: cast to half after scaling them down.")
    return Account(why, tuple(advice))


def place(index: tuple[int, ...]) -> str:
    """`sample 5, feature 2`, or the whole index where there are more axes."""
    if not index:
        return "the only value"
    if len(index) == 1:
        return f"sample {index[0]}"
    if len(index) == 2:
        return f"sample {index[0]}, feature {index[1]}"
    return f"sample {index[0]} at {list(index)}"


def _rate(facts: dict[str, Any]) -> str:
    lr = facts.get("lr")
    return number(float(lr)) if isinstance(lr, (int, float)) else "unknown"


def _state(facts: dict[str, Any]) -> str:
    entries = facts.get("state")
    if isinstance(entries, str):
        return f"`{entries}`"
    return ", ".join(f"`{name}`" for name in entries) if entries else "its entries"


def _gradient(facts: dict[str, Any]) -> str:
    norm = facts.get("gradient")
    return f"a gradient of norm {number(float(norm))}" if isinstance(norm, (int, float)) else "a finite gradient"


Made = Callable[[dict[str, Any]], Account]


def _lr_not_finite(facts: dict[str, Any]) -> Account:
    return Account(
        f"the learning rate was {_rate(facts)}",
        (
            "Look at the schedule: a warm-up or a decay over 0 steps divides by zero; print `scheduler.get_last_lr()`.",
            "If the learning rate follows from the loss or a norm, guard that division.",
        ),
    )


def _state_not_finite(facts: dict[str, Any]) -> Account:
    return Account(
        f"the optimizer's state was not finite before it ({_state(facts)}), while the gradient was finite",
        (
            "The state keeps what an earlier bad gradient left there, for ever: clear it"
            " (`optimizer.state.clear()`) or load it from a checkpoint of before.",
            "Skip steps whose gradient norm is not finite, so that it cannot get in.",
        ),
        alone=False,
    )


def _eps(facts: dict[str, Any]) -> Account:
    eps = facts.get("eps")
    known = f"eps is {number(float(eps))}" if isinstance(eps, (int, float)) else "eps is 0"
    return Account(
        f"{known}, so that where the gradient has always been 0 the update is 0 / 0",
        (
            "Give the optimizer an epsilon: `eps=1e-8`, and `eps=1e-4` for float16 weights, in which 1e-8 is 0.",
            "Or keep the weights in float32.",
        ),
    )


def _overflow(facts: dict[str, Any]) -> Account:
    return Account(
        f"the update itself overflowed: {_gradient(facts)} at a learning rate of {_rate(facts)}",
        (
            "Lower the learning rate about 10 times, or warm it up.",
            "Clip gradients with `torch.nn.utils.clip_grad_norm_` before the step.",
        ),
        alone=False,
    )


def _bad_gradient(facts: dict[str, Any]) -> Account:
    return Account(
        "its gradient was not finite, and was stepped on",
        (
            "Mend what made the gradient, and skip steps whose gradient norm is not finite:"
            " `clip_grad_norm_(..., error_if_nonfinite=True)` raises on them.",
        ),
        alone=False,
    )


def _unknown(facts: dict[str, Any]) -> Account:
    return Account(
        "gradient, state and learning rate were finite",
        (
            "Look for code that writes weights itself: `.data`, `copy_` under `no_grad`, an average of weights,"
            " a loaded checkpoint, weight clipping or normalisation by zero.",
        ),
        alone=False,
    )


def _not_read(facts: dict[str, Any]) -> Account:
    return Account(
        "what made it was not seen",
        (
            "Run it again with every step read: `seismograd run --budget 0.9`, or `watch(..., budget=0.9)`.",
            "Until then, skip steps whose gradient norm is not finite, so that the weights survive.",
        ),
        alone=False,
    )


MADE_BY: dict[str, tuple[str, Made]] = {
    "lr not finite": ("learning-rate-not-finite", _lr_not_finite),
    "state not finite": ("state-not-finite", _state_not_finite),
    "eps 0": ("epsilon-zero", _eps),
    "update overflow": ("update-overflow", _overflow),
    "gradient not finite": ("gradient-stepped-on", _bad_gradient),
    "unknown": ("written-elsewhere", _unknown),
    "not read": ("in-a-step-not-read", _not_read),
}
"""What `facts["made_by"]` may say, the pattern's name, and what it says."""


def update(origin: Origin) -> Account:
    """A weight that an optimizer's step made bad."""
    facts = dict(origin.facts)
    name, made = MADE_BY.get(str(facts.get("made_by")), MADE_BY["unknown"])
    account = made(facts)
    who = facts.get("parameter") or origin.where.parameter
    whose = f"`{who}`" if who else "a weight"
    by = [str(facts["optimizer"])] if facts.get("optimizer") else []
    if isinstance(facts.get("lr"), (int, float)):
        by.append(f"lr {_rate(facts)}")
    means = f" ({', '.join(by)})" if by else ""
    if facts.get("made_by") == "not read":
        skipped = facts["not_read"]
        steps = "the one step" if skipped == 1 else f"one of the {skipped} steps"
        why = f"{whose} became {number(origin.value)} in {steps} after step {facts['step']} that the budget left unread"
    elif isinstance(facts.get("step"), int):
        why = f"the update of step {facts['step']}{means} made {whose} {number(origin.value)}: {account.why}"
    else:
        why = f"{whose} was {number(origin.value)} before the first update that was seen{means}"
        account = Account(why, ("Check the initialisation, and the checkpoint that was loaded.",), account.alone)
        name = "bad-from-the-start"
    return Account(why, account.advice, account.alone, name)
