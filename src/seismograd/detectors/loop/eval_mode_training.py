"""`eval-mode-training`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class EvalModeTraining:
    """The model is trained in evaluation mode: dropout drops nothing, batch norm uses old statistics.

    Why it matters
    --------------
    Nobody notices: the loss falls, faster even, since dropout is off. But the model is trained without the
    regularisation that it was built with, and batch norm normalises with running statistics that no longer follow the
    weights. Most often `model.eval()` stands in the validation, and `model.train()` only before the first epoch.

    How it is judged
    ----------------
    Dropout with a rate above zero and norms with running statistics count, unless their own weights are frozen. If an
    optimizer has made steps with some of them in training mode, and then makes `steps` in a row with the model and all
    of them in evaluation mode, the model was left there. If it never was in training mode, `never` steps are waited
    for, and at least `share` of the model's weights have to be trained: a new head on a frozen model is often trained
    like that, with good reason. Where the model itself is in training mode and only its norms or its backbone are not,
    that was meant, and nothing is said.

    What to try
    -----------
    `model.train()` at the beginning of every epoch, and after each validation. Where only batch norm is to be frozen,
    call `model.train()` and then `eval()` on the norms.

    An example
    ----------
    `validate` calls `model.eval()`, so that every epoch but the first is trained in evaluation mode:

        model.train()
        for epoch in range(10):
            train_epoch(model)
            validate(model)
    """

    id: ClassVar[str] = "eval-mode-training"
    needs: ClassVar[tuple[str, ...]] = ("facts/modes",)
    follows: ClassVar[tuple[str, ...]] = ()

    steps: int = 3
    never: int = 5
    share: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: EvalModeTraining) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        quiet, limits = reading.facts["modes"].get("quiet"), self._detector
        if quiet is None:
            return None
        dropout, norms = quiet["dropout"], quiet["norms"]
        steps, before = quiet["steps"], quiet["steps_before"]
        if not dropout and not norms:
            return None
        if steps < limits.steps or (not before and (steps < limits.never or quiet["share_trained"] < limits.share)):
            return None
        effects = [f"{names(dropout)} drop{'s' * (len(dropout) == 1)} nothing"] if dropout else []
        effects += [f"{names(norms)} use{'s' * (len(norms) == 1)} old statistics"] if norms else []
        since = reading.step - steps + 1
        evaluated = quiet["evaluated"]
        if before:
            at = f" at {evaluated['file']}:{evaluated['line']}" if "file" in evaluated else ""
            message = (
                f"The model was left in evaluation mode by the evaluation{at} before step {since}, and is trained in"
            )
            message += f" it: {' and '.join(effects)}."
        else:
            message = f"The model has been trained in evaluation mode from the start: {' and '.join(effects)}."
        evidence = {
            "steps": steps,
            "steps_before": before,
            "limit": limits.steps if before else limits.never,
            "dropout": dropout[:8],
            "norms": norms[:8],
            "evaluated": evaluated,
        }
        advice = ["Call `model.train()` before each epoch of training, and again after every `model.eval()`."]
        if not before:
            advice.append(
                "Models that are loaded ready-made come in evaluation mode (`from_pretrained`): call `model.train()`"
                " once they are there."
            )
        advice.append("If only the norms are to stay as they are: `model.train()`, then `eval()` on the norms alone.")
        where = Where(phase="forward", file=quiet.get("file"), line=quiet.get("line"), code=quiet.get("code"))
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=where, step=since)
