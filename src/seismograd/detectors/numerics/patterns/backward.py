"""Patterns of the backward pass: derivatives that are infinite or undefined at what went into the op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from seismograd.detectors.numerics.patterns import forward, overflow
from seismograd.detectors.numerics.patterns.case import (
    Account,
    Case,
    Pattern,
    counted,
    first_that_fits,
    magnitude,
    ops,
    span,
)
from seismograd.detectors.wording import number
from seismograd.records import Operand


def _zeros(case: Case, x: Operand) -> str | None:
    return counted(x.zeros, x.size, "input", "exactly 0") if x.zeros else None


def _ends(case: Case, x: Operand) -> str | None:
    """At -1 or 1, or beyond."""
    reaches = x.low is not None and x.high is not None and (x.low <= -1 or x.high >= 1)
    return span(x) if reaches else None


def _lowest(at: float) -> Callable[[Case, Operand], str | None]:
    def met(case: Case, x: Operand) -> str | None:
        return span(x) if x.low is not None and x.low <= at else None

    return met


def _probability(case: Case, x: Operand) -> str | None:
    reaches = x.low is not None and x.high is not None and (x.low <= 0 or x.high >= 1)
    return span(x) if reaches else None


def _distance(case: Case, x: Operand) -> str | None:
    """Two points that are the same: neither input need be 0 for that."""
    return "two of the points are the same" if len(case.operands) > 1 or not x.zeros else _zeros(case, x)


def _vector(case: Case, x: Operand) -> str | None:
    """A vector that is zero in all its elements."""
    if not x.zeros:
        return None
    if x.zeros == x.size:
        return f"all {x.size:,} inputs are exactly 0" if x.size > 1 else "the input is exactly 0"
    return f"{x.zeros:,} of {x.size:,} inputs are exactly 0, so a whole vector may be"


def _equal(case: Case, x: Operand) -> str | None:
    if x.low is not None and x.low == x.high:
        return f"all of its {x.size:,} inputs are {number(x.low)}"
    return "the elements it is taken over are all equal"


def _both(case: Case, x: Operand) -> str | None:
    other = case.other
    if other is None or not (x.zeros and other.zeros):
        return None
    return f"{x.zeros:,} and {other.zeros:,} of {x.size:,} inputs are exactly 0"


def _fraction(case: Case, x: Operand) -> str | None:
    """A power below 1, at 0."""
    exponent, exponents = case.scalar("exponent"), case.operand("exponent")
    if exponent is None and exponents is not None:
        exponent = exponents.low
    return _zeros(case, x) if exponent is not None and exponent < 1 else None


@dataclass(frozen=True)
class Derivative:
    """Where the derivative of an op is infinite, how to see that it was met there, and how to stay away from it."""

    at: str
    met: Callable[[Case, Operand], str | None]
    cure: str
    """With `{e}` for an epsilon that the dtype can hold."""


_POINTS = "Keep equal points apart: leave out the diagonal, or compute `((a - b) ** 2).sum(-1).add({e}).sqrt()`."
_NORM = "Take the norm away from 0: `(x * x).sum(dim).add({e}).sqrt()`, or leave out vectors that are all zero."
_CLAMP = "Keep what goes in inside: `x.clamp(-1 + 1e-6, 1 - 1e-6)`."
_INSIDE = "Add the epsilon inside, not after it: `torch.{op}(x + {e})`."
_LOG = "Keep what goes in above 0: `torch.{op}(x.clamp_min({e}))`; for probabilities use `F.log_softmax` of the logits."

DERIVATIVES = {
    "sqrt": Derivative("at 0", _zeros, _INSIDE),
    "rsqrt": Derivative("at 0", _zeros, _INSIDE),
    "log": Derivative("at 0", _zeros, _LOG),
    "log2": Derivative("at 0", _zeros, _LOG),
    "log10": Derivative("at 0", _zeros, _LOG),
    "log1p": Derivative("at -1", _lowest(-1.0), "Keep what goes in above -1: `torch.log1p(x.clamp_min(-1 + 1e-6))`."),
    "pow": Derivative("at 0 for exponents below 1", _fraction, "Add the epsilon to the base: `(x + {e}) ** p`."),
    "float_power": Derivative(
        "at 0 for exponents below 1", _fraction, "Add the epsilon to the base: `(x + {e}) ** p`."
    ),
    "norm": Derivative("at 0", _vector, _NORM),
    "linalg_vector_norm": Derivative("at 0", _vector, _NORM),
    "linalg_norm": Derivative("at 0", _vector, _NORM),
    "linalg_matrix_norm": Derivative("at 0", _vector, _NORM),
    "frobenius_norm": Derivative("at 0", _vector, _NORM),
    "renorm": Derivative("at 0", _vector, _NORM),
    "hypot": Derivative("at 0, 0", _both, "Add an epsilon inside: `torch.sqrt(x * x + y * y + {e})`."),
    "atan2": Derivative(
        "at 0, 0", _both, "Move the inputs off the origin: `torch.atan2(y, x + {e})` where both are 0."
    ),
    "cdist": Derivative("at distance 0", _distance, _POINTS),
    "_cdist_forward": Derivative("at distance 0", _distance, _POINTS),
    "_euclidean_dist": Derivative("at distance 0", _distance, _POINTS),
    "pairwise_distance": Derivative("at distance 0", _distance, _POINTS),
    "_pdist_forward": Derivative("at distance 0", _distance, _POINTS),
    "dist": Derivative("at distance 0", _distance, _POINTS),
    "std": Derivative("at 0", _equal, "Take `torch.sqrt(x.var(...) + {e})`, whose derivative is finite."),
    "std_mean": Derivative("at 0", _equal, "Take `torch.sqrt(x.var(...) + {e})`, whose derivative is finite."),
    "acos": Derivative("at -1 and 1", _ends, _CLAMP + " `torch.atan2` of sine and cosine has no such place."),
    "asin": Derivative("at -1 and 1", _ends, _CLAMP + " `torch.atan2` of sine and cosine has no such place."),
    "atanh": Derivative("at -1 and 1", _ends, _CLAMP),
    "erfinv": Derivative("at -1 and 1", _ends, _CLAMP),
    "acosh": Derivative("at 1", _lowest(1.0), "Keep what goes in above 1: `x.clamp_min(1 + 1e-6)`."),
    "logit": Derivative("at 0 and 1", _probability, "`torch.logit(x, eps=1e-6)`, or keep the logits."),
}


def _singular(case: Case) -> tuple[str, str] | None:
    """What is wrong with the derivative at these inputs, and the cure; None if nothing is known to be."""
    known, x = DERIVATIVES.get(case.op), case.first
    if known is None:
        return None
    met = known.met(case, x) if x is not None else ""
    if met is None:
        return None
    cure = known.cure.replace("{e}", case.epsilon).replace("{op}", case.op)
    return f"{case.name} has an infinite derivative {known.at}" + (f"; {met}" if met else ""), cure


def _undefined(case: Case) -> Account | None:
    """What was already wrong with the op's value in forward, where something kept it from the loss."""
    return first_that_fits((*forward.PATTERNS, overflow.EXPONENTIAL), case.forward())


_REVEALING = ops("sqrt rsqrt log log2 log10 log1p acos asin atanh acosh exp exp2 expm1 sinh cosh")
"""Infinity times any other gradient is infinite: a NaN says that it was 0."""


_SAFE = (
    "Choose a safe input before the op, not only the result after it: `safe = torch.where(ok, x, 1.0);"
    " y = torch.where(ok, {call}(safe), 0.0)`."
)


def _call(case: Case) -> str:
    return f"torch.{case.op}" if case.op in DERIVATIVES or case.op in _REVEALING else "f"


def _is_discarded(case: Case) -> bool:
    known = case.origin.facts.get("gradient_zero")
    if known is not None:
        return bool(known)
    defined = case.first is not None and not case.first.negatives
    signed = case.op not in {"sqrt", "rsqrt", "log", "log2", "log10"}
    return case.nan and case.finite and case.op in _REVEALING and (defined or signed)


def discarded(case: Case) -> Account | None:
    """0 * Inf: an op whose result `where` discards, and whose derivative is not finite there."""
    if not _is_discarded(case):
        return None
    known, account = _singular(case), _undefined(case)
    if known is not None:
        reason = known[0]
    elif account is not None:
        reason = account.why
    elif case.origin.facts.get("gradient_zero"):
        reason = f"the derivative of `{case.name}` there is not finite"
    else:
        return None
    why = f"0 * Inf is NaN: the gradient that arrives at these elements is 0, as behind `where` or a mask, but {reason}"
    return Account(
        why,
        (
            _SAFE.replace("{call}", _call(case)),
            known[1] if known is not None else "Or compute it for the elements that count only: `y[ok] = f(x[ok])`.",
        ),
    )


def derivative(case: Case) -> Account | None:
    known = _singular(case)
    if known is None:
        return None
    why, cure = known
    advice = [cure]
    if "exactly 0" in why and case.op in {"sqrt", "rsqrt", "pow", "float_power"}:
        advice.append("Exact zeros come from ReLU, dropout, padding and masks, or from the difference of equal things.")
    return Account(why, tuple(advice))


def decomposition(case: Case) -> Account | None:
    return Account(
        f"the derivative of {case.op.removeprefix('_linalg_').removeprefix('linalg_')} divides by the differences of"
        " singular values or eigenvalues, and two of them are equal, or one is 0",
        (
            "Use only the values (`svdvals`, `eigvalsh`), whose derivative is finite, or add a little noise or"
            " `1e-6 * torch.eye(n)` to the matrix.",
        ),
    )


def exponent(case: Case) -> Account | None:
    """The derivative of a power by its exponent holds the logarithm of the base."""
    x = case.first
    if x is None or case.operand("exponent") is None or not x.negatives:
        return None
    return Account(
        "the derivative of a power by its exponent holds the logarithm of the base;"
        f" {counted(x.negatives, x.size, 'base', 'negative')}",
        ("Take the power of `x.abs()` or `x.clamp_min(0)`, or `detach` an exponent that is not learned.",),
    )


def masked_logsumexp(case: Case) -> Account | None:
    x = case.first
    if x is None or not x.inf or x.nan:
        return None
    return Account(
        f"the derivative of {case.op} over nothing but -Inf is NaN; {counted(x.inf, x.size, 'input', 'infinite')}",
        (
            "Mask with a large finite number, `torch.finfo(x.dtype).min`, instead of -Inf.",
            "Leave at least one position in each row unmasked.",
        ),
    )


def arrived(case: Case) -> Account | None:
    """The gradient was bad before backward came to the model."""
    grad = case.grad
    if grad is None or not (grad.nan or grad.inf):
        return None
    return Account(
        f"the gradient that arrived is already not finite in {grad.nan + grad.inf:,} of {grad.size:,} values",
        ("Look at what was passed to `backward(gradient=...)`, and at hooks that change gradients.",),
    )


def undefined(case: Case) -> Account | None:
    """An op that was infinite or undefined in forward, where something kept it from the loss."""
    account = _undefined(case)
    if account is None:
        return None
    why = f"{account.why}: something keeps that from the loss, as `where` does, but not from the gradient"
    return replace(account, why=why, advice=(_SAFE.replace("{call}", _call(case)), *account.advice))


def large(case: Case) -> Account | None:
    """A gradient that had grown on its way here until it left the range."""
    grad, largest = case.grad, case.largest
    if (
        grad is None
        or largest is None
        or not case.finite
        or magnitude(grad) < largest * 1e-8
        or case.dtype == "float16"
    ):
        return None
    return Account(
        f"the gradient grew until it left the range of {case.dtype}: what arrived at `{case.op}` is as large as"
        f" {number(magnitude(grad))}",
        (
            "Gradients that grow with every layer or time step need normalisation, residual connections, or a shorter"
            " backpropagation through time (`detach` the state); clipping comes too late for them.",
            "Lower the learning rate if they grew from step to step.",
        ),
        alone=False,
    )


PATTERNS = (
    Pattern(
        "repeated-eigenvalue",
        decomposition,
        ops("svd linalg_svd _linalg_svd eig linalg_eig linalg_eigh _linalg_eigh symeig linalg_qr linalg_det slogdet"),
    ),
    Pattern("zero-times-infinity", discarded),
    Pattern("gradient-passed-in", arrived),
    Pattern("infinite-derivative", derivative),
    Pattern("power-by-exponent", exponent, ops("pow float_power")),
    Pattern("masked-logsumexp", masked_logsumexp, ops("logsumexp logcumsumexp logaddexp")),
    Pattern("undefined", undefined),
    overflow.BLOWN_WEIGHTS,
    Pattern("gradient-overflow", large),
    overflow.OVERFLOW,
)
"""Looked through in this order; the first that fits speaks."""
