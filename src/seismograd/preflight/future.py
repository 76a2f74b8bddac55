"""No look-ahead in causal models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from seismograd.preflight.scene import Scene
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding


class Future:
    """Changes the last position, where the target is the input's next one, and looks at what comes out before it.

    Any change there is a `target-leak`; so is a column of the input that tells the target.
    """

    name: ClassVar[str] = "no look-ahead"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        assert scene.trial is not None
        told = scene.told("target-leak")
        if not told and "lookahead" not in scene.trial.rehearsal.looked:
            raise CannotCheckError("the target is not the next position of the input")
        return told
