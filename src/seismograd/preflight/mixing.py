"""Samples don't mix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from seismograd.preflight.scene import Scene
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding


class Mixing:
    """Exchanges one sample, in evaluation mode, and looks whether the outputs of the others change: `batch-mixing`."""

    name: ClassVar[str] = "samples don't mix"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        assert scene.trial is not None
        if "mixing" not in scene.trial.rehearsal.looked:
            raise CannotCheckError(
                "it is not certain which axis counts the samples, or the model meets them on purpose"
            )
        return scene.told("batch-mixing")
