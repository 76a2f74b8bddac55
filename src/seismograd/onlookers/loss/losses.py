"""What goes into the loss: the op that made it, its range, the shapes on both sides, and layers stacked before it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seismograd.onlookers.graph import Graph
from seismograd.onlookers.loss.chains import stacks_of
from seismograd.onlookers.loss.handmade import handmade
from seismograd.onlookers.loss.makers import LAYERS, adds_a_dimension, bounds_of, makers_of
from seismograd.onlookers.loss.ranges import extremes, few, reach
from seismograd.onlookers.onlooker import Onlooker
from seismograd.places import Spot, chain
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

_MOST = 8
"""So many losses of one step are looked at."""

_GRAPHS = 8
"""So many graphs are searched for stacked layers: a model does not change its shape."""

_ROWS = 64
_MOST_PLACES = 64

_CLASSES = ("cross_entropy_loss", "nll_loss_nd")
_REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_REDUCED_AT = {"binary_cross_entropy_with_logits": 4, **dict.fromkeys((*_REGRESSION, "kl_div", "soft_margin_loss"), 2)}
_REDUCTIONS = ("none", "mean", "sum")


@dataclass(slots=True)
class _Call:
    """One loss that was computed in training."""

    name: str
    number: int
    """Of the node that made its output."""
    place: tuple[Spot, ...]
    told: dict[str, Any]
    values: dict[str, Tensor] = field(default_factory=dict)
    used: bool = False
    """Whether a backward pass went through it."""


class Losses(Onlooker):
    """Hears what goes into torch's losses, and looks at what is written by hand between the output and the root."""

    topic: ClassVar[str] = "loss"
    dear: ClassVar[bool] = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._calls: list[_Call] = []
        self._sent: list[_Call] = []
        self._stacks: list[dict[str, Any]] = []
        self._graphs = 0
        self._places: dict[Spot, dict[str, Any]] = {}

    # -- events --------------------------------------------------------------------------------------------------

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        function = getattr(output, "grad_fn", None)
        if function is None or len(args) < 2 or len(self._calls) >= _MOST:
            return
        given, target = args[:2]
        if type(given) is not Tensor or given.grad_fn is None or type(target) is not Tensor:
            return
        at = _REDUCED_AT.get(name, 3)
        reduction = args[at] if len(args) > at else 1
        told: dict[str, Any] = {
            "makers": makers_of(given.grad_fn),
            "shape": list(given.shape),
            "target_shape": list(target.shape),
            "target_dtype": _dtype(target),
            "reduction": _REDUCTIONS[reduction] if isinstance(reduction, int) and 0 <= reduction < 3 else "mean",
        }
        call = _Call(name, function._sequence_nr(), chain(sys._getframe(1), 1), told)
        if given.numel() and target.numel():
            _measure(call, given, target, args)
        self._calls.append(call)

    def loss_failed(self, name: str, args: Sequence[Any], error: Exception) -> Mapping[str, Any] | None:
        lines = str(error).splitlines() or [""]
        failed: dict[str, Any] = {"name": name, "error": f"{type(error).__name__}: {lines[0]}"}
        failed.update(self._place(chain(sys._getframe(1), 1)))
        given, target = (*args[:2], None, None)[:2]
        if isinstance(given, Tensor) and type(given) in (Tensor, nn.Parameter) and type(target) is Tensor:
            failed.update(shape=list(given.shape), dtype=_dtype(given), makers=makers_of(given.grad_fn))
            failed.update(target_shape=list(target.shape), target_dtype=_dtype(target))
            if given.device.type == target.device.type == "cpu" and given.numel() and target.numel():
                measured = {**extremes(given.detach()), **extremes(target.detach(), "target_")}
                failed.update({part: float(value) for part, value in measured.items()})
                if name in _CLASSES and not target.is_floating_point():
                    failed.update(_unknown_classes(given, target, args))
        return {"failed": failed}

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if graph is None or not graph.nodes:
            return
        if self._calls:
            numbers = {node.number for node in graph.nodes}
            for call in self._calls:
                call.used = call.used or call.number in numbers
        if len(self._calls) < _MOST:
            for told, values, place in handmade(graph):
                self._calls.append(_Call("by hand", -1, place, told, values, used=True))
        if self._graphs < _GRAPHS:
            self._graphs += 1
            self._stacks += stacks_of(graph, self.watched.roster)

    def restart(self) -> None:
        self._calls = []

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        self._sent = [call for call in self._calls if call.used]
        self._calls = []
        for at, call in enumerate(self._sent):
            for name, value in call.values.items():
                pack.add(f"loss/{at}/{name}", [value])

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        sent, self._sent = self._sent, []
        stacks, self._stacks = self._stacks, []
        calls: list[dict[str, Any]] = []
        for at, call in enumerate(sent):
            measured = {name: values[f"loss/{at}/{name}"][0] for name in call.values}
            calls.append({"name": call.name, **self._place(call.place), **call.told, **measured})
        told: dict[str, Any] = {}
        if calls:
            told["calls"] = calls
        if stacks:
            told["stacks"] = stacks
        return told or None

    def close(self) -> None:
        self._calls, self._sent, self._places = [], [], {}

    def _place(self, spots: Sequence[Spot]) -> dict[str, Any]:
        """The user's line."""
        if not spots:
            return {}
        known = self._places.get(spots[0])
        if known is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            source = spots[0].source
            known = {"file": spots[0].file, "line": spots[0].line, "code": None if source is None else source.strip()}
            self._places[spots[0]] = known
        return known


# -- numbers -----------------------------------------------------------------------------------------------------


def _measure(call: _Call, given: Tensor, target: Tensor, args: Sequence[Any]) -> None:
    name, told, values = call.name, call.told, call.values
    made = told["makers"][0] if told["makers"] else ""
    if name in _CLASSES or name == "kl_div":
        at = 1 if name in _CLASSES and given.ndim > 1 else given.ndim - 1
        told["classes"] = given.shape[at] if given.ndim else 1
        known = made in LAYERS if name == "cross_entropy_loss" else made == "LogSoftmax"
        if not known and told["classes"] > 1:
            values.update(_rows(given.detach(), at))
    elif name == "soft_margin_loss":
        values.update(extremes(target, "target_"))
        values["target_least"] = few(target).abs().amin()
    elif name.startswith("binary_cross_entropy"):
        told["weighted"] = len(args) > 2 and args[2] is not None
        values.update(extremes(target, "target_"))
        values["target_mean"] = few(target).mean(dtype=torch.float32)
    elif name in _REGRESSION:
        own, other = _unexpanded(given), _unexpanded(target)
        if own != told["shape"] or other != told["target_shape"]:
            told.update(shape=own, target_shape=other, result_shape=list(given.shape))
            told["meant"] = adds_a_dimension(given.grad_fn)
        elif (bounds := bounds_of(given.grad_fn)) is not None:
            told["bounds"] = list(bounds)
            values.update(reach(target.detach(), bounds))


def _rows(given: Tensor, at: int) -> dict[str, Tensor]:
    """The range of some rows, their sums, and the logarithms of the sums of their exponentials."""
    for dim in range(given.ndim):
        if dim != at:
            given = given.narrow(dim, 0, min(given.shape[dim], _ROWS if dim == 0 else 8))
    rows = given.float()
    sums, logs = rows.sum(at), rows.logsumexp(at)
    return {
        **extremes(rows),
        "sum_low": sums.amin(),
        "sum_high": sums.amax(),
        "log_sum": logs.abs().mean(),
    }


def _unexpanded(tensor: Tensor) -> list[int]:
    """Its shape before it was broadcast."""
    return [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _unknown_classes(given: Tensor, target: Tensor, args: Sequence[Any]) -> dict[str, Any]:
    """The labels that the output has no place for."""
    classes = given.shape[1] if given.ndim > 1 else given.shape[0]
    ignored = args[4] if len(args) > 4 else -100
    bad = ((target < 0) | (target >= classes)) & (target != ignored)
    places = bad.nonzero()[:3]
    return {
        "classes": classes,
        "ignore_index": ignored,
        "bad": int(bad.sum()),
        "labels": sorted(set(target[bad].flatten()[:1000].tolist()))[:8],
        "samples": [place.tolist() for place in places],
    }


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
