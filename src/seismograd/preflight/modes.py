"""Train and eval mode differ only where they should."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import nn

from seismograd.places import is_users
from seismograd.preflight.scene import Scene, finding
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding, Severity
from seismograd.replay.numbers import same
from seismograd.replay.second_runs import CannotReplayError, unwrapped

_CHANGE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class Modes:
    """Compares the outputs of both modes, with the same random numbers.

    Dropout, batch norm and code that reads `self.training` explain a difference. Where there is nothing of the kind,
    the two have to agree; if they do not, the model is not the same function from call to call.
    """

    name: ClassVar[str] = "train and eval mode"
    trains: ClassVar[bool] = False
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        call = scene.the_call()
        try:
            training = scene.runs.of(call, traced=False).outputs
            evaluation = dict(scene.runs.evaluated(call, torch.Tensor.detach))
        except CannotReplayError as why:
            raise CannotCheckError(str(why)) from None
        differ = [path for path, one in training if path not in evaluation or not same(one, evaluation[path])]
        explained = any(_may_change(module) for module in unwrapped(call.module).modules())
        scene.figures["modes"] = {"differ": bool(differ), "explained": explained}
        if not differ or explained:
            return []
        message = (
            "The outputs differ between train and eval mode, though nothing in the model should: no dropout, no norm."
        )
        advice = ["Look for state that forward keeps from call to call, and for ops that are not deterministic."]
        return [finding("train-mode-evaluation", Severity.INFO, message, {"outputs": differ[:8]}, advice)]


def _may_change(module: nn.Module) -> bool:
    if isinstance(module, _CHANGE) or bool(getattr(module, "dropout", False)):
        return True
    code = getattr(type(module).forward, "__code__", None)
    return code is None or "training" in code.co_names or (not is_users(code.co_filename) and _is_foreign(module))


def _is_foreign(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("torch.nn.")
