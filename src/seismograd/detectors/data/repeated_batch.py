"""`repeated-batch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class RepeatedBatch:
    """The same batch is trained on again and again, although there are others.

    Why it matters
    --------------
    The model sees a small part of its data and learns it by heart. The training loss falls as it should, and faster,
    so nothing looks wrong until the model is evaluated.

    How it is judged
    ----------------
    By a fingerprint of each batch (its shape, some of its values and a sum), at `steps` steps in a row. It is one of
    three: a `DataLoader` with more than one batch is started anew at each step and gives the same first one; its
    batches are all the same, though it goes on from one to the next; or `torch.manual_seed` is called with the same
    seed at each step, and what is drawn is the same. Training on all the data at once, or on one batch that was taken
    before the loop, is left alone.

    What to try
    -----------
    `for x, y in loader:` instead of `next(iter(loader))`, or an iterator that is made once, before the loop; a seed
    that is set once, at the start of the program; a `__getitem__` that uses its index.

    An example
    ----------
    Every step makes a new iterator, and takes its first batch:

        for step in range(1000):
            x, y = next(iter(loader))
    """

    id: ClassVar[str] = "repeated-batch"
    needs: ClassVar[tuple[str, ...]] = ("facts/batches",)
    follows: ClassVar[tuple[str, ...]] = ()

    steps: int = 6

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: RepeatedBatch) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        again, limits = reading.facts["batches"].get("again"), self._detector
        if again is None or again["times"] < limits.steps:
            return None
        times, kind = again["times"], again["kind"]
        others = f" of its {again['batches']} batches" if again["batches"] > 0 else ""
        if kind == "first":
            message = (
                f"The same batch was trained on at {times} steps in a row: the loader is started anew at each step and"
                f" gives the first{others} every time."
            )
            advice = [
                "Loop over the loader (`for x, y in loader:`), or make the iterator once, before the loop.",
                "With `next(iter(loader))` on purpose, give the loader `shuffle=True`.",
            ]
        elif kind == "seed":
            message = (
                f"The same batch was trained on at {times} steps in a row: `torch.manual_seed({again['seed']})` is"
                " called at each step, so that the same random numbers are drawn."
            )
            advice = ["Set the seed once, at the start of the program."]
        else:
            message = f"The loader gives the same batch again and again: {times} in a row are equal."
            advice = ["Look at the data set's `__getitem__`: it seems to ignore its index."]
        evidence = {key: again[key] for key in ("kind", "times", "batches", "seed") if again[key] is not None}
        evidence["limit"] = limits.steps
        where = Where(phase="input", file=again.get("file"), line=again.get("line"), code=again.get("code"))
        step = max(0, reading.step - times + 1)
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=where, step=step)
