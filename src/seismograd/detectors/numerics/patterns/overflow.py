"""Patterns of numbers too large for their dtype: exponentials, half precision, weights that blew up."""

from __future__ import annotations

import math

from seismograd.detectors.numerics.patterns.case import Account, Case, Pattern, magnitude, ops, ranges, span
from seismograd.detectors.wording import number
from seismograd.records import Operand

BLOWN = 1e10
"""No weight that learned anything is as large as this."""

_HALF = (
    "Use bfloat16, which has float32's range: `torch.autocast(device, dtype=torch.bfloat16)`.",
    "Or take this op out of half precision: `with torch.autocast(device, enabled=False):` around `x.float()`;"
    " losses, norms and sums belong in float32.",
)


def exponential(case: Case) -> Account | None:
    x, largest = case.first, case.largest
    if largest is None or (x is not None and (x.low is None or x.high is None)):
        return None
    limit = math.log2(largest) if case.op == "exp2" else math.log(largest) + (math.log(2) * (case.op in _BOTH_SIDES))
    what = f"{case.op} overflows {case.dtype} above {limit:.4g}"
    if x is None:
        told = ""
    else:
        top = magnitude(x) if case.op in _BOTH_SIDES else x.high or 0.0
        if top < 0.999 * limit:
            return None
        told = f"; the inputs go up to {number(top)}" if x.size != 1 else f"; the input is {number(top)}"
    advice = [
        "If it is a softmax, a sigmoid or a log-sum-exp written by hand, use `torch.softmax`, `torch.sigmoid`,"
        " `torch.logsumexp`: they subtract the maximum first.",
        f"Otherwise bound what goes in: `torch.exp(x.clamp_max({_below(limit)}))`; a learned log-scale or log-variance"
        " needs such a bound.",
    ]
    if case.dtype == "float16":
        advice += _HALF[:1]
    return Account(what + told, tuple(advice))


_BOTH_SIDES = ops("sinh cosh")


def _below(limit: float) -> str:
    return "10" if limit < 20 else "80" if limit < 200 else "700"


def narrowed(case: Case) -> Account | None:
    """A number that does not fit into the dtype it is cast to."""
    x, largest = case.first, case.largest
    if x is None or largest is None or not case.finite or magnitude(x) <= largest:
        return None
    return Account(
        f"numbers beyond {case.limit}, become Inf; {span(x)}",
        _HALF
        if case.dtype == "float16"
        else (f"Keep it in {x.dtype.removeprefix('torch.')}, or scale it down before it is cast.",),
        alone=False,
    )


def blown_weights(case: Case) -> Account | None:
    weights = [each for each in case.origin.inputs if each.parameter and magnitude(each) > _blown(each)]
    if not weights or not case.finite:
        return None
    worst = max(weights, key=magnitude)
    if case.step == 0:
        return Account(
            f"the weights are far too large: `{worst.parameter}` reaches {number(magnitude(worst))} before any update",
            ("Check the initialisation, and the checkpoint that was loaded.",),
            alone=False,
        )
    since = ", where the updates before this step have thrown it"
    return Account(
        f"the weights have blown up: `{worst.parameter}` is as large as {number(magnitude(worst))}{since}",
        (
            "Lower the learning rate about 10 times, or warm it up over some hundred steps: this op only met what the"
            " updates before it had done.",
            "Clip gradients with `torch.nn.utils.clip_grad_norm_`, and go back to a checkpoint of before they grew.",
        ),
        alone=False,
    )


def _blown(weights: Operand) -> float:
    return 1e4 if weights.dtype.endswith("float16") and "bfloat" not in weights.dtype else BLOWN


def overflow(case: Case) -> Account | None:
    """Finite inputs, and an infinite result: too large for the dtype. A NaN is Inf - Inf on the way to it."""
    largest = case.largest
    known = [each for each in case.origin.inputs if each.low is not None]
    if largest is None or not known or not case.finite:
        return None
    half = case.dtype == "float16"
    if case.nan and not (case.op in SUMMING and (half or _beyond(case, largest))):
        return None
    if not (case.nan or half or case.op in SUMMING | _PRODUCTS or _beyond(case, largest)):
        return None
    inputs = ranges(tuple(known))
    via = ", on the way to it as Inf - Inf" if case.nan else ""
    where = f" in the backward of {case.name}" if case.backward else ""
    why = f"the result{where} is beyond {case.limit}{via}; it was given {inputs}"
    if half:
        return Account(why, _HALF, alone=False)
    advice = ["Values this large mean that the run has diverged before: lower the learning rate, or clip gradients."]
    if case.backward:
        advice.append(
            "A gradient that grows with every layer or time step needs normalisation, residual connections or a"
            " shorter backpropagation through time (`detach` the state)."
        )
    else:
        advice.append("Normalise what goes in (inputs, targets, the layer before), so that it stays near 1.")
    return Account(why, tuple(advice), alone=False)


def _beyond(case: Case, largest: float) -> bool:
    """Whether inputs of this size can leave the range: in products, squares and sums of them."""
    sizes = sorted((magnitude(each) for each in case.origin.inputs), reverse=True)
    if not sizes or not sizes[0]:
        return False
    if case.op in _SQUARING:
        power = abs(case.scalar("exponent") or 2.0) if case.op == "pow" else 2.0
        return math.log(sizes[0]) * power > math.log(largest) - _SLACK
    second = next((size for size in sizes[1:] if size > 1.0), 1.0)
    return math.log(sizes[0]) + math.log(second) > math.log(largest) - _SLACK


_SLACK = math.log(1e8)
"""Sums of many terms are larger than each of them."""

SUMMING = ops(
    "mm bmm addmm baddbmm addbmm addmv mv dot vdot linear matmul einsum convolution conv1d conv2d conv3d"
    " conv_transpose2d _convolution mkldnn_convolution cudnn_convolution sum mean cumsum add sub native_layer_norm"
    " layer_norm native_group_norm group_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm batch_norm"
    " rms_norm _fused_rms_norm var std var_mean std_mean linalg_vector_norm norm _cdist_forward cdist"
    " _euclidean_dist mse_loss addcmul lerp scaled_dot_product_attention _scaled_dot_product_flash_attention"
    " _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention lstm gru rnn_tanh rnn_relu"
    " prod cumprod _softmax _log_softmax"
)
_PRODUCTS = ops("mul pow square exp2 outer ger kron cross _foreach_mul")
_SQUARING = ops(
    "pow square native_layer_norm layer_norm native_group_norm group_norm native_batch_norm _native_batch_norm_legit"
    " cudnn_batch_norm batch_norm rms_norm _fused_rms_norm var std var_mean std_mean linalg_vector_norm norm"
    " _cdist_forward cdist _euclidean_dist mse_loss"
)

EXPONENTIAL = Pattern("exp-overflow", exponential, ops("exp exp2 expm1 sinh cosh special_expm1 special_exp2"))
NARROWED = Pattern("too-large-for-dtype", narrowed, ops("_to_copy to copy type_as half _autocast_to_reduced_precision"))
BLOWN_WEIGHTS = Pattern("weights-blown-up", blown_weights)
OVERFLOW = Pattern("overflow", overflow)
