"""How the weights begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seismograd.detectors.wording import names, parameter
from seismograd.preflight.scene import Scene, finding
from seismograd.records import Finding, Severity
from seismograd.stats.arrays import check_initialization

_MOST = 4_000_000
"""Elements: of a larger layer units are not compared."""


class Initialization:
    """Looks at each layer's spread, at units that start equal, and at those dead or saturated from the start.

    The table of spreads stands in the report. Equal units in a layer before the last one, with equal weights behind
    them, stay equal: `bad-initialization`. The rest is judged by the detectors of the run.
    """

    name: ClassVar[str] = "initialisation"
    trains: ClassVar[bool] = False
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        layers = [
            {**layer, "layer": f"{prefix}.{layer['layer']}" if prefix else layer["layer"]}
            for prefix, model in scene.models.items()
            for layer in check_initialization(model)["layers"]
        ]
        scene.figures["initialization"] = layers
        told = scene.told("bad-initialization", "dead-units", "saturated-units")
        if not any(one.id == "bad-initialization" for one in told):
            told += _alike(scene)
        return told


def _alike(scene: Scene) -> Iterator[Finding]:
    for prefix, model in scene.models.items():
        layers = [(name, one) for name, one in model.named_modules() if _is_layer(one)]
        alike = [f"{prefix}.{name}" if prefix else name for name, one in layers[:-1] if _units_are_equal(one)]
        if alike:
            message = f"All units of {names(alike)} start equal: they get equal gradients and stay equal."
            advice = [f"Initialise `{alike[0]}.weight` at random: `nn.init.kaiming_normal_`."]
            evidence: dict[str, Any] = {"layers": alike[:20], "of": len(layers)}
            where = parameter(f"{alike[0]}.weight")
            yield finding("bad-initialization", Severity.WARNING, message, evidence, advice, where=where)


def _is_layer(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) and isinstance(weight, Tensor)


def _units_are_equal(module: Any) -> bool:
    weight = module.weight.detach()
    if weight.numel() > _MOST or len(weight) < 2 or weight.numel() == len(weight):
        return False
    if not weight.any():  # a branch that starts at nothing
        return False
    same = torch.equal(weight, weight[:1].expand_as(weight))
    bias = None if module.bias is None else module.bias.detach()
    return same and (bias is None or torch.equal(bias, bias[:1].expand_as(bias)))
