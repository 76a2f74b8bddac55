"""Every parameter gets a gradient, and is in the optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from torch import Tensor, nn

from seismograd.detectors.wording import names, parameter
from seismograd.preflight.scene import Scene, finding
from seismograd.records import Finding, Severity


class Membership:
    """Goes through the graph of the loss to its leaves, and compares them with the model's and the optimizer's.

    A parameter that needs a gradient and is no leaf is unused, one that no optimizer holds is not optimized. A leaf
    that is neither the model's nor the optimizer's is not registered. What the detectors of the run say goes first.
    """

    name: ClassVar[str] = "parameters"
    trains: ClassVar[bool] = False
    watched: ClassVar[bool] = True

    def check(self, scene: Scene) -> Iterable[Finding]:
        told = scene.told(
            "unused-parameter",
            "missing-gradient",
            "unoptimized-parameter",
            "unregistered-parameter",
            "frozen-parameter",
            "detached-loss",
        )
        known = {one.id for one in told}
        if "unregistered-parameter" in known:  # a script's layers in a plain list are models of their own here
            known.add("unoptimized-parameter")
        return [*told, *(one for one in _compared(scene) if one.id not in known)]


def _compared(scene: Scene) -> Iterator[Finding]:
    leaves = {id(leaf) for leaf in scene.leaves}
    named = {
        id(p): (f"{prefix}.{name}" if prefix else name, p)
        for prefix, model in scene.models.items()
        for name, p in model.named_parameters()
    }
    held = {id(p) for optimizer in scene.optimizers for group in optimizer.param_groups for p in group["params"]}
    scene.figures["parameters"] = {"all": len(named), "in_the_loss": len(leaves & set(named))}
    unused = [name for key, (name, p) in named.items() if p.requires_grad and key not in leaves]
    if unused and leaves:
        message = f"{len(unused)} of {len(named)} parameters have no part in the loss: {names(unused)}."
        advice = ["Use them in forward, take them out of the model, or freeze them with `requires_grad_(False)`."]
        evidence = {"parameters": len(unused), "of": len(named), "names": unused[:20]}
        yield finding("unused-parameter", Severity.INFO, message, evidence, advice, where=parameter(unused[0]))
    if held:
        outside = [name for key, (name, _) in named.items() if key in leaves and key not in held]
        if outside:
            severity = Severity.WARNING if len(outside) < len(named) else Severity.CRITICAL
            message = f"{len(outside)} of {len(named)} parameters are in no optimizer: {names(outside)}."
            advice = ["Give the optimizer `model.parameters()`, after the model is complete; or freeze them."]
            evidence = {"parameters": len(outside), "of": len(named), "names": outside[:20]}
            yield finding("unoptimized-parameter", severity, message, evidence, advice, where=parameter(outside[0]))
    strange = [leaf for leaf in scene.leaves if id(leaf) not in named and id(leaf) not in held and _trains(leaf)]
    if strange:
        shapes = [str(tuple(leaf.shape)) for leaf in strange]
        message = (
            f"{len(strange)} parameters take part in the loss but are not among the model's: of shape"
            f" {', '.join(shapes[:3])}."
        )
        advice = ["Keep layers in `nn.ModuleList` or `nn.ModuleDict`, tensors in `nn.Parameter` attributes of modules."]
        evidence = {"parameters": len(strange), "shapes": shapes[:20]}
        yield finding("unregistered-parameter", Severity.WARNING, message, evidence, advice)


def _trains(leaf: Tensor) -> bool:
    return isinstance(leaf, nn.Parameter)
