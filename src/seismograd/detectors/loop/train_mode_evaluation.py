"""`train-mode-evaluation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class TrainModeEvaluation:
    """The model is evaluated in training mode: dropout and batch statistics are live.

    Why it matters
    --------------
    Dropout makes the figures worse than the model is, and different each time; batch norm makes each sample's output
    depend on the others of its batch, and learns its running statistics from the validation data.

    How it is judged
    ----------------
    An evaluation is a series of calls of a trained model, between two steps, that no backward pass uses: without
    gradients, or with a graph that nobody needs. All its calls have to be in training mode with dropout or running
    statistics live, on other data than those trained on: another data set of a `DataLoader`, or another tensor. It is
    told at once if a loss is computed there, else after one of `many` calls or after `repeats` evaluations. Where it
    cannot be known whether the data were trained on, `many` losses in a row are needed. Nothing is said where the model
    was in evaluation mode at any other evaluation, where the same input is asked several times (dropout as a measure of
    doubt), where statistics are made anew (`update_bn`), and of outputs that nobody compares with anything: samples of
    a generator, actions of a policy.

    Where the model is in evaluation mode, dropout counts that does not know of it: `F.dropout(x)` without `training`,
    an `nn.Dropout` that is made in `forward`, a rate for `scaled_dot_product_attention`.

    What to try
    -----------
    `model.eval()` before the evaluation and `model.train()` after it, together with `torch.no_grad()`, which changes no
    mode.

    An example
    ----------
    Gradients are off, but dropout is not:

        with torch.no_grad():
            for x, y in val_loader:
                correct += (model(x).argmax(1) == y).sum()
    """

    id: ClassVar[str] = "train-mode-evaluation"
    needs: ClassVar[tuple[str, ...]] = ("facts/modes",)
    follows: ClassVar[tuple[str, ...]] = ("detached-loss",)  # a step that never reaches the model looks like one

    repeats: int = 2
    many: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_blocks", "_detector", "_knows")

    def __init__(self, detector: TrainModeEvaluation) -> None:
        self._detector = detector
        self._blocks = 0
        self._knows = False  # the user switches to evaluation mode, elsewhere

    def check(self, reading: Reading) -> Finding | None:
        told = None
        if functional := reading.facts["modes"].get("functional"):
            return self._tell_of_functions(reading, functional)
        for block in reading.facts["modes"].get("evaluations", ()):
            self._knows |= block["off"] > 0
            if not self._knows and self._is_live(block):
                self._blocks += 1
                if self._is_certain(block):
                    told = self._tell(reading, block)
        return told

    def _tell_of_functions(self, reading: Reading, calls: Sequence[Mapping[str, Any]]) -> Finding:
        first = calls[0]
        what, rate, line = first["what"], first["rate"], f"{first['file']}:{first['line']}"
        message = (
            f"Dropout is live although the model is in evaluation mode: `{what}` with a rate of {rate:g} at {line} does"
            " not know of the mode."
        )
        advice = {
            "F.dropout": "Hand it the mode: `F.dropout(x, p, training=self.training)`, or use an `nn.Dropout`.",
            "nn.Dropout": "Make the `nn.Dropout` in `__init__`, so that `model.eval()` reaches it.",
        }.get(what, "Hand it the mode: `dropout_p=self.p if self.training else 0.0`.")
        evidence = {"what": what, "rate": rate, "calls": [f"{call['file']}:{call['line']}" for call in calls]}
        where = Where(phase="forward", file=first["file"], line=first["line"], code=first["code"])
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=[advice], where=where)

    def _is_live(self, block: Mapping[str, Any]) -> bool:
        """Whether it is an evaluation on other data, all of it in training mode."""
        if block["live"] < block["calls"] or block["resets"] or block["repeats"] or block["known"]:
            return False
        if block["losses"]:
            return bool(block["strange"] or block["losses"] >= self._detector.many)
        return bool(block["loaded"] == block["calls"] or (block["strange"] == block["calls"] and block["classes"]))

    def _is_certain(self, block: Mapping[str, Any]) -> bool:
        limits = self._detector
        return bool(block["losses"] or block["calls"] >= limits.many or self._blocks >= limits.repeats)

    def _tell(self, reading: Reading, block: Mapping[str, Any]) -> Finding:
        limits, dropout, norms = self._detector, block["dropout"], block["norms"]
        effects = [f"{names(dropout)} still drop{'s' * (len(dropout) == 1)} values"] if dropout else []
        if norms:
            one = "s" * (len(norms) == 1)
            effects.append(f"{names(norms)} use{one} the batch's statistics and learn{one} from it")
        what = "1 call" if block["calls"] == 1 else f"{block['calls']} calls"
        message = (
            f"The model was evaluated in training mode after step {reading.step} ({what}): {' and '.join(effects)}."
        )
        evidence = {
            "calls": block["calls"],
            "losses": block["losses"],
            "with_graph": block["with_graph"],
            "evaluations": self._blocks,
            "dropout": dropout[:8],
            "norms": norms[:8],
        }
        advice = ["Call `model.eval()` before the evaluation and `model.train()` after it."]
        if block["with_graph"]:
            advice.append("Put the evaluation under `torch.no_grad()`: it builds graphs that nobody uses.")
        else:
            advice.append("`torch.no_grad()` only saves memory and time: it switches neither dropout nor batch norm.")
        where = Where(phase="forward", file=block.get("file"), line=block.get("line"), code=block.get("code"))
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=where)
