"""`unregistered-parameter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.loop.spots import backward_line
from seismograd.detectors.wording import found, names
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class UnregisteredParameter:
    """A tensor that needs a gradient takes part in the model, but is not among its parameters.

    Why it matters
    --------------
    `model.parameters()` does not know layers in a plain list or dict, layers made inside `forward`, and plain tensors.
    No optimizer trains them, `state_dict()` does not save them, and `.to(device)` and `.eval()` pass them by.

    How it is judged
    ----------------
    In `looks` steps a module's forward called a module in training mode that is none of its children, or used a tensor
    that is a plain attribute of it; backward reaches it, no optimizer holds it, and nobody changes it by hand.

    What to try
    -----------
    `nn.ModuleList` or `nn.ModuleDict` instead of a list or dict, `nn.Parameter` instead of a tensor with
    `requires_grad=True`, and layers made in `__init__`, not in `forward`.

    An example
    ----------
    A plain list of layers:

        self.layers = [nn.Linear(64, 64) for _ in range(4)]
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))    # instead
    """

    id: ClassVar[str] = "unregistered-parameter"
    needs: ClassVar[tuple[str, ...]] = ("facts/parameters",)
    follows: ClassVar[tuple[str, ...]] = ()

    looks: int = 5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: UnregisteredParameter) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["parameters"], self._detector
        if not any(optimizer["steps"] for optimizer in facts["optimizers"]):
            return None
        told = [each for each in facts.get("unregistered", ()) if each["looks"] >= limits.looks]
        if not told:
            return None
        first = told[0]
        anew = first["distinct"] >= limits.looks and not first["again"]
        owner = f"`{first['owner']}`" if first["owner"] else "the model"
        paths = [each["name"] for each in told]
        message = (
            f"{names(paths)} {'is' if len(told) == 1 else 'are'} used by {owner} and reached by backward, but not among"
            " its parameters: no optimizer trains"
        )
        message += f" {'it' if len(told) == 1 else 'them'}"
        message += ", for the module is made anew in every forward pass." if anew else "."
        evidence = {"tensors": len(told), "steps": first["looks"], "limit": limits.looks, "anew": anew}
        if anew:
            advice = ["Make the layer once, in `__init__`, as an attribute of the module, and call it in `forward`."]
        elif first["layer"]:
            attribute = paths[0].rpartition(".")[2].partition("[")[0]
            advice = [
                f"Hold the layers in `nn.ModuleList` or `nn.ModuleDict`: `self.{attribute} = nn.ModuleList(...)`."
            ]
        else:
            attribute = paths[0].rpartition(".")[2]
            advice = [
                f"Make it a parameter, `self.{attribute} = nn.Parameter(...)`, before the optimizer is built; or a"
                " buffer without gradient, if it is a constant."
            ]
        where = backward_line(facts, parameter=paths[0], module=first["owner"] or None)
        return found(limits, reading, Severity.WARNING, message, evidence, advice=advice, where=where)
