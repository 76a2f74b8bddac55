"""`unnormalized-target`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.data.tasks import Numbers, Step, step_of
from seismograd.detectors.running import median
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class UnnormalizedTarget:
    """Targets are so large that the output would need thousands of steps to get there, or steps fly apart.

    Why it matters
    --------------
    A fresh model puts out numbers around zero. Where targets are house prices, its last bias alone has to travel
    200,000, and each step moves it by about the learning rate. The loss falls a little at each step, so the run looks
    as if it learned; all it learns is the mean. With plain SGD the first gradients are as large as the targets,
    and the weights are gone at once.

    How it is judged
    ----------------
    Where backward starts from a squared or absolute error of torch's, and from nothing else: targets are more than
    `large` in root mean square and more than `large` times the first outputs. That alone says nothing; many runs
    learn targets of 100 quickly. It is found with an effect: from `patience` steps on, the outputs have come so
    small a part of their way that even with growing speed it would take `far` steps, or the loss leaps up or
    stops being finite within the first 200 steps.

    What to try
    -----------
    Train on `(y - y.mean()) / y.std()`, with the training data's numbers, and undo it on the output. Or take the
    logarithm of prices and counts. Or set the last bias to the targets' mean.

    An example
    ----------
    House prices, as they are:

        loss = F.mse_loss(model(x), price)                          # 4e10
        loss = F.mse_loss(model(x), (price - mean) / std)           # instead: about 1
    """

    id: ClassVar[str] = "unnormalized-target"
    needs: ClassVar[tuple[str, ...]] = ("loss|facts/data",)
    follows: ClassVar[tuple[str, ...]] = ("nonfinite-input", "broadcast-loss")

    large: float = 30.0
    patience: int = 25
    far: float = 3000.0

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_errors", "_first", "_losses", "_numbers", "_output", "_outputs", "_start")

    def __init__(self, detector: UnnormalizedTarget) -> None:
        self._detector = detector
        self._numbers = Numbers()
        self._errors: deque[float] = deque(maxlen=9)
        self._outputs: deque[tuple[float, float]] = deque(maxlen=9)
        self._losses: deque[float] = deque(maxlen=3)
        self._output: tuple[float, float] | None = None
        self._first, self._start = math.nan, -1

    def check(self, reading: Reading) -> Finding | None:
        if "data" not in reading.facts:
            loss = reading.scalars.get("loss")
            return None if loss is None else self._leap(reading, loss)
        step = step_of(reading, "numbers")
        if step is None or not step.alone or len(step.moments) < 2:
            return None
        self._numbers.add(step.moments[0], step.moments[1])
        if len(step.moments) == 4 and all(map(math.isfinite, step.moments)):
            if self._output is None:
                self._output, self._start = (step.moments[2], step.moments[3]), reading.step
            self._outputs.append((step.moments[2], step.moments[3]))
        return self._judge(reading, step)

    @property
    def _is_large(self) -> bool:
        """Whether targets are far beyond what the model puts out at first."""
        size, first = self._numbers.size, self._output
        if first is None or not math.isfinite(size):
            return False
        return size > self._detector.large and size > self._detector.large * math.hypot(*first)

    def _leap(self, reading: Reading, loss: float) -> Finding | None:
        if self._first != self._first and math.isfinite(loss):
            self._first = abs(loss)
        if reading.step > 200 or not self._is_large or self._start < 0:
            return None
        self._losses.append(loss)
        far = len(self._losses) == 3 and min(map(abs, self._losses)) > 1e3 * self._first > 0.0
        if math.isfinite(loss) and not far:
            return None
        effect = f"the loss went from {number(self._first)} to {number(loss)} in {reading.step} steps"
        return self._found(reading, effect, {"first_loss": self._first, "loss": loss})

    def _judge(self, reading: Reading, step: Step) -> Finding | None:
        limits, passed = self._detector, reading.step - self._start
        if not self._is_large or passed < limits.patience or len(self._outputs) < 9:
            return None
        assert self._output is not None
        mean, std = median([one[0] for one in self._outputs]), median([one[1] for one in self._outputs])
        numbers = self._numbers
        way = numbers.mean - self._output[0]
        gone = (mean - self._output[0]) / way if way else 1.0  # beyond 1: it has overshot, so it can move
        if abs(numbers.mean) < 0.5 * numbers.std:  # no offset to be learned: how much of the spread is there?
            if std < 1.05 * self._output[1]:
                return None  # maybe there is nothing to be learned
            gone = max(gone, std / numbers.std) if abs(mean) > 0.1 * abs(numbers.mean) else std / numbers.std
        needed = passed / math.sqrt(max(gone, 1e-9))
        if gone > 0.1 or needed < limits.far:
            return None
        effect = (
            f"after {passed} steps the output is {number(mean)} on average, {number(100 * max(gone, 0.0))} % of the way"
        )
        evidence = {"output_mean": mean, "output_std": std, "way": gone, "steps": passed, "loss": step.value}
        return self._found(reading, effect, evidence)

    def _found(self, reading: Reading, effect: str, evidence: dict[str, Any]) -> Finding:
        numbers, limits = self._numbers, self._detector
        assert self._output is not None
        message = (
            f"The targets are not normalised: {number(numbers.mean)} on average (deviation {number(numbers.std)}),"
            f" where the first outputs were about {number(math.hypot(*self._output))}; {effect}."
        )
        evidence = {
            "target_mean": numbers.mean,
            "target_std": numbers.std,
            "first_output": math.hypot(*self._output),
            "limit": limits.large,
            **evidence,
        }
        advice = [
            f"Train on `(y - {number(numbers.mean)}) / {number(numbers.std or 1.0)}`, and undo it on the output.",
            "For prices and counts, which are never negative, the logarithm is often better still.",
        ]
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice)
