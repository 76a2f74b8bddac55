"""How values go bad: one small function for each way, looked through in order until one fits.

To add one: a function from `Case` to `Account` (None if it does not fit), and a line in the table of its file.
"""

from __future__ import annotations

from dataclasses import replace

from seismograd.detectors.numerics.patterns import backward, elsewhere, forward, overflow
from seismograd.detectors.numerics.patterns.case import (
    Account,
    Case,
    Pattern,
    first_that_fits,
    ranges,
    short,
    span,
    spoken,
)
from seismograd.detectors.wording import number
from seismograd.records import Origin


def unknown(case: Case) -> Account:
    """What can be said of an op that no pattern knows."""
    op = f"`{case.name}`" if case.op else "it"
    inputs = ranges(case.operands)
    if case.backward:
        grad = (
            span(case.grad, "gradient")
            .replace("gradients go", "gradient goes")
            .replace("gradients are all", "gradient is")
        )
        known = "; ".join(part for part in (f"in forward it was given {inputs}" if inputs else "", grad) if part)
        what = f"the derivative of {op} is not finite at these inputs" if case.op else "backward made it"
        return Account(
            what + (f"; {known}" if known else ""),
            (
                f"Look at what goes into {op} there: zeros, negative and very large values are where derivatives"
                " break; clamp it, or compute it in float32.",
            ),
            alone=False,
        )
    if not case.op:
        return Account(
            "which op made it is not known",
            ("Look inside this module for log, sqrt, division and exp, and at the range of what goes in.",),
            alone=False,
        )
    held = [each for each in case.operands if each.nan or each.inf]
    if held:
        told = ", ".join(f"{each.name} holds {each.nan + each.inf:,} of {each.size:,}" for each in held[:3])
        why = f"{op} was given values that are not finite: {told}"
    else:
        why = f"{op} made {number(case.origin.value)} out of finite inputs" + (f": {inputs}" if inputs else "")
    return Account(
        why,
        (f"Look at what goes into {op} there, and bound it, or compute it in float32 or float64.",),
        alone=False,
    )


FORWARD: tuple[Pattern, ...] = (
    *forward.PATTERNS,
    overflow.EXPONENTIAL,
    overflow.NARROWED,
    overflow.BLOWN_WEIGHTS,
    overflow.OVERFLOW,
)
BACKWARD: tuple[Pattern, ...] = backward.PATTERNS


def account_of(origin: Origin, step: int | None = None) -> Account:
    """Why the value went bad (at `step`) and what to do, by the first pattern that fits."""
    if origin.phase == "input":
        return replace(elsewhere.batch(origin), pattern="bad-batch")
    if origin.phase == "optimizer":
        return elsewhere.update(origin)
    case = Case.of(origin, step)
    account = first_that_fits(BACKWARD if case.backward else FORWARD, case) or unknown(case)
    function = origin.facts.get("function")
    return _in_function(account, case, str(function), origin.phase) if function else account


def _in_function(account: Account, case: Case, function: str, phase: str) -> Account:
    """The same, said of the user's own autograd Function."""
    half = "backward" if phase == "backward" else "forward"
    if account.pattern:
        why = f"in the {half} of the autograd Function `{function}`, {account.why}"
    else:
        ran = f" in `{case.name}`" if case.op and case.op != function else ""
        why = f"the {half} of the autograd Function `{function}` made {number(case.origin.value)}{ran}"
        inputs = ranges(case.operands)
        why += f"; it was given {inputs}" if inputs else ""
    advice = f"Test `{function}` with `torch.autograd.gradcheck` in float64 at inputs like these."
    general = account.advice if account.pattern else ()
    return Account(why, (*general, advice), True, account.pattern or "custom-function")


__all__ = ["BACKWARD", "FORWARD", "Account", "Case", "Pattern", "account_of", "short", "spoken"]
