"""Patterns of the forward pass and the loss: ops that are undefined or infinite at what they were given."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seismograd.detectors.numerics.patterns.case import (
    Account,
    Case,
    Pattern,
    counted,
    joined,
    ops,
    span,
)
from seismograd.detectors.wording import number
from seismograd.records import Operand

_LOGITS = (
    "If these are probabilities, take the logarithm of the logits instead: `F.log_softmax`, `F.logsigmoid`,"
    " `F.cross_entropy`, `F.binary_cross_entropy_with_logits`."
)
_FINITE_MASK = "Mask with a large finite number, `torch.finfo(x.dtype).min`, instead of -Inf."


def log(case: Case) -> Account | None:
    x = case.operand("other") if case.op == "xlogy" else case.first
    at = -1 if case.op == "log1p" else 0
    clamp = f"`torch.{case.op}(x.clamp_min({'-1 + ' if at else ''}{case.epsilon}))`"
    if case.op == "xlogy":
        clamp = f"`torch.xlogy(p, x.clamp_min({case.epsilon}))`"
    advice = [f"Keep what goes in above {at}: {clamp}."]
    if x is None:
        return Account(f"{case.op} is defined only above {at}", (*advice, _LOGITS))
    if at:
        zero, below = x.low == -1, x.low is not None and x.low < -1
        where_zero, where_below = "some inputs are exactly -1", span(x)
    else:
        zero, below = x.zeros > 0, x.negatives > 0
        where_zero = counted(x.zeros, x.size, "input", "exactly 0")
        where_below = joined(counted(x.negatives, x.size, "input", "negative"), span(x))
    if below and (case.nan or not zero):
        advice.append("What goes in should not be negative at all: look at the line that makes it.")
        return Account(f"{case.op} of a number below {at} is NaN; {where_below}", tuple(advice))
    if not zero:
        return None
    if x.low is not None and x.low >= 0 and x.high is not None and x.high <= 1:
        advice.insert(0, _LOGITS)
    return Account(f"{case.op} of {at} is -Inf; {where_zero}", tuple(advice))


def division(case: Case) -> Account | None:
    if case.op == "reciprocal":
        below, above = case.first, None
    elif case.op in {"addcdiv", "_foreach_addcdiv"}:
        below, above = case.operand("tensor2"), case.operand("tensor1")
    else:
        below, above = case.other, case.first
        if below is None and case.scalar("other") == 0:
            below = Operand("other", (), "", 0.0, 0.0, size=1, zeros=1)
    if below is None:
        return None
    guard = f"Keep the divisor away from 0: `x / y.clamp_min({case.epsilon})`, or add {case.epsilon} to it."
    half = (
        ["An epsilon of 1e-8 is 0 in float16, whose smallest number is 6e-8: divide in float32."]
        if case.dtype == "float16"
        else []
    )
    if below.zeros:
        count = counted(below.zeros, below.size, "divisor", "exactly 0")
        if above is not None and above.zeros and case.nan:
            if below.size == 1:
                mean = "`(x * mask).sum() / mask.sum().clamp_min(1)`"
                advice = [
                    f"If it is a mean over what a mask selects, the mask is empty: {mean}.",
                    "Leave out batches in which nothing counts.",
                ]
                return Account("0 / 0 is NaN; the divisor is 0", tuple(advice))
            return Account(f"0 / 0 is NaN; {count}", (guard, *half))
        return Account(f"division by zero; {count}", (guard, *half))
    smallest = min(abs(below.low or 0.0), abs(below.high or 0.0))
    same_sign = below.low is not None and below.high is not None and below.low * below.high > 0
    if same_sign and smallest < 1e-3 and case.finite and not case.nan:
        told = span(below, "divisor")
        return Account(f"the quotient is too large for {case.dtype or 'its dtype'}; {told}", (guard, *half))
    return None


def root(case: Case) -> Account | None:
    x = case.first
    inverse = case.op == "rsqrt"
    advice = [f"Keep it above 0: `torch.{case.op}(x.clamp_min({case.epsilon}))`."]
    if x is None:
        return None
    if x.negatives and (case.nan or not (inverse and x.zeros)):
        advice.append("A variance or a squared distance that comes out negative was rounded: clamp it at 0 first.")
        count = counted(x.negatives, x.size, "input", "negative")
        return Account(f"{case.op} of a negative number is NaN; {joined(count, span(x))}", tuple(advice))
    if inverse and x.zeros:
        return Account(f"rsqrt of 0 is Inf; {counted(x.zeros, x.size, 'input', 'exactly 0')}", tuple(advice))
    return None


def power(case: Case) -> Account | None:
    x, exponent, exponents = case.first, case.scalar("exponent"), case.operand("exponent")
    if x is None:
        return None
    if exponent is not None:
        fractional = math.isfinite(exponent) and not exponent.is_integer()
    else:
        fractional = exponents is not None
    if x.negatives and fractional and case.nan:
        count = counted(x.negatives, x.size, "input", "negative")
        told = f"the power {number(exponent)}" if exponent is not None else "a fractional power"
        return Account(
            f"a negative number to {told} is NaN; {count}",
            ("Take the power of `x.abs()` or of `x.clamp_min(0)`, or use a whole exponent.",),
        )
    lowest = exponent if exponent is not None else (exponents.low if exponents is not None else None)
    if x.zeros and lowest is not None and lowest < 0:
        return Account(
            f"0 to the power {number(lowest)} is Inf; {counted(x.zeros, x.size, 'input', 'exactly 0')}",
            (f"Add {case.epsilon} to the base, or clamp it: `x.clamp_min({case.epsilon})`.",),
        )
    return None


_EDGES: dict[str, tuple[float, float, bool, str]] = {
    "acos": (-1, 1, False, "`x.clamp(-1 + 1e-7, 1 - 1e-7)`; a cosine is a little beyond 1 by rounding alone"),
    "asin": (-1, 1, False, "`x.clamp(-1 + 1e-7, 1 - 1e-7)`; a sine is a little beyond 1 by rounding alone"),
    "acosh": (1, math.inf, False, "`x.clamp_min(1 + 1e-7)`"),
    "atanh": (-1, 1, True, "`x.clamp(-1 + 1e-6, 1 - 1e-6)`: tanh is exactly 1 in float32 from 9 on"),
    "erfinv": (-1, 1, True, "`x.clamp(-1 + 1e-6, 1 - 1e-6)`"),
    "logit": (0, 1, True, "`torch.logit(x, eps=1e-6)`, or keep the logits that the sigmoid was taken of"),
    "special_ndtri": (0, 1, True, "`x.clamp(1e-6, 1 - 1e-6)`"),
}
"""Where each op is defined, whether it is infinite at the ends, and how to stay inside."""


def edge(case: Case) -> Account | None:
    low, high, infinite, cure = _EDGES[case.op]
    x = case.first
    if x is None or x.low is None or x.high is None:
        return None
    between = f"from {low:g} to {high:g}" if high < math.inf else f"from {low:g} on"
    advice = (f"Keep what goes in inside: {cure}.",)
    if x.low < low or x.high > high:
        return Account(f"{case.op} is defined {between}; {span(x)}", advice)
    if infinite and (x.low == low or x.high == high):
        ends = f"at {low:g} and {high:g}" if high < math.inf else f"at {low:g}"
        return Account(f"{case.op} is infinite {ends}; {span(x)}", advice)
    return None


def pole(case: Case) -> Account | None:
    x = case.first
    if x is None or x.low is None or x.low > 0:
        return None
    return Account(
        f"{case.op} is infinite at 0 and at negative whole numbers; {span(x)}",
        ("Keep what goes in above 0: `x.clamp_min(1e-6)`, or make it by `F.softplus`.",),
    )


def masked_row(case: Case) -> Account | None:
    """Softmax over nothing but -Inf."""
    if case.op in _ATTENTION:
        x = case.operand("attn_mask", "attn_bias", "mask")
        if x is None or not (x.inf or (x.zeros and x.dtype.endswith("bool"))):
            return None
    else:
        x = case.first
        if x is None or not x.inf or x.nan:
            return None
    if x.inf and x.negatives < x.inf:
        return Account(
            f"{case.name} of an input of +Inf is NaN; {counted(x.inf, x.size, 'input', 'infinite')}",
            ("Find what makes the scores infinite, and keep them finite: scale them down, or clamp them.",),
        )
    count = counted(x.inf, x.size, "input", "-Inf") if x.inf else ""
    rows = "a row that is masked completely has nothing to choose from, and its softmax is NaN"
    return Account(
        joined(rows, count),
        (
            "Leave at least one position in each row: a sample that is all padding, or a query that may look at"
            " nothing, has none.",
            _FINITE_MASK,
            "Or set such rows to 0 afterwards, with `torch.where` before the softmax so that no gradient passes them.",
        ),
    )


def _elements(case: Case, x: Operand) -> int | None:
    """How many elements each result of a variance is taken over."""
    if "batch_norm" in case.op:
        return x.size // x.shape[1] if len(x.shape) > 1 and x.shape[1] else None
    dim = case.argument("dim")
    if dim is None or dim == []:
        return x.size
    axes: Sequence[int] = [dim] if isinstance(dim, int) else list(dim)
    try:
        return math.prod(x.shape[axis] for axis in axes)
    except IndexError:
        return None


def variance(case: Case) -> Account | None:
    x = case.first
    if x is None:
        return None
    elements, correction = _elements(case, x), case.argument("correction")
    if correction is None:
        correction = 0 if case.argument("unbiased") is False else 1
    if elements is None or elements > correction:
        return None
    word = "standard deviation" if case.op.startswith("std") else "variance"
    if elements == 0:
        return Account(f"the {word} of no elements is NaN", ("Leave out batches or masks that select nothing.",))
    one = "one element" if elements == 1 else f"{elements} elements"
    return Account(
        f"the {word} of {one} with correction {correction} divides by zero",
        (
            f"Take it with `correction=0`, or only over more than {elements}: `torch.{case.op}(x, correction=0)`.",
            "If it is taken over the batch, the last batch of the epoch is too small: `DataLoader(drop_last=True)`.",
        ),
    )


def empty_mean(case: Case) -> Account | None:
    x = case.first
    if x.size if x is not None else case.argument("self_sym_numel") != 0:
        return None
    shape = f"; its shape is {list(x.shape)}" if x is not None else ""
    return Account(
        f"the mean of an empty tensor is NaN{shape}",
        (
            "Leave the term out where nothing was selected: `loss = x.mean() if x.numel() else x.sum()`,"
            " which is 0 and keeps the graph.",
            "Look at the mask or the index that selects it: in this batch it selects nothing.",
        ),
    )


def targets(case: Case) -> Account | None:
    """Cross entropy in which no target counts, or whose target has probability 0."""
    x, target = case.first, case.operand("target")
    if x is not None and x.inf and not x.nan and not case.nan:
        return Account(
            f"the target's class has probability 0; {x.inf:,} of {x.size:,} log-probabilities are -Inf",
            (
                "A class that is masked out is a target: take it out of the mask, or out of the targets.",
                _FINITE_MASK,
            ),
        )
    if not case.nan:
        return None
    ignored = case.argument("ignore_index")
    every = target is not None and target.size and target.low == target.high and target.low == ignored
    if target is not None and not target.size:
        told = "there are no targets"
    elif every and target is not None:
        told = f"all {target.size:,} targets are ignore_index ({ignored})"
    else:
        told = "all targets are ignore_index, or their classes have weight 0"
    return Account(
        f"cross entropy divides by the number of targets that count, which is 0: {told}",
        (
            "Leave out batches without a single label, or use `reduction='sum'` and divide by"
            " `(target != ignore_index).sum().clamp_min(1)`.",
        ),
    )


def alignment(case: Case) -> Account | None:
    return Account(
        "CTC loss is Inf where no alignment exists: a target is longer than its input",
        (
            "`CTCLoss(zero_infinity=True)` leaves such samples out.",
            "Check input and target lengths: repeated labels need a blank between them, and so one more input step.",
        ),
    )


def uninitialised(case: Case) -> Account | None:
    return Account(
        f"`{case.op}` reserves memory without writing it: what was read is whatever lay there before",
        (
            "Use `torch.zeros` (or `new_zeros`, `zeros_like`), or fill all of it before it is read.",
            "Check that every index that is read was written: an off-by-one leaves an element as it was.",
        ),
    )


def written(case: Case) -> Account | None:
    """Code that puts NaN or Inf there itself."""
    value = case.origin.value
    given = [v for v in case.origin.arguments.values() if isinstance(v, float) and not math.isfinite(v)]
    if not given and case.finite and case.operands:
        return None
    return Account(
        f"`{case.op}` writes {number(given[0] if given else value)} itself, and it was used",
        (
            "Write a finite number there: in a mask `torch.finfo(x.dtype).min` instead of -Inf.",
            "If it marks what is missing, leave those elements out before anything is computed from them.",
        ),
    )


def infinities(case: Case) -> Account | None:
    """Infinities that were meant, combined into NaN."""
    if not case.infinite or not case.nan:
        return None
    held = case.infinite[0]
    sums = {"add": "Inf - Inf", "sub": "Inf - Inf", "rsub": "Inf - Inf", "div": "Inf / Inf", "mul": "0 * Inf"}
    form = sums.get(case.op, "Inf - Inf or 0 * Inf")
    who = f"`{held.parameter}`" if held.parameter else f"`{held.name}`"
    count = f"{held.inf:,} of {held.size:,} values of {who} are infinite" if held.size > 1 else f"{who} is infinite"
    return Account(
        f"{form} is NaN; {count}",
        (
            "The infinities were there before: use a large finite number where they are made"
            " (`torch.finfo(x.dtype).min` in a mask).",
            "Choose with `torch.where(mask, x, 0.0)` instead of multiplying by the mask: 0 * Inf is NaN.",
        ),
    )


def indexing(case: Case) -> Account | None:
    bad = next((each for each in case.operands if each.nan or each.inf), None)
    if bad is None:
        return None
    who = f"`{bad.parameter}`" if bad.parameter else f"`{bad.name}`"
    held = counted(bad.nan + bad.inf, bad.size, "value", "not finite")
    return Account(
        f"`{case.op}` only picks values, and in {who} {held}",
        (
            f"Find what filled {who}: it was not finite before this step, or was never written.",
            "Check the indices: they may reach elements that were not meant (padding, -1, one too far).",
        ),
    )


_SOFTMAX = ops("softmax _softmax log_softmax _log_softmax _safe_softmax _masked_softmax masked_softmax")
_ATTENTION = ops(
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention"
    " _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math_for_mps"
)
_VARIANCE = ops(
    "var std var_mean std_mean native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional"
    " _native_batch_norm_legit_no_training _batch_norm_with_update cudnn_batch_norm miopen_batch_norm batch_norm"
)
_LOSSES = ops("mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy kl_div")

PATTERNS = (
    Pattern(
        "uninitialised-memory",
        uninitialised,
        ops("empty new_empty empty_like empty_strided new_empty_strided resize resize_as empty_permuted"),
    ),
    Pattern(
        "written-by-hand",
        written,
        ops("full full_like new_full fill masked_fill scalar_tensor lift_fresh lift_fresh_copy where constant_pad_nd"),
    ),
    Pattern("masked-softmax-row", masked_row, _SOFTMAX | _ATTENTION),
    Pattern("log-of-zero", log, ops("log log2 log10 log1p xlogy special_xlogy")),
    Pattern(
        "division-by-zero",
        division,
        ops("div divide true_divide floor_divide reciprocal remainder fmod addcdiv _foreach_div _foreach_addcdiv"),
    ),
    Pattern("root-of-negative", root, ops("sqrt rsqrt _foreach_sqrt")),
    Pattern("power-undefined", power, ops("pow float_power")),
    Pattern("outside-domain", edge, frozenset(_EDGES)),
    Pattern("pole", pole, ops("lgamma digamma polygamma mvlgamma special_zeta")),
    Pattern("variance-of-one", variance, _VARIANCE),
    Pattern("mean-of-nothing", empty_mean, ops("mean nanmean") | _LOSSES),
    Pattern(
        "no-target-counts",
        targets,
        ops("nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward nll_loss_nd cross_entropy_loss"),
    ),
    Pattern("no-alignment", alignment, ops("_ctc_loss _cudnn_ctc_loss ctc_loss")),
    Pattern(
        "indexing",
        indexing,
        ops("index index_select gather embedding take take_along_dim select slice index_put scatter _embedding_bag"),
    ),
    Pattern("infinities-combined", infinities),
)
"""Looked through in this order; the first that fits speaks."""
