"""How a training has been going, as far as its recovery has to know: what is usual, and when it went wrong."""

from __future__ import annotations

import math

from seismograd.detectors.running import Window

_KNOWN = 8
"""After so many sound steps the usual norm of the gradient is known."""


class Course:
    """What was well and what was not, for each optimizer by its number. Trouble is over `settle` good steps later."""

    def __init__(self, settle: int) -> None:
        self.loss: float | None = None
        """Of the last step that went well."""
        self.onset: int | None = None
        """The step at which the present trouble began."""
        self._settle, self._newest = settle, -1
        self._sound: set[int] = set()  # those whose last step went well
        self._norms: dict[int, Window] = {}

    def went_well(self, owner: int, step: int, norm: float | None, loss: float | None) -> None:
        if norm is not None:
            self._norms.setdefault(owner, Window(64)).add(norm)
        if loss is not None:
            self.loss = loss
        self._sound.add(owner)
        if step - self._newest > self._settle:
            self.onset = None

    def went_wrong(self, owner: int | None, step: int) -> None:
        """`owner` is `None` where it is nobody's in particular."""
        self._newest = step
        if self.onset is None:
            self.onset = step
        if owner is None:
            self._sound.clear()
        else:
            self._sound.discard(owner)

    def begins_anew(self) -> None:
        """The training is back where all was well; whether it still is, is to be seen."""
        self.onset = None
        self._sound.clear()

    def was_well(self, owner: int) -> bool:
        """Whether its last step went well."""
        return owner in self._sound

    def usual_norm(self, owner: int) -> float | None:
        """Of its gradient; `None` where too few have been seen."""
        norms = self._norms.get(owner)
        return norms.median if norms is not None and len(norms) >= _KNOWN else None


def is_finite(norm: float | None, loss: float | None) -> bool:
    """What was not measured is no fault."""
    return all(value is None or math.isfinite(value) for value in (norm, loss))
