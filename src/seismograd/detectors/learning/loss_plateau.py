"""`loss-plateau`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.beginning import SOLVED, Beginning
from seismograd.detectors.data.tasks import step_of
from seismograd.detectors.running import Welford
from seismograd.detectors.tables import Weights, column
from seismograd.detectors.wording import found, number, rates
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class LossPlateau:
    """The loss stays where it began: no progress where progress was still to be had.

    Why it matters
    --------------
    A run that does not learn looks like one that learns slowly, and can be waited for a long time.

    How it is judged
    ----------------
    In blocks of 25 readings. A stretch is flat as long as no block lies below (or above) the mean of the blocks
    before it by more than four standard errors, whatever the noise of single batches, and a line through it does not
    fall by more than one and a half; its mean has to be known to within `precision` of it. A flat stretch is a
    plateau only where progress was certainly to be had:

    - the weights stay the same to the last bit while a strong gradient reaches them that weight decay cannot balance,
      for `patience` steps;
    - the loss itself has stayed the same since the first readings (within a ten-thousandth), for `patience` steps,
      and nothing is known of weights and gradients;
    - the loss is what guessing among the model's own outputs gives, and does not fall below it, for two and a half
      times `patience` (not where it is known to compare numbers);
    - the loss has never come down since the first readings, its noise is below `spread`, and the model began with
      fresh random weights (or nothing is known of them), for three times `patience`: a warning.

    A loss that came down and levels off has converged, however high it is; one that came down to a hundred-thousandth
    has solved its task, and weights that stand still are right. Warm-up, the end of a decay, a gradient
    that grows (a run that leaves a saddle), a loss of zero or of changing sign, adversaries, and a run that was
    loaded at its optimum are left alone.

    What to try
    -----------
    Try to overfit one batch: if that fails too, the fault is in the model or the loop, not in the data. Check that
    the optimizer holds the model's parameters and steps, that gradients reach them, that labels belong to their
    inputs, and the learning rate.

    An example
    ----------
    The labels were shuffled, the inputs were not:

        y = y[torch.randperm(len(y))]                       # nothing left to learn
        order = torch.randperm(len(y)); x, y = x[order], y[order]    # instead
    """

    id: ClassVar[str] = "loss-plateau"
    needs: ClassVar[tuple[str, ...]] = ("loss|facts/data",)
    follows: ClassVar[tuple[str, ...]] = (
        "missing-step",
        "lost-gradient",
        "detached-loss",
        "missing-gradient",
        "unoptimized-parameter",
        "unregistered-parameter",
        "frozen-parameter",
        "scheduler-order",
        "nonfinite-input",
        "nonfinite-activation",
        "nonfinite-loss",
        "nonfinite-gradient",
        "nonfinite-parameter",
        "amp-scale-collapse",
        "precision-underflow",
        "bad-initialization",
        "lr-too-high",
        "lr-too-low",
        "lr-jump",
        "loss-explosion",
        "gradient-explosion",
        "gradient-vanishing",
        "weight-decay-dominates",
        "update-ratio-low",
        "dead-units",
        "saturated-units",
        "constant-output",
        "output-range",
        "double-softmax",
        "loss-input-mismatch",
        "shuffled-labels",
        "unnormalized-input",
        "unnormalized-target",
        "broadcast-loss",
        "missing-activation",
        "label-out-of-range",
        "missing-zero-grad",
    )

    patience: int = 100
    spread: float = 0.02
    precision: float = 0.01

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_beginning",
        "_block",
        "_detector",
        "_effect",
        "_first",
        "_first_step",
        "_gradient",
        "_highest_lr",
        "_kind",
        "_learned",
        "_lowest",
        "_lr",
        "_norms",
        "_pushed",
        "_samples",
        "_since",
        "_slope",
        "_still",
        "_stretch",
        "_top",
        "_unmoved",
        "_variance",
        "_weights",
    )

    def __init__(self, detector: LossPlateau) -> None:
        self._detector = detector
        self._first, self._block, self._gradient = Welford(), Welford(), Welford()
        self._stretch, self._variance, self._still, self._slope = Welford(), 0.0, 0, 0.0
        self._lowest, self._top, self._first_step, self._since = math.inf, -math.inf, 0, 0
        self._pushed, self._lr, self._highest_lr = math.inf, 0.0, 0.0
        self._beginning, self._weights = Beginning(), Weights()
        self._effect = math.nan
        self._norms: dict[str, float] = {}
        self._samples, self._unmoved, self._learned = 0, 0, False
        self._kind = ""  # "classes" or "numbers", where the data tell what the loss compares

    def check(self, reading: Reading) -> Finding | None:
        scalars = reading.scalars
        if "data" in reading.facts:
            self._learn_kind(reading)
            return None
        loss = scalars["loss"]
        if "parameter" in reading.tensors:
            self._look(reading, loss)
        if "update" in reading.tensors and self._moves(reading):
            self._norms, self._samples, self._unmoved = {}, 0, reading.step
        if not -1e150 < loss < 1e150:
            return None
        block = self._block
        if block.count == 0:
            self._since = reading.step
            if self._stretch.count == 0:
                self._first_step = reading.step
        block.add(loss)
        if self._first.count < 10:
            self._first.add(loss)
        self._lowest = min(self._lowest, loss)
        self._top = max(self._top, loss)
        norm = scalars.get("grad/norm", 0.0)
        if 0.0 < norm < 1e150:
            self._gradient.add(norm)
        if block.count < _BLOCK:
            return None
        return self._judge(reading)

    def _learn_kind(self, reading: Reading) -> None:
        for kind in ("classes", "numbers") if not self._kind else ():
            step = step_of(reading, kind)
            if step is not None and step.alone and not step.weighted:
                self._kind = kind

    def _look(self, reading: Reading, loss: float) -> None:
        """On sampled readings: do the weights move, and would the loss answer if they did?"""
        self._beginning.learn(reading)
        table = self._weights.learn(reading)
        gradients = reading.tensors.get("gradient")
        sizes = column(table, "norm") if table is not None else None
        pushes = column(gradients, "norm") if gradients is not None else None
        if table is None or gradients is None or sizes is None or pushes is None or "amp-skipped" in reading.marks:
            return
        pushed = {gradients.names[at]: float(pushes[at]) for at in self._weights.rows(gradients) if pushes[at] > 0.0}
        decay = max((value for name, value in reading.scalars.items() if name.startswith("weight_decay/")), default=0.0)
        norms = {
            table.names[at]: float(sizes[at])
            for at in self._weights.rows(table)
            if pushed.get(table.names[at], 0.0) > 3.0 * decay * float(sizes[at])  # else decay may hold the balance
        }
        if loss and math.isfinite(loss):
            self._effect = sum(pushed[name] * size for name, size in norms.items()) / abs(loss)
        same = len(norms) > 0 and norms == self._norms and self._effect > _STRONG
        self._samples = self._samples + 1 if same else 0
        if not same:
            self._unmoved = reading.step
        self._norms = norms

    def _moves(self, reading: Reading) -> bool:
        """Whether the last update that was looked at moved a weight matrix."""
        table = reading.tensors.get("update")
        ratios = column(table, "ratio") if table is not None else None
        return table is not None and ratios is not None and bool((ratios[self._weights.rows(table)] > 0.0).any())

    def _judge(self, reading: Reading) -> Finding | None:
        """At the end of a block: is the stretch still flat, and if so, should it be?"""
        block, stretch, limits = self._block, self._stretch, self._detector
        mean, noise, count = block.mean, block.std, block.count
        steady = self._lowest * self._top > 0.0 and reading.series is None  # adversaries hold each other level
        ready, grows = self._ready(reading)
        if stretch.count:
            before = math.sqrt(self._variance / stretch.count)
            error = 4.0 * math.sqrt((noise * noise + before * before / stretch.count) / _BLOCK) + 1e-9 * abs(mean)
            calmed = 5.0 * noise < before  # what was before says nothing of this stretch
            if abs(stretch.mean - mean) > error or calmed or not steady or not ready:
                self._restart(self._since)
        first = self._first
        if first.mean - mean > 3.0 * math.sqrt(first.std**2 / first.count + noise * noise / count) + 0.003 * abs(mean):
            self._learned = True
        block.clear()
        self._lowest, self._top = math.inf, -math.inf
        if not steady or not ready:
            self._restart(reading.step)
            return None
        self._slope += stretch.count * mean
        stretch.add(mean)
        self._variance += noise * noise
        level = abs(stretch.mean)
        self._still = self._still + count if noise <= 1e-4 * level else 0
        noise = math.sqrt(self._variance / stretch.count)
        error = noise / math.sqrt(count * stretch.count)
        steps, readings = reading.step - self._first_step + 1, count * stretch.count
        if readings < _BLOCK * 2 or steps < limits.patience or not error <= limits.precision * level:
            return None
        why = self._why(reading, steps, noise, grows)
        if why is None:
            return None
        return self._found(reading, why, stretch.mean, noise, steps)

    def _restart(self, step: int) -> None:
        """A new stretch from this step on: the loss has moved, or could not have."""
        self._stretch.clear()
        self._variance, self._still, self._first_step, self._slope = 0.0, 0, step, 0.0

    def _ready(self, reading: Reading) -> tuple[bool, bool]:
        """Whether the run could be learning (not in warm-up, nor after its decay), and whether its gradient grows."""
        lr, last = max(rates(reading.scalars), default=math.nan), self._lr
        gradient, before = self._gradient.mean, self._pushed
        self._lr, self._pushed = lr, gradient
        self._gradient.clear()
        self._highest_lr = max(self._highest_lr, lr)
        warming = last > 0.0 and lr > 1.01 * last
        return not (warming or lr == 0.0 or lr < 0.02 * self._highest_lr), gradient > 1.25 * before > 0.0

    def _why(self, reading: Reading, steps: int, noise: float, grows: bool) -> tuple[str, Severity] | None:
        """The reason why progress was to be had, None where it is not certain."""
        readings = _BLOCK * self._stretch.count
        error = noise / math.sqrt(readings)
        limits, beginning, mean = self._detector, self._beginning, self._stretch.mean
        if abs(mean) <= SOLVED * abs(self._first.mean):
            return None  # as close as its numbers can come
        if self._samples >= 3 and reading.step - self._unmoved >= 0.5 * limits.patience:
            return "weights", Severity.CRITICAL
        fall = self._fall(noise)
        if grows:
            return None
        first = self._first
        fell = self._learned or first.mean - mean > math.sqrt(first.std**2 / first.count + error * error) + 0.003 * abs(
            mean
        )
        strong, blind = not self._effect < _STRONG, math.isnan(self._effect)
        if blind and not (fell or fall) and self._still >= limits.patience and beginning.fresh is not False:
            return "still", Severity.CRITICAL
        classes = beginning.guess(mean) if self._kind != "numbers" else 0
        if classes and steps >= 2.5 * limits.patience and not (fall and mean - fall < math.log(classes)):
            return "guess", Severity.CRITICAL
        rose = mean - first.mean > 3.0 * first.std + 0.05 * abs(mean)
        if (
            not (fell or fall or rose)
            and (blind or noise > 1e-4 * abs(mean))
            and strong
            and noise <= limits.spread * abs(mean)
            and steps >= 3 * limits.patience
            and readings >= limits.patience
            and beginning.fresh is not False
        ):
            return "start", Severity.WARNING
        return None

    def _fall(self, noise: float) -> float:
        """How far a line through this stretch falls from its middle to its end; 0 where that is within its error."""
        count = self._stretch.count
        middle = 0.5 * (count - 1)
        width = count * (count * count - 1) / 12.0
        slope = (self._slope - middle * count * self._stretch.mean) / width
        error = noise / math.sqrt(_BLOCK * width)
        return -slope * middle if slope < -1.5 * error - 1e-9 * abs(self._stretch.mean) else 0.0

    def _found(self, reading: Reading, why: tuple[str, Severity], mean: float, noise: float, steps: int) -> Finding:
        reason, severity = why
        limits, start = self._detector, self._first.mean
        classes = self._beginning.guess(mean) or (_classes(mean) if not self._beginning.outputs else 0)
        message = f"The loss has not moved for {steps} steps: it is {number(mean)} and began at {number(start)}."
        if reason == "weights":
            message += " The weights have not changed by a single bit, although a gradient reaches them."
        elif classes:
            message += f" That is what guessing among {classes} classes gives."
        evidence = {
            "loss": float(mean),
            "start": float(start),
            "spread": float(noise / abs(mean)),
            "steps": steps,
            "limit": limits.patience,
            "reason": reason,
        }
        if classes:
            evidence["chance_of_classes"] = classes
        if reason == "weights":
            advice = [
                "Check that `optimizer.step()` runs, and that the optimizer was made from this model's parameters,"
                " not from those of an earlier one."
            ]
        elif noise <= 1e-6 * abs(mean):
            advice = [
                "Nothing changes at all: check that `optimizer.step()` runs and holds these parameters, and that"
                " the output depends on the input."
            ]
        else:
            advice = [
                "Only the batches differ, not the model: check that labels belong to their inputs, and that"
                " gradients reach every layer."
            ]
        advice.append("Try to overfit one batch; it must go to zero within some hundred steps.")
        lr = max(rates(reading.scalars), default=math.nan)
        if lr > 0.0 and reason != "weights":
            advice.append(f"Try a learning rate 10 times smaller and 10 times larger than {number(lr)}.")
        return found(limits, reading, severity, message, evidence, advice=advice)


_BLOCK = 25
_STRONG = 1e-3
"""A gradient is strong where moving every weight by its own size would change the loss by this share of it."""


def _classes(loss: float) -> int:
    """The number of classes among which guessing gives this loss, 0 if there is no such number."""
    if not 0.6 < loss < 2.4:
        return 0
    classes = round(math.exp(loss))
    return classes if abs(loss - math.log(classes)) < 0.01 * loss else 0
