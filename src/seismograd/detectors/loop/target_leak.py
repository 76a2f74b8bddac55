"""`target-leak`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class TargetLeak:
    """The model can see what it is to predict.

    Why it matters
    --------------
    What is to be predicted stands in the input: a causal model without its mask reads the next word, a table holds its
    own label as a feature. The loss falls as never before, and in use, where the answer is not there yet, the model is
    worthless.

    How it is judged
    ----------------
    The future: where the target is the input moved on by one position, the model is called once more in evaluation mode
    with the last position changed, and everything is put back. No output before that position may change by more than
    rounding. A decoder: an input of words, beside another one, that equals the target, and the output at a position
    changes with it there. A column: over `batches` batches, a feature of the input that equals the target in every row;
    or, where the target is a class, goes with it by a correlation above `correlation`. A target that is the whole input
    (an autoencoder), masked words, and a source sequence beside the one that is predicted are left alone.

    What to try
    -----------
    Pass a causal mask (`nn.Transformer.generate_square_subsequent_mask`, `is_causal=True`), pad convolutions on the
    left only, use no bidirectional layer. Take the column out of the features, and cut windows so that they end before
    the target.

    An example
    ----------
    A language model of encoder layers, with and without its mask:

        h = self.encoder(self.embed(x))             # every position sees all words
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        h = self.encoder(self.embed(x), mask=mask)  # every position sees those before it
    """

    id: ClassVar[str] = "target-leak"
    needs: ClassVar[tuple[str, ...]] = ("facts/samples|facts/columns",)
    follows: ClassVar[tuple[str, ...]] = ()

    correlation: float = 0.9999
    batches: int = 4

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: TargetLeak) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        ahead = reading.facts.get("samples", {}).get("lookahead")
        if ahead and ahead["ahead"]:
            return self._future(reading, ahead, reading.facts["samples"].get("at") or {})
        given = reading.facts.get("samples", {}).get("given")
        if given and given["own"]:
            return self._given(reading, given, reading.facts["samples"].get("at") or {})
        column = reading.facts.get("columns")
        return self._column(reading, column) if column else None

    def _future(self, reading: Reading, ahead: Mapping[str, Any], at: Mapping[str, Any]) -> Finding:
        message = (
            f"The model sees the future: the target is the next position of the input, and with only the last of"
            f" {ahead['positions']} positions changed, the output of {ahead['ahead']} earlier ones changes too."
        )
        evidence = {name: ahead[name] for name in ("positions", "ahead", "largest", "output")}
        advice = [
            "Pass a causal mask: `mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))`, or"
            " `is_causal=True` for `scaled_dot_product_attention`.",
            "Pad convolutions on the left only (`F.pad(x, (kernel - 1, 0))`); use no bidirectional layer.",
        ]
        where = Where(phase="forward", **at)
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)

    def _given(self, reading: Reading, given: Mapping[str, Any], at: Mapping[str, Any]) -> Finding:
        message = (
            f"The model is given the target itself: an input equals it at all {given['positions']} positions, and the"
            " output at a position depends on that input at the same one."
        )
        evidence = {name: given[name] for name in ("positions", "output")}
        advice = ["Give the decoder the target moved on by one: `model(src, tgt[:, :-1])` against `tgt[:, 1:]`."]
        where = Where(phase="forward", **at)
        return found(self._detector, reading, Severity.CRITICAL, message, evidence, advice=advice, where=where)

    def _column(self, reading: Reading, told: Mapping[str, Any]) -> Finding | None:
        limits = self._detector
        if told["batches"] < limits.batches or not told["varies"]:
            return None
        if not told["equal"] and not (told["classes"] and told["correlation"] > limits.correlation):
            return None
        how = "equals it" if told["equal"] else f"goes with it exactly (a correlation of {told['correlation']:.5f})"
        message = (
            f"The input holds the target: in all {told['rows']} rows of {told['batches']} batches column"
            f" {told['column']} of the input {how}."
        )
        evidence = {name: told[name] for name in ("column", "correlation", "equal", "rows", "batches")}
        evidence["limit"] = limits.correlation
        advice = [
            f"Take column {told['column']} out of the features, or move the window so that it ends before the target."
        ]
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)
