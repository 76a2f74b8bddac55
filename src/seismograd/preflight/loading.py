"""The loader keeps up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from time import perf_counter
from typing import ClassVar

from seismograd.preflight.scene import Scene, finding
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding, Severity

_BATCHES, _LONG = 8, 5.0


class Loading:
    """Times a few batches of the loader, the first one left out, beside a step of training.

    Where a batch takes longer than the step that uses it, the model will wait: `data-starvation`, as information, for
    workers that read ahead come to their speed only later.
    """

    name: ClassVar[str] = "the loader keeps up"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        trial = scene.trial
        assert trial is not None
        if trial.loader is None:
            raise CannotCheckError("no loader was given")
        if isinstance(trial.loader, Iterator):
            raise CannotCheckError("the loader is an iterator: what is taken out of it is gone")
        with trial.aside():
            seconds, began = list[float](), perf_counter()
            batches = iter(trial.loader)
            for _ in range(_BATCHES):
                now = perf_counter()
                if next(batches, None) is None:
                    break
                seconds.append(perf_counter() - now)
                if perf_counter() - began > _LONG:
                    break
            del batches
        if len(seconds) < 2:
            raise CannotCheckError("the loader has fewer than 2 batches")
        batch, step = median(seconds[1:]), trial.step_seconds
        scene.figures["loader"] = {"batch_seconds": batch, "step_seconds": step}
        if batch <= step or batch < 1e-3:
            return []
        message = f"The loader takes {1e3 * batch:.0f} ms for a batch, a step {1e3 * step:.0f} ms: the model will wait."
        advice = ["Give the DataLoader `num_workers=4` and `persistent_workers=True`, or prepare the data beforehand."]
        evidence = {"batch_seconds": batch, "step_seconds": step}
        return [finding("data-starvation", Severity.INFO, message, evidence, advice)]
