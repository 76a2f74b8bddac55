"""What a finding says of an origin: a sentence and advice for each pattern, evidence that is plain JSON."""

from __future__ import annotations

import json
import math

import pytest

from seismograd.detectors.numerics.origins import evidence_of, first_bad, following, made, moment, place_of, told
from seismograd.detectors.numerics.patterns import account_of, short
from seismograd.records import Operand, Origin, Reading, Where, strict

NAN, INF = math.nan, math.inf


def tensor(low=0.0, high=1.0, *, name="self", shape=(16, 32), dtype="float32", **counts) -> Operand:
    return Operand(name, shape, dtype, low, high, math.prod(shape), **counts)


def origin(op, *inputs, value=NAN, phase="forward", forward_op=None, **more) -> Origin:
    more = {"bad": 14, "size": 512, "shape": (16, 32), "dtype": "float32"} | more
    return Origin(phase, Where("head", op=op and f"aten.{op}"), forward_op, value=value, inputs=inputs, **more)


def backward(op, *inputs, ran="mul", **more) -> Origin:
    return origin(ran, *inputs, phase="backward", forward_op=f"aten.{op}", **more)


scalar = {"shape": ()}
half = {"dtype": "float16"}

FORWARD = [
    (origin("log", tensor(zeros=14), value=-INF), "log-of-zero", "log of 0 is -Inf; 14 of 512 inputs are exactly 0"),
    (origin("log2", tensor(-1, 5, negatives=3)), "log-of-zero", "log2 of a number below 0 is NaN; 3 of 512 inputs are"),
    (origin("log1p", tensor(-2, 5, negatives=3)), "log-of-zero", "log1p of a number below -1 is NaN"),
    (
        origin("xlogy", tensor(), tensor(name="other", zeros=2), value=-INF),
        "log-of-zero",
        "xlogy of 0 is -Inf; 2 of 512",
    ),
    (
        origin("div", tensor(1, 2), tensor(0, 2, name="other", zeros=1), value=INF),
        "division-by-zero",
        "division by zero; 1 of 512 divisors is exactly 0",
    ),
    (
        origin("div", tensor(0, 0, zeros=1, **scalar), tensor(0, 0, name="other", zeros=1, **scalar), size=1),
        "division-by-zero",
        "0 / 0 is NaN; the divisor is 0",
    ),
    (
        origin("div", tensor(zeros=4), tensor(0, 2, name="other", zeros=4)),
        "division-by-zero",
        "0 / 0 is NaN; 4 of 512 divisors are exactly 0",
    ),
    (origin("div", tensor(1, 2), value=INF, arguments={"other": 0}), "division-by-zero", "the divisor is exactly 0"),
    (origin("reciprocal", tensor(zeros=2), value=INF), "division-by-zero", "2 of 512 divisors"),
    (
        origin("div", tensor(1, 2), tensor(1e-42, 1e-40, name="other"), value=INF),
        "division-by-zero",
        "the quotient is too large for float32; the divisors go from 1e-42 to 1e-40",
    ),
    (origin("sqrt", tensor(-1e-9, 1, negatives=3)), "root-of-negative", "sqrt of a negative number is NaN; 3 of 512"),
    (origin("rsqrt", tensor(zeros=3), value=INF), "root-of-negative", "rsqrt of 0 is Inf; 3 of 512"),
    (
        origin("pow", tensor(-1, 1, negatives=9), arguments={"exponent": 0.5}),
        "power-undefined",
        "a negative number to the power 0.5 is NaN; 9 of 512",
    ),
    (origin("pow", tensor(zeros=1), value=INF, arguments={"exponent": -1}), "power-undefined", "0 to the power -1"),
    (
        origin("acos", tensor(-1.1, 0.5)),
        "outside-domain",
        "acos is defined from -1 to 1; the inputs go from -1.1 to 0.5",
    ),
    (origin("atanh", tensor(-0.5, 1.0), value=INF), "outside-domain", "atanh is infinite at -1 and 1"),
    (origin("lgamma", tensor(0.0, 1.0), value=INF), "pole", "lgamma is infinite at 0"),
    (
        origin("exp", tensor(0, 120), value=INF),
        "exp-overflow",
        "exp overflows float32 above 88.72; the inputs go up to 120",
    ),
    (origin("exp", tensor(0, 12, **half), value=INF, **half), "exp-overflow", "exp overflows float16 above 11.09"),
    (
        origin("cosh", tensor(-95, 1), value=INF),
        "exp-overflow",
        "cosh overflows float32 above 89.42; the inputs go up to 95",
    ),
    (
        origin("_softmax", tensor(-1, 1, inf=32, negatives=200)),
        "masked-softmax-row",
        "masked completely has nothing to choose from, and its softmax is NaN; 32 of 512 inputs are -Inf",
    ),
    (origin("_softmax", tensor(inf=1)), "masked-softmax-row", "softmax of an input of +Inf is NaN; 1 of 512"),
    (
        origin(
            "_scaled_dot_product_flash_attention_for_cpu",
            tensor(name="query"),
            tensor(0, 1, name="attn_mask", dtype="bool", zeros=16),
        ),
        "masked-softmax-row",
        "masked completely",
    ),
    (
        origin("std", tensor(shape=(1, 32)), arguments={"dim": [0]}),
        "variance-of-one",
        "the standard deviation of one element with correction 1 divides by zero",
    ),
    (
        origin("var", tensor(shape=(2,)), arguments={"correction": 2}),
        "variance-of-one",
        "of 2 elements with correction 2",
    ),
    (
        origin("mean", tensor(None, None, shape=(0, 32)), size=1),
        "mean-of-nothing",
        "the mean of an empty tensor is NaN",
    ),
    (
        origin(
            "nll_loss_forward",
            tensor(),
            tensor(-100, -100, name="target", shape=(16,), dtype="int64"),
            arguments={"ignore_index": -100},
        ),
        "no-target-counts",
        "which is 0: all 16 targets are ignore_index (-100)",
    ),
    (origin("nll_loss_forward", tensor(inf=3), value=INF), "no-target-counts", "the target's class has probability 0"),
    (origin("_ctc_loss", value=INF), "no-alignment", "a target is longer than its input"),
    (origin("empty"), "uninitialised-memory", "reserves memory without writing it"),
    (origin("new_empty.default"), "uninitialised-memory", "`new_empty` reserves"),
    (origin("full", arguments={"fill_value": NAN}), "written-by-hand", "`full` writes NaN itself"),
    (
        origin("embedding", tensor(name="weight", nan=3)),
        "indexing",
        "`embedding` only picks values, and in `weight` 3 of",
    ),
    (
        origin("sub", tensor(inf=3), tensor(name="other", inf=3)),
        "infinities-combined",
        "Inf - Inf is NaN; 3 of 512 values",
    ),
    (origin("mul", tensor(inf=3), tensor(name="other", zeros=3)), "infinities-combined", "0 * Inf is NaN"),
    (
        origin("mm", tensor(-300, 300, **half), tensor(-250, 250, name="mat2", **half), value=INF, **half),
        "overflow",
        "beyond 65504, the largest float16; it was given self from -300 to 300, mat2 from -250 to 250",
    ),
    (origin("mul", tensor(0, 1e30), tensor(0, 1e20, name="other"), value=INF), "overflow", "the largest float32"),
    (origin("native_layer_norm", tensor(-1e30, 1e30)), "overflow", "on the way to it as Inf - Inf"),
    (
        origin("_to_copy", tensor(0, 1e5), value=INF, **half),
        "too-large-for-dtype",
        "numbers beyond 65504, the largest float16, become Inf; the inputs go from 0 to 1e+05",
    ),
    (
        origin("addmm", tensor(), tensor(-1e20, 3e12, name="mat2", parameter="fc.weight"), value=INF),
        "weights-blown-up",
        "the weights have blown up: `fc.weight` is as large as 1e+20",
    ),
    (origin("strange_op", tensor(0, 3)), "", "`strange_op` made NaN out of finite inputs: self from 0 to 3"),
    (origin(None), "", "which op made it is not known"),
    (
        origin("strange_op", tensor(0, 3), facts={"function": "Mine"}),
        "custom-function",
        "the forward of the autograd Function `Mine` made NaN in `strange_op`; it was given self from 0 to 3",
    ),
    (
        origin("log", tensor(zeros=14), value=-INF, facts={"function": "Mine"}),
        "log-of-zero",
        "in the forward of the autograd Function `Mine`, log of 0 is -Inf",
    ),
]

BACKWARD = [
    (
        backward("sqrt", tensor(0, 3.1, zeros=14), ran="div", value=INF),
        "infinite-derivative",
        "sqrt has an infinite derivative at 0; 14 of 512 inputs are exactly 0",
    ),
    (backward("sqrt"), "infinite-derivative", "sqrt has an infinite derivative at 0"),
    (backward("linalg_vector_norm", tensor(0, 0, zeros=512)), "infinite-derivative", "all 512 inputs are exactly 0"),
    (backward("norm", tensor(0, 1, zeros=32)), "infinite-derivative", "so a whole vector may be"),
    (
        backward("_cdist_forward", tensor(name="x1"), tensor(name="x2")),
        "infinite-derivative",
        "cdist has an infinite derivative at distance 0; two of the points are the same",
    ),
    (backward("std", tensor(2.0, 2.0)), "infinite-derivative", "std has an infinite derivative at 0; all of its 512"),
    (
        backward("pow", tensor(zeros=7), arguments={"exponent": 0.5}),
        "infinite-derivative",
        "pow has an infinite derivative at 0 for exponents below 1; 7 of 512",
    ),
    (
        backward("acos", tensor(-0.5, 1.0), value=INF),
        "infinite-derivative",
        "acos has an infinite derivative at -1 and 1",
    ),
    (
        backward("atan2", tensor(zeros=3), tensor(name="other", zeros=2)),
        "infinite-derivative",
        "atan2 has an infinite derivative at 0, 0; 3 and 2 of 512",
    ),
    (backward("atanh", tensor(-1, 0.3), value=INF), "infinite-derivative", "at -1 and 1; the inputs go from -1 to 0.3"),
    (
        backward("log", tensor(zeros=2), value=INF),
        "infinite-derivative",
        "log has an infinite derivative at 0; 2 of 512",
    ),
    (
        backward("div", tensor(1, 2), tensor(name="other", zeros=2), value=INF),
        "division-by-zero",
        "division by zero; 2 of 512 divisors are exactly 0",
    ),
    (
        backward("sqrt", tensor(zeros=14), facts={"gradient_zero": True}),
        "zero-times-infinity",
        "is 0, as behind `where` or a mask, but sqrt has an infinite derivative at 0; 14 of 512 inputs are exactly 0",
    ),
    (
        backward("exp", tensor(0, 120), facts={"gradient_zero": True}),
        "zero-times-infinity",
        "but exp overflows float32 above 88.72; the inputs go up to 120",
    ),
    (
        backward("exp", tensor(0, 120), value=INF),
        "exp-overflow",
        "go up to 120: something keeps that from the loss, as `where` does, but not from the gradient",
    ),
    (
        backward("exp", tensor(0, 120)),
        "zero-times-infinity",
        "0 * Inf is NaN: the gradient that arrives at these elements is 0",
    ),
    (
        backward("strange", tensor(), facts={"gradient_zero": True}),
        "zero-times-infinity",
        "but the derivative of `strange` there is not finite",
    ),
    (backward("_linalg_svd", tensor()), "repeated-eigenvalue", "the derivative of svd divides by the differences"),
    (
        backward("pow", tensor(-1, 1, negatives=4), tensor(2, 3, name="exponent")),
        "power-by-exponent",
        "holds the logarithm of the base; 4 of 512 bases are negative",
    ),
    (backward("logsumexp", tensor(inf=32)), "masked-logsumexp", "the derivative of logsumexp over nothing but -Inf"),
    (
        backward("mul", tensor(), tensor(name="grad", nan=3)),
        "gradient-passed-in",
        "the gradient that arrived is already not finite in 3 of 512 values",
    ),
    (
        backward("mm", tensor(), tensor(0, 1e37, name="grad"), value=INF),
        "gradient-overflow",
        "the gradient grew until it left the range of float32",
    ),
    (
        backward("mm", tensor(0, 9, **half), tensor(0, 6e4, name="grad", **half), value=INF, **half),
        "overflow",
        "the result in the backward of mm is beyond 65504, the largest float16",
    ),
    (
        backward("strange", tensor(0, 3), tensor(-1, 1, name="grad")),
        "",
        "the derivative of `strange` is not finite at these inputs; in forward it was given self from 0 to 3;"
        " the gradient goes from -1 to 1",
    ),
    (
        origin("div", tensor(), tensor(name="other", zeros=1), phase="backward", value=INF, facts={"function": "Mine"}),
        "division-by-zero",
        "in the backward of the autograd Function `Mine`, division by zero; 1 of 512",
    ),
]


@pytest.mark.parametrize(("made_of", "pattern", "why"), FORWARD + BACKWARD, ids=lambda value: str(value)[:40])
def test_each_pattern_says_why_and_what_to_do(made_of, pattern, why):
    account = account_of(made_of)
    assert (account.pattern, why in account.why) == (pattern, True), account.why
    assert account.advice
    assert all(advice.endswith(".") for advice in account.advice)
    assert not account.why.endswith(".")
    message, evidence, advice, _ = told(made_of, "It is bad at step 3", ["Then this."])
    assert message.startswith("It is bad at step 3. ")
    assert advice[-1] == "Then this."
    json.dumps(strict(evidence), allow_nan=False)


@pytest.mark.parametrize(
    ("made_of", "pattern"),
    [
        (origin("log", tensor(0.1, 1)), "log-of-zero"),
        (origin("sqrt", tensor(0, 1, zeros=3)), "root-of-negative"),
        (origin("exp", tensor(0, 88)), "exp-overflow"),
        (origin("_softmax", tensor(-1, 1)), "masked-softmax-row"),
        (origin("var", tensor(shape=(2,))), "variance-of-one"),
        (origin("mean", tensor()), "mean-of-nothing"),
        (origin("mm", tensor(), tensor(-9, 9, name="mat2", parameter="w")), "weights-blown-up"),
        (origin("_to_copy", tensor(0, 65504.0), dtype="float16"), "too-large-for-dtype"),
        (backward("sqrt", tensor(0.1, 1)), "infinite-derivative"),
        (backward("pow", tensor(zeros=3), arguments={"exponent": 1}), "infinite-derivative"),
        (backward("acos", tensor(-0.9, 0.99)), "infinite-derivative"),
    ],
)
def test_a_pattern_is_silent_where_the_inputs_do_not_show_it(made_of, pattern):
    assert account_of(made_of).pattern != pattern


def test_patterns_of_probabilities_speak_of_logits():
    assert "logits" in account_of(origin("log", tensor(0, 1, zeros=1), value=-INF)).advice[0]
    assert "logits" not in account_of(origin("log", tensor(0, 7, zeros=1), value=-INF)).advice[0]


def test_an_epsilon_fits_the_dtype():
    assert "1e-4" in account_of(backward("sqrt", tensor(zeros=1), value=INF, dtype="float16")).advice[0]


def test_weights_that_are_huge_at_the_first_step_were_initialised_so():
    grown = origin("addmm", tensor(), tensor(0, 3e12, name="mat2", parameter="fc.weight"), value=INF)
    assert "updates before this step" in account_of(grown, 7).why
    assert "before any update" in account_of(grown, 0).why


def test_numbers_that_autograd_keeps_unsigned():
    target = tensor(-100, -100, name="target", shape=(16,), dtype="int64")
    ignored = origin("nll_loss", tensor(), target, arguments={"ignore_index": 2**64 - 100})
    assert "(-100)" in account_of(ignored).why
    assert evidence_of(ignored)["arguments"] == {"ignore_index": -100}


def test_a_range_too_narrow_for_three_digits():
    close = backward("acos", tensor(1 - 1e-7, 1.0), value=INF)
    assert account_of(close).why.endswith("the inputs are all about 1")


def test_where_advises_to_choose_before_the_op():
    advice = account_of(backward("sqrt", tensor(zeros=1), facts={"gradient_zero": True})).advice
    assert "torch.where(ok, torch.sqrt(safe), 0.0)" in advice[0]


def batch(**facts) -> Origin:
    given = {"argument": "args[0]", "samples": 3, "of_samples": 32, **facts}
    return Origin("input", value=NAN, bad=4, size=512, index=((5, 2), (6, 2)), shape=(32, 16), facts=given)


def test_a_bad_batch_names_sample_and_feature():
    account = account_of(batch())
    assert account.why == "3 of 32 samples of the batch hold NaN; the first is sample 5, feature 2 of args[0]"
    assert "isfinite" in account.advice[0]
    assert "on the way" in account_of(batch(samples=32)).advice[0]
    assert any("target" in advice for advice in account_of(batch(argument="target of mse_loss")).advice)
    alone = Origin("input", value=INF, bad=4, size=512, facts={"argument": "kwargs['x']"})
    assert account_of(alone).why == "kwargs['x'] of the batch holds Inf in 4 of 512 values"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"made_by": "lr not finite", "lr": NAN}, "(Adam, lr NaN) made `fc.weight` NaN: the learning rate was NaN"),
        ({"made_by": "state not finite", "state": ["exp_avg_sq"]}, "not finite before it (`exp_avg_sq`)"),
        ({"made_by": "eps 0", "eps": 0.0}, "eps is 0, so that"),
        ({"made_by": "update overflow", "gradient": 1e30, "lr": 1e9}, "a gradient of norm 1e+30 at a learning rate of"),
        ({"made_by": "gradient not finite"}, "its gradient was not finite, and was stepped on"),
        ({"made_by": "unknown"}, "gradient, state and learning rate were finite"),
        ({"made_by": "something new"}, "gradient, state and learning rate were finite"),
    ],
)
def test_an_update_is_named_with_its_step(facts, why):
    known = {"step": 11, "optimizer": "Adam", "parameter": "fc.weight", **facts}
    account = account_of(Origin("optimizer", Where(parameter="fc.weight"), value=NAN, facts=known))
    assert account.why.startswith("the update of step 11 (Adam")
    assert why in account.why
    assert account.advice


def test_weights_that_were_bad_from_the_start():
    account = account_of(Origin("optimizer", Where(parameter="fc.weight"), value=NAN))
    assert account.why == "`fc.weight` was NaN before the first update that was seen"


def test_the_evidence_holds_what_is_known_and_facts_as_they_are():
    full = backward(
        "sqrt",
        tensor(0, 3.1, zeros=14),
        value=INF,
        index=tuple((3, at) for at in range(9)),
        columns=(8, 21),
        facts={"autocast": "bfloat16", "new": (1, NAN), "series": 7, "because": "me", "limit": 1},
        note="the second run gave the same loss",
    )
    evidence = evidence_of(full)
    assert evidence["origin"] == "backward"
    assert (evidence["op"], evidence["forward_op"], evidence["pattern"]) == (
        "aten.mul",
        "aten.sqrt",
        "infinite-derivative",
    )
    assert (evidence["bad"], evidence["size"], len(evidence["index"])) == (14, 512, 5)
    assert evidence["columns"] == [8, 21]
    assert evidence["inputs"] == [
        {"name": "self", "shape": [16, 32], "dtype": "float32", "low": 0, "high": 3.1, "size": 512, "zeros": 14}
    ]
    assert evidence["autocast"] == "bfloat16"
    assert evidence["new"][0] == 1
    assert evidence["note"] == "The second run gave the same loss."
    assert not {"series", "limit", "sure"} & evidence.keys()
    assert evidence["because"] is None, "it explains itself"
    assert "because" not in evidence_of(origin("strange", tensor()))
    assert place_of(full).op == "aten.sqrt"
    assert place_of(full).phase == "backward"


def test_doubt_is_said():
    unsure = backward("sqrt", tensor(zeros=14), value=INF, sure=False, note="the second run drew other numbers.")
    message, evidence, _, _ = told(unsure, "It is bad at step 3")
    assert message.endswith("14 of 512 inputs are exactly 0 (unsure: the second run drew other numbers).")
    assert evidence["sure"] is False
    assert told(backward("sqrt", sure=False), "")[0] == "sqrt has an infinite derivative at 0 (unsure)."


@pytest.mark.parametrize(
    ("where", "facts", "words"),
    [
        ({"index": ((3, 17),), "bad": 14}, {}, "sample 3, feature 17 [3, 17] (and 13 more)"),
        ({"index": ((3, 17, 2),), "bad": 1}, {}, "sample 3 [3, 17, 2]"),
        ({"index": ((3,),), "bad": 2}, {}, "sample 3 [3] (and 1 more)"),
        ({"index": ((),)}, {}, ""),
        ({"index": ()}, {}, ""),
        ({"index": ((3, 17),), "bad": 1}, {"sample_axis": 1}, "element [3, 17]"),
    ],
)
def test_the_first_bad_element(where, facts, words):
    assert first_bad(origin("log", facts=facts, **where)) == words


def test_a_weight_has_no_samples():
    grown = origin("mm", tensor(parameter="w"), index=((3, 17),), bad=1, shape=(16, 32))
    assert first_bad(grown) == "element [3, 17]"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        ({"time_step": 0}, ""),
        ({"time_step": 36}, ", at the 37th call of `log`"),
        ({"time_step": 1}, ", at the 2nd call of `log`"),
        ({"micro_batch": 2, "micro_batches": 4}, ", in micro-batch 2 of 4"),
        ({"micro_batch": 1, "micro_batches": 1}, ""),
        ({"call": 2, "calls": 3}, ", in call 2 of 3"),
    ],
)
def test_the_moment_within_the_step(facts, words):
    assert moment(origin("log", facts=facts)) == words


def test_what_happened_is_told_as_far_as_it_is_known():
    assert made(origin("log", value=-INF)) == "`log` in `head` made -Inf in 14 of 512 values"
    assert made(origin(None)) == "`head` returned NaN in 14 of 512 values"
    assert made(Origin("forward", value=NAN)) == "the forward pass made NaN"


def test_what_follows_points_to_the_origin_and_what_is_unknown_says_why():
    assert following("nonfinite-loss", Reading(3), ["a."]) == ({}, ["a."])
    assert following("nonfinite-loss", Reading(3, origin=origin("log", phase="loss")), ["a."]) == ({}, ["a."])
    linked, advice = following("nonfinite-loss", Reading(3, origin=origin("log")), ["a."])
    assert linked == {"because": "nonfinite-activation"}
    assert "nonfinite-activation" in advice[0]
    unknown = Reading(3, origin=Origin("", note="the inputs were changed in place"))
    note = "The inputs were changed in place."
    assert following("nonfinite-loss", unknown, ["a."]) == ({"note": note}, ["a.", note])


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("aten.sqrt", "sqrt"),
        ("aten.sqrt_.default", "sqrt"),
        ("aten._softmax.default", "_softmax"),
        ("SqrtBackward0", "sqrt"),
        ("LinalgVectorNormBackward0", "linalg_vector_norm"),
        ("mine.op", "mine.op"),
        ("sqrt.default", "sqrt"),
        ("div.Tensor", "div"),
        ("", ""),
        (None, ""),
    ],
)
def test_the_short_name_of_an_op(name, word):
    assert short(name) == word
