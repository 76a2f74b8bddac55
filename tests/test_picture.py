"""The line of code where a fault began, with its mark, as strings at several widths."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from seismograd.detectors import DEFAULT
from seismograd.judge import Judge
from seismograd.records import Finding, Operand, Origin, Reading, Severity, Where
from seismograd.reports.report import build_report
from seismograd.reports.terminal import render_finding, render_verdict
from seismograd.reports.words import describe_evidence

CODE = "        h = torch.sqrt(h)"
SQRT = Origin(
    "backward",
    Where("encoder.3", op="aten.div", file="train.py", line=42, code=CODE),
    "aten.sqrt",
    columns=(12, 25),
    value=math.inf,
    bad=14,
    size=512,
    index=((3, 17),),
    shape=(16, 32),
    dtype="float32",
    inputs=(Operand("self", (16, 32), "float32", 0.0, 3.1, 512, zeros=14),),
    note="the loss was taken from the first run",
    facts={"autocast": "bfloat16"},
)


def found(origin: Origin, loss: float = 0.7) -> Judge:
    judge = Judge(DEFAULT)
    judge.observe(Reading(12, {"loss": loss, "grad/norm": math.nan}, origin=origin))
    return judge


def drawn(code: str, columns: Any = None, **evidence: Any) -> Finding:
    evidence = {"origin": "forward", "columns": columns, **evidence}
    where = Where(op="aten.log", file="a.py", line=evidence.pop("line", 7), code=code)
    return Finding("x", Severity.CRITICAL, 1, "it is bad", where=where, evidence=evidence)


def text(shown: Any, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(shown)
    return out.getvalue()


def test_an_origin_is_shown_as_compilers_do() -> None:
    assert text(render_finding(found(SQRT).findings[0])) == (
        "critical[nonfinite-gradient]: The gradient's norm is NaN at step 12, while the\n"
        "    loss was finite (0.7). sqrt has an infinite derivative at 0; 14 of 512\n"
        "    inputs are exactly 0.\n"
        "  --> train.py:42, module encoder.3, op aten.sqrt in backward, step 12\n"
        "   |\n"
        "42 |     h = torch.sqrt(h)\n"
        "   |         ^^^^^^^^^^^^^ aten.sqrt: inputs 0 to 3.1, 14 of 512 are 0\n"
        "   = first bad: sample 3, feature 17 [3, 17] (and 13 more)\n"
        "   = note: The loss was taken from the first run.\n"
        "   = evidence: autocast=bfloat16, norm=NaN, loss=0.7\n"
        "   = help: Add the epsilon inside, not after it: `torch.sqrt(x + 1e-8)`.\n"
        "   = help: Exact zeros come from ReLU, dropout, padding and masks, or from the\n"
        "           difference of equal things.\n"
        "   = help: Until it is mended, skip steps whose gradient norm is not finite, so\n"
        "           that the weights survive.\n"
    )


def test_in_brief_the_mark_stays_and_the_rest_goes() -> None:
    shown = text(render_finding(found(SQRT).findings[0], brief=True))
    assert "42 |     h = torch.sqrt(h)\n   |         ^^^^^^^^^^^^^\n   = help: Add the epsilon" in shown
    assert not any(word in shown for word in ("first bad", "note:", "evidence", "inputs 0 to"))


def test_one_event_is_one_fault_and_the_others_follow_in_the_verdict() -> None:
    log = Origin("forward", Where("head", op="aten.log", code="y = log(x)", line=3, file="a.py"), value=-math.inf)
    shown = text(render_verdict(build_report(run={"steps": 20}, findings=found(log, math.nan).findings)), 120)
    assert shown.count("\ncritical[") == 1
    assert "   = then: critical[nonfinite-loss]: The loss is NaN at step 12" in shown
    assert "   = then: critical[nonfinite-gradient]: The gradient's norm is NaN at step 12" in shown


def test_the_report_draws_the_same_as_the_finding() -> None:
    findings = found(SQRT).findings
    from_report = text(render_verdict(build_report(run={"steps": 20}, findings=findings)))
    assert text(render_finding(findings[0])) in from_report


def test_without_columns_there_is_the_code_and_no_mark() -> None:
    assert "\n7 |     y = log(x)\n" in text(render_finding(drawn("  y = log(x)"))).replace("\n ", "\n")
    assert "^" not in text(render_finding(drawn("  y = log(x)")))


@pytest.mark.parametrize("columns", [[5, 5], [9, 2], [-1, 3], [3], "ab", [None, 4], [90, 99]])
def test_columns_that_make_no_sense_are_left_out(columns: Any) -> None:
    shown = text(render_finding(drawn("  y = log(x)", columns)))
    assert " 7 |     y = log(x)\n" in shown
    assert "^" not in shown


def test_a_mark_ends_with_the_line() -> None:
    assert "\n   |         ^^^^^ aten.log\n" in text(render_finding(drawn("  y = log(x", [6, 99])))


def test_the_bar_moves_with_the_number_of_the_line() -> None:
    shown = text(render_finding(drawn("    y = log(x)", [8, 14], line=12345, first_bad="sample 1 [1]")))
    assert shown == (
        "critical[x]: it is bad\n"
        "     --> a.py:12345, op aten.log, step 1\n"
        "      |\n"
        "12345 |     y = log(x)\n"
        "      |         ^^^^^^ aten.log\n"
        "      = first bad: sample 1 [1]\n"
    )


def test_tabs_and_wide_letters_keep_the_mark_in_place() -> None:
    shown = text(render_finding(drawn("\t\t名 = log(x)", [6, 12])))
    assert " 7 |     名 = log(x)\n   |          ^^^^^^ aten.log\n" in shown


def test_of_a_long_line_the_mark_is_kept() -> None:
    code = "    out = " + "first(x) + " * 20 + "torch.log(y)" + " * last(z)" * 20
    at = code.index("torch.log(y)")
    lines = text(render_finding(drawn(code, [at, at + 12])), 60).splitlines()
    numbered = next(line for line in lines if line.startswith(" 7 |"))
    mark = lines[lines.index(numbered) + 1]
    assert numbered[mark.index("^") :].startswith("torch.log(y)")
    assert mark.count("^") == 12
    assert len(numbered) <= 60
    assert numbered.count("…") == 2


def test_a_mark_wider_than_the_terminal_shows_its_beginning() -> None:
    code = "x = call(" + "a, " * 60 + "b)"
    shown = text(render_finding(drawn(code, [4, len(code)])), 60)
    assert "call(a, a, " in shown
    assert max(len(line) for line in shown.splitlines()) <= 60


@pytest.mark.parametrize("width", [1, 5, 10, 24, 40, 79, 200])
def test_it_fits_any_width(width: int) -> None:
    for brief in (False, True):
        for line in text(render_finding(found(SQRT).findings[0], brief=brief), width).splitlines():
            assert len(line) <= width
            assert line == line.rstrip()


def test_a_label_too_long_for_its_line_stands_below_it() -> None:
    inputs = [{"name": n, "low": -1.5, "high": 2.25, "size": 512, "zeros": 3} for n in ("self", "other")]
    shown = text(render_finding(drawn("    y = a / b", [8, 13], inputs=inputs)), 60)
    assert (
        "   |         ^^^^^\n"
        "   | aten.log: self -1.5 to 2.25, 3 of 512 are 0; other -1.5\n"
        "   | to 2.25, 3 of 512 are 0\n"
    ) in shown


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"name": "self", "low": 0.0, "high": 0.0, "size": 1, "zeros": 1}, "aten.log: input 0"),
        ({"name": "self", "low": 0.0, "high": 2.0, "size": 9, "inf": 1}, "aten.log: inputs 0 to 2, 1 of 9 is infinite"),
        ({"name": "self", "size": 9, "nan": 9}, "aten.log: inputs 9 of 9 are NaN"),
        ({"name": "weight", "parameter": "fc.weight", "low": -1.0, "high": 2.0}, "aten.log: fc.weight -1 to 2"),
        ({"name": "self"}, "^ aten.log\n"),
    ],
)
def test_what_went_in_is_told_in_few_words(data: dict[str, Any], words: str) -> None:
    assert words in text(render_finding(drawn("y = log(x)", [4, 10], inputs=[data])), 120)


def test_notes_of_how_it_was_found() -> None:
    shown = text(render_finding(drawn("y = f(x)", [4, 8], library="transformers/x.py:9", compiled=True, note="So.")))
    assert "   = note: So.\n" in shown
    assert "   = note: inside a library, at transformers/x.py:9\n" in shown
    assert "   = note: found by running the model without torch.compile\n" in shown
    doubt = Finding("x", Severity.CRITICAL, 1, "it is (unsure: so)", evidence={"origin": "forward", "note": "So."})
    assert "note" not in text(render_finding(doubt)), "the message has said it"


def test_evidence_without_an_origin_is_told_in_full() -> None:
    assert describe_evidence({"op": "x", "size": 3}) == "op=x, size=3"
    assert describe_evidence({"op": "x", "size": 3, "origin": "loss", "norm": 2.0}) == "norm=2"
