"""Output, target and loss fit together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from seismograd.preflight.scene import Scene
from seismograd.records import Finding


class Fits:
    """Looks at what goes into the loss: shapes, dtypes and ranges on both sides, logits or probabilities, broadcasting.

    The detectors of the run judge, on a few steps with this batch.
    """

    name: ClassVar[str] = "output, target and loss fit"
    trains: ClassVar[bool] = True
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        return scene.told(
            "double-softmax",
            "loss-input-mismatch",
            "broadcast-loss",
            "label-out-of-range",
            "output-range",
            "constant-output",
            "missing-activation",
        )
