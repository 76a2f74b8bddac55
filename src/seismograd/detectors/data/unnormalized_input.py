"""`unnormalized-input`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.data.tasks import Labels, Numbers, Step, cost, step_of
from seismograd.detectors.running import median
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class UnnormalizedInput:
    """Inputs reach the first layer at a scale that it cannot learn from, and it shows.

    Why it matters
    --------------
    Layers are initialised, and learning rates chosen, for inputs of about 1. Pixels up to 255 or incomes of 50,000
    make the first outputs hundreds of times too large, one column drowns all others, and every step is too long for it
    and too short for the rest.

    How it is judged
    ----------------
    By what goes into the first layers that mix features (linear, convolution, recurrent), after whatever the model
    does to it: dividing by 255 or a norm layer in the model is as good as anywhere else. The scale is bad where a
    column's root mean square is above `large` or below `small`, or one is more than `ratio` times another. That
    alone says nothing. It is found together with an effect:

    - the loss leaps up or stops being finite within the first 200 steps;
    - the first loss, or one of the next four, is more than `excess` times what knowing nothing costs (the entropy of
      the labels, the square of the targets), and 20 steps later it is still ten times that, or twice that and not even
      halved, or 40 steps later not below it. A run that gets over it is only told of;
    - after `patience` steps the loss is still what knowing nothing costs.

    What to try
    -----------
    Standardise: subtract the mean of each column (or channel) over the training data and divide by its deviation;
    divide pixels by 255. Or put a norm layer first. Do the same in evaluation, with the training data's numbers.

    An example
    ----------
    Pixels from 0 to 255, as files hold them:

        x = torch.from_numpy(images).float()                    # up to 255
        x = torch.from_numpy(images).float() / 255              # instead; better still:
        x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    """

    id: ClassVar[str] = "unnormalized-input"
    needs: ClassVar[tuple[str, ...]] = ("loss|facts/data",)
    follows: ClassVar[tuple[str, ...]] = ("nonfinite-input", "input-drift")

    large: float = 30.0
    small: float = 0.01
    ratio: float = 1e4
    excess: float = 5.0
    patience: int = 150

    def start(self) -> _Checker:
        return _Checker(self)


_EARLY = 5


class _Checker:
    __slots__ = (
        "_detector",
        "_early",
        "_first",
        "_input",
        "_labels",
        "_last",
        "_losses",
        "_numbers",
        "_start",
        "_told",
        "_values",
    )

    def __init__(self, detector: UnnormalizedInput) -> None:
        self._detector = detector
        self._input: Mapping[str, Any] | None = None
        self._labels, self._numbers = Labels(), Numbers()
        self._values: deque[float] = deque(maxlen=30)
        self._losses: deque[float] = deque(maxlen=5)
        self._first, self._start, self._last = math.nan, -1, math.nan
        self._early = 0  # losses so far, of which the highest of the first five counts as the first
        self._told = False

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts.get("data")
        if facts is None:
            loss = reading.scalars.get("loss")
            return None if loss is None else self._leap(reading, loss)
        for one in facts.get("inputs", ()):
            if self._is_bad(one) and (self._input is None or one["largest"] > self._input["largest"]):
                self._input = one
        if self._input is None and self._start >= 0:
            return None
        step = step_of(reading, "classes") or step_of(reading, "numbers")
        if step is None or not step.alone or step.weighted or not math.isfinite(step.value):
            return None
        if self._start < 0:
            self._start, self._first = reading.step, step.value
        self._early += 1
        if self._early <= _EARLY:
            self._first = max(self._first, step.value)
        self._labels.add(step.labels)
        if len(step.moments) >= 2:
            self._numbers.add(step.moments[0], step.moments[1])
        self._values.append(step.value)
        return None if self._input is None else self._judge(reading, step)

    def _is_bad(self, one: Mapping[str, Any]) -> bool:
        limits, largest, smallest = self._detector, one["largest"], one["smallest"]
        if not math.isfinite(largest) or largest <= 0.0:
            return False
        return bool(largest > limits.large or largest < limits.small or largest > limits.ratio * smallest)

    def _leap(self, reading: Reading, loss: float) -> Finding | None:
        """The loss has left its first value behind, or is no number any more."""
        one = self._input
        if self._last != self._last and math.isfinite(loss):
            self._last = abs(loss)
        if one is None or reading.step > 200 or one["largest"] < self._detector.large:
            return None
        self._losses.append(loss)
        far = len(self._losses) == 5 and min(map(abs, self._losses)) > 100.0 * self._last > 0.0
        if math.isfinite(loss) and not far:
            return None
        return self._found(
            reading, Severity.WARNING, f"the loss went from {number(self._last)} to {number(loss)}", {"loss": loss}
        )

    def _judge(self, reading: Reading, step: Step) -> Finding | None:
        limits, passed = self._detector, reading.step - self._start
        if step.labels:
            chance, nothing = self._labels.entropy, "guessing by the labels' frequency"
            size = chance
        else:
            chance, nothing = cost(step.name, self._numbers.std), "an output of zero"
            size = cost(step.name, self._numbers.size)
        if not chance > 1e-12 or (step.labels and chance < 0.05) or len(self._values) < 5:
            return None
        now = median(list(self._values)[-9:])
        evidence = {"first_loss": self._first, "loss": now, "chance": size, "excess": limits.excess}
        if self._first > limits.excess * size and passed >= 10:
            still = (passed >= 20 and now > max(2.0 * size, min(0.5 * self._first, 10.0 * size))) or (
                40 <= passed <= 200 and now > 0.97 * size
            )
            effect = (
                f"the loss began at up to {number(self._first)}, {number(self._first / size)} times that of {nothing}"
                f" ({number(size)}), and it is {number(now)} after {passed} steps"
            )
            return self._found(reading, Severity.WARNING if still else Severity.INFO, effect, evidence)
        if passed >= limits.patience and len(self._values) >= 20:
            mean = sum(self._values) / len(self._values)
            if mean > 0.97 * chance:
                effect = (
                    f"after {passed} steps the loss is {number(mean)}, what knowing nothing costs ({number(chance)})"
                )
                return self._found(reading, Severity.WARNING, effect, evidence | {"loss": mean, "chance": chance})
        return None

    def _found(self, reading: Reading, severity: Severity, effect: str, evidence: dict[str, Any]) -> Finding:
        one, limits = self._input, self._detector
        assert one is not None
        name = f"`{one['module']}`" if one["module"] else "the first layer"
        largest, smallest = float(one["largest"]), float(one["smallest"])
        column = f"column {int(one['column'])} of " if one["shape"][1] > 1 and len(one["shape"]) == 2 else ""
        if largest > limits.large:
            scale = f"{column}what goes into {name} is of size {number(largest)}"
            scale += f" (from {number(one['low'])} to {number(one['high'])})"
        elif largest < limits.small:
            scale = f"what goes into {name} is of size {number(largest)} at most"
        else:
            scale = f"{column}what goes into {name} is {number(largest / smallest)} times as large as another"
        message = f"The inputs are not normalised: {scale}; {effect}."
        numbers = {key: float(one[key]) for key in ("mean", "std", "low", "high", "largest", "smallest")}
        limit = {"limit": limits.large if largest > limits.large else limits.small}
        advice = ["Standardise each column by the training data: `x = (x - x.mean(0)) / x.std(0)`."]
        if len(one["shape"]) > 2 or 200.0 < one["high"] <= 255.0:
            advice = [
                "Scale pixels to about 1: `x = x / 255`, or `transforms.Normalize(mean, std)` after `ToTensor()`."
            ]
        advice.append("Or put a norm layer first (`nn.BatchNorm1d(features)`, `nn.LayerNorm(features)`).")
        return found(
            limits,
            reading,
            severity,
            message,
            {**numbers, **limit, **evidence},
            advice=advice,
            where=Where(module=one["module"] or None, phase="input"),
        )
