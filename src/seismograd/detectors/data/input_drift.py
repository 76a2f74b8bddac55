"""`input-drift`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.running import Window
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class InputDrift:
    """Batches unlike all before them: the scale of the inputs has jumped.

    Why it matters
    --------------
    A file that was not normalised, a branch that forgets to divide by 255, a sensor that went blank: the model gets
    numbers that it has never seen, the loss jumps, and large inputs throw the weights off.

    How it is judged
    ----------------
    By mean and standard deviation of what each model is given, against the last 64 batches, of which there have to be
    `batches`. A batch is strange if its deviation differs from their median by a factor of `factor` and by eight times
    their own spread, and from each of them by a factor of two, or its mean by `factor` deviations, and if that came
    about at once. If `stays` in a row are strange, or as many of the last 20, or in `within` steps, that is a warning;
    so is a batch that is one number throughout, and not zero. A single one is only mentioned, and so explains a jump
    of the loss at the same step. What changes slowly is left alone, as experience, curricula and growing buffers do; so
    are inputs that are nearly all zeros, which have no scale of that kind.

    What to try
    -----------
    Look at where the batches of the named step come from, and normalise all sources in the same place.

    An example
    ----------
    The second half of the files holds bytes, the first half was scaled when it was written:

        x = torch.from_numpy(np.load(path)).float()  # 0 to 1 in some, 0 to 255 in others
    """

    id: ClassVar[str] = "input-drift"
    needs: ClassVar[tuple[str, ...]] = ("facts/batches",)
    follows: ClassVar[tuple[str, ...]] = ("loss-explosion", "gradient-explosion", "loss-spike")

    batches: int = 16
    factor: float = 8.0
    stays: int = 4
    within: int = 500

    def start(self) -> _Checker:
        return _Checker(self)


_TWICE = math.log(2.0)
_SPARSE = 0.05


class _Usual:
    """What one model is usually given."""

    __slots__ = ("deviations", "filled", "last", "means", "seen", "since", "strange", "streak")

    def __init__(self) -> None:
        self.deviations, self.means, self.filled = Window(64), Window(64), Window(64)
        self.strange: deque[bool] = deque(maxlen=20)
        self.seen: deque[int] = deque(maxlen=64)  # the steps of strange ones
        self.streak, self.since = 0, -1
        self.last = (0.0, 0.0)

    def add(self, mean: float, logarithm: float, filled: float) -> None:
        self.filled.add(filled)
        self.means.add(mean)
        self.deviations.add(logarithm)
        self.last = (mean, logarithm)


class _Checker:
    __slots__ = ("_detector", "_usual")

    def __init__(self, detector: InputDrift) -> None:
        self._detector = detector
        self._usual: dict[str, _Usual] = {}

    def check(self, reading: Reading) -> Finding | None:
        told = None
        for name, given in reading.facts["batches"].get("inputs", {}).items():
            mean, deviation = given["mean"], given["std"]
            if not (math.isfinite(mean) and math.isfinite(deviation)):
                continue
            if name not in self._usual and len(self._usual) >= 16:
                continue
            told = self._judge(reading, name, mean, deviation, given["filled"]) or told
        return told

    def _judge(self, reading: Reading, name: str, mean: float, deviation: float, filled: float) -> Finding | None:
        limits, usual = self._detector, self._usual.setdefault(name, _Usual())
        logarithm = math.log(max(deviation, 1e-12))
        if len(usual.means) < limits.batches:
            usual.add(mean, logarithm, filled)
            return None
        level, centre = usual.deviations.median, usual.means.median
        reach = max(math.log(limits.factor), 8.0 * usual.deviations.spread)
        far = max(limits.factor * max(math.exp(level), deviation), 8.0 * usual.means.spread)
        strange = min(abs(logarithm - level), 1.4 * abs(logarithm - usual.last[1])) > reach
        strange &= not usual.deviations.lowest - _TWICE < logarithm < usual.deviations.highest + _TWICE
        strange |= min(abs(mean - centre), 1.4 * abs(mean - usual.last[0])) > far
        strange &= usual.filled.median > _SPARSE
        usual.strange.append(strange)
        if not strange:
            usual.add(mean, logarithm, filled)
            usual.streak = 0
            return None
        usual.streak += 1
        usual.seen.append(reading.step)
        while usual.seen[0] <= reading.step - limits.within:
            usual.seen.popleft()
        blank = deviation == 0.0 and mean != 0.0
        stays = blank or max(len(usual.seen), sum(usual.strange)) >= limits.stays
        if sum(usual.strange) == 1 and len(usual.seen) == 1:
            usual.since = reading.step
        finding = self._tell(reading, name, usual, (mean, deviation), stays)
        if usual.streak >= 20:  # it is the usual now
            self._usual[name] = _Usual()
        return finding

    def _tell(self, reading: Reading, name: str, usual: _Usual, now: tuple[float, float], stays: bool) -> Finding:
        limits, lately = self._detector, max(len(usual.seen), sum(usual.strange))
        centre, scale = usual.means.median, math.exp(usual.deviations.median)
        several = lately > 1 and stays
        when = f"{lately} batches since step {usual.since}" if several else f"The batch of step {reading.step}"
        message = (
            f"{when} {'are' if several else 'is'} unlike all before: `{name}` is given a mean of {number(now[0])} and a"
            f" standard deviation of {number(now[1])}, usual were {number(centre)} and {number(scale)}."
        )
        evidence = {
            "mean": now[0],
            "std": now[1],
            "usual_mean": centre,
            "usual_std": scale,
            "factor": now[1] / scale if scale > 0 else math.inf,
            "limit": limits.factor,
            "batches": lately,
        }
        advice = [
            f"Look at where the batches from step {usual.since} on come from: a source that is not normalised as the"
            " others are, a file that is broken."
            if stays
            else f"Look at the batch of step {reading.step}.",
        ]
        severity = Severity.WARNING if stays else Severity.INFO
        where = Where(module=name, phase="input")
        step = usual.since if stays else reading.step
        return found(limits, reading, severity, message, evidence, advice=advice, where=where, step=step)
