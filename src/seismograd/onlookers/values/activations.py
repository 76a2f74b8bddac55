"""What comes out of activation functions, unit by unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seismograd.onlookers.graph import Graph, Node
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.values import units
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched
from seismograd.records import TensorStats

WINDOW = 256
"""A unit is dead when it fired on none of the last so many samples."""

FLAT = 0.9
"""A unit is saturated when it was in a flat region on this share of the samples."""

_KEPT = 0.9
"""How much the samples of one look count at the next, for saturation."""

_ALIKE = 1e-5
"""Units are alike that differ by no more than this share of the largest value."""

_MOST_LAYERS = 64
_MOST_UNITS = 65_536
_MOST_CALLS = 8
"""So many uses of one layer in one forward pass are looked at."""

_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Layer:
    """One activation function, with the layer before it whose outputs are its units. Its tensor is our own."""

    name: str
    op: str
    after: str | None
    """The module that made its input."""
    rectifies: bool
    units: int
    last: bool
    gate: bool
    state: Tensor | None = None
    """For each unit, how many samples ago it last fired; or the shares of samples on which it was high, and low."""
    samples: int = 0
    looks: int = 0
    weight: float = 0.0
    quiet: bool = False
    """Few units are left, or none: the next look finds out whether it is the only way through."""
    blocks: bool | None = None
    alike: bool = True
    """All its units have given the same, sample by sample, ever since they were first seen."""


class Activations(Onlooker):
    """Reads what autograd keeps of activation functions, be they modules or functional calls.

    Uses that share the layer before (a recurrent cell, a model called twice) share their units: one that fires in any
    of them is alive.
    """

    topic = "activations"
    dear = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._layers: dict[_Key, _Layer] = {}
        self._names: tuple[Any, dict[int, str]] = (None, {})
        self._now: dict[_Key, tuple[Tensor, int]] = {}  # what the uses of this step showed, of how many samples
        self._apart: dict[_Key, Tensor] = {}  # how far units lay apart in them, where they have been alike so far
        self._sent: list[tuple[_Layer, bool]] = []

    def restart(self) -> None:
        self._now, self._apart = {}, {}

    def close(self) -> None:
        self.restart()
        self._layers, self._sent, self._names = {}, [], (None, {})

    # -- events --------------------------------------------------------------------------------------------------

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if graph is None:
            return
        found = [at for at, node in enumerate(graph.nodes) if node.name in units.KINDS and node.module is not None]
        found.sort(key=lambda at: graph.nodes[at].number)
        uses: dict[_Key, list[int]] = {}
        for at in found:
            made = units.made(graph, at)
            if made is None:
                continue
            node = graph.nodes[at]
            key = (node.module, node.name, *self._maker(graph, made.by), node.shape[made.axis])
            known = uses.setdefault(key, [])
            known.append(at)
            if len(known) <= _MOST_CALLS:
                self._use(key, graph, at, made.axis)
        for key, nodes in uses.items():
            layer = self._layers.get(key)
            if layer is not None and layer.quiet and layer.blocks is None:
                layer.blocks = units.blocks(graph, nodes)

    def _use(self, key: _Key, graph: Graph, at: int, axis: int) -> None:
        seen = units.seen(graph.nodes[at])
        if seen is None:
            return
        values = seen.values
        layer = self._layers.get(key) or self._meet(key, graph, at, rectifies=seen.high is None)
        if layer is None or not values.numel() or type(values) is not Tensor:
            return
        others = [dim for dim in range(values.ndim) if dim != axis]
        if seen.high is None:
            now = ~(values.amax(others) <= seen.low)  # what is not a number proves nothing
        else:
            now = torch.stack([(values > seen.high).float().mean(others), (values < seen.low).float().mean(others)])
        samples = len(values) if axis == 1 and values.ndim > 2 else values.numel() // layer.units
        if key in self._now:
            before, count = self._now[key]
            now = before | now if seen.high is None else before.lerp(now, samples / (samples + count))
            samples += count
        self._now[key] = (now, samples)
        if layer.alike and layer.units > 1:
            apart = (values.amax(axis) - values.amin(axis)).amax() / values.abs().amax().clamp_min(1e-30)
            self._apart[key] = torch.maximum(self._apart[key], apart) if key in self._apart else apart

    def _maker(self, graph: Graph, by: int) -> tuple[str | None, str | None]:
        """The module and the weight of the layer before."""
        roster = self.watched.roster
        if self._names[0] is not roster:
            names = {id(each): name for each, name in zip(roster.parameters, roster.names, strict=True)}
            self._names = (roster, names)
        weight = units.weight(graph, by)
        return graph.nodes[by].module, None if weight is None else self._names[1].get(id(weight))

    def _meet(self, key: _Key, graph: Graph, at: int, *, rectifies: bool) -> _Layer | None:
        """Takes in a layer that was not seen before, if there is room."""
        node, size = graph.nodes[at], int(key[-1])
        if len(self._layers) >= _MOST_LAYERS or size + sum(each.units for each in self._layers.values()) > _MOST_UNITS:
            return None
        last, gate = units.is_last(graph, at), units.is_gate(graph, at)
        layer = _Layer(self._label(node), node.name.lower(), key[2] or None, rectifies, size, last, gate)
        self._layers[key] = layer
        return layer

    def _label(self, node: Node) -> str:
        """The path of its module; with the op and its number where the module does more than this."""
        op, path = node.name.lower(), node.module or ""
        number = 1 + sum(key[:2] == (node.module, node.name) for key in self._layers)
        module = None if node.span is None else node.span.module
        alone = module is not None and next(module.parameters(), None) is None and next(module.children(), None) is None
        if alone and number == 1:
            return path
        return f"{path} ({op} {number})" if path else f"{op} {number}"

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        self._sent = []
        for key, (now, samples) in self._now.items():
            layer = self._layers[key]
            numbers, apart = _count(layer, now, samples), self._apart.get(key)
            pack.add(f"activations/{len(self._sent)}", numbers if apart is None else [*numbers, apart, now.any()])
            self._sent.append((layer, apart is not None))
        self.restart()

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        sent, self._sent = self._sent, []
        layers = [_tell(layer, values[f"activations/{at}"], told) for at, (layer, told) in enumerate(sent)]
        return {"window": WINDOW, "flat": FLAT, "layers": layers} if layers else None


def units_table(told: Mapping[str, Any]) -> TensorStats:
    """The same facts as a table over layers: the share of its units that are dead, and that are saturated.

    NaN stands where a layer has no such units.
    """
    layers = {layer["name"]: layer for layer in told["layers"]}
    columns = {
        column: [layer[key] / layer["units"] if key in layer else math.nan for layer in layers.values()]
        for column, key in (("dead", "dead"), ("saturated", "flat"))
    }
    return TensorStats(tuple(layers), columns)


def _count(layer: _Layer, now: Tensor, samples: int) -> list[Tensor]:
    """Takes one look into the running counts, and sums them up over the units."""
    layer.looks += 1
    layer.samples += samples
    state = layer.state
    if layer.rectifies:
        before = 0.0 if state is None else state.to(now.device)
        state = layer.state = torch.where(now, 0.0, before + float(samples))
        return [now.sum(), (state >= WINDOW).sum(), (state >= 0.999 * layer.samples).sum(), state.amin()]
    layer.weight = _KEPT * layer.weight + samples
    share = samples / layer.weight
    state = layer.state = now if state is None else state.to(now.device).lerp(now, share)
    return [(state.sum(0) >= FLAT).sum(), (state.amax(0) >= FLAT).sum()]


def _tell(layer: _Layer, numbers: Sequence[float], compared: bool) -> dict[str, Any]:
    if compared:
        *numbers, apart, any_ = numbers
        layer.alike = apart < _ALIKE and (bool(any_) or not layer.rectifies)
    told: dict[str, Any] = {
        "name": layer.name,
        "op": layer.op,
        "after": layer.after,
        "units": layer.units,
        "samples": layer.samples,
        "looks": layer.looks,
        "last": layer.last,
        "gate": layer.gate,
        "alike": layer.alike and layer.units > 1,
    }
    if layer.rectifies:
        fired, dead, never, still = (int(value) for value in numbers)
        layer.quiet = not fired or 2 * dead > layer.units
        told |= {"fired": fired, "dead": dead, "never": never, "still": still, "blocks": layer.blocks}
    else:
        flat, stuck = (int(value) for value in numbers)
        told |= {"flat": flat, "stuck": stuck}
    return told
