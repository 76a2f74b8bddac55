"""How much the outermost model's output differs from sample to sample, and its input."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.onlookers.graph import Graph
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.values import units
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

_MOST_CALLS = 4
_MOST_MODELS = 8
_MOST_TENSORS = 8
_MOST_ROWS = 256
_MOST_COLUMNS = 4096
_MOST_BATCHES = 64


class Outputs(Onlooker):
    """Compares the samples of a batch: whether they differ when they go in, and when they come out.

    A softmax over a single element, at the end of the model or in the loss, is told too.
    """

    topic = "outputs"
    dear = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._batches: deque[tuple[float, int]] = deque(maxlen=_MOST_BATCHES)
        self._sent: list[tuple[str, int]] = []
        self._sent_rows: list[int] = []
        self._sent_singles: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        self._given: tuple[int, Tensor] | None = None
        self._calls: dict[str, list[tuple[int, list[Tensor]]]] = {}
        self._prints: list[tuple[int, Tensor]] = []
        self._singles: list[dict[str, Any]] = []

    def close(self) -> None:
        self.restart()

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        self._given = None
        tensors = _tensors((args, kwargs)) if ours and trains else []
        if not tensors:
            return
        rows = len(tensors[0])
        spreads = [_spread(tensor)[0] for tensor in tensors if len(tensor) == rows]
        self._given = (rows, _largest(spreads))
        if len(self._prints) < _MOST_CALLS:
            self._prints.append((rows, _sampled(tensors[0]).sum()))

    def module_ended(self, module: nn.Module, output: Any, *, ours: bool, trains: bool) -> None:
        given, self._given = self._given, None
        if given is None or given[0] < 2:
            return
        rows, inputs = given
        tensors = [tensor for tensor in _tensors(output) if tensor.is_floating_point() and len(tensor) == rows]
        tensors = [tensor for tensor in tensors if tensor.requires_grad]
        if not tensors:
            return
        calls = self._calls.setdefault(self._path(module), [])
        if len(calls) >= _MOST_CALLS or len(self._calls) > _MOST_MODELS:
            return
        pairs = [_spread(tensor.detach()) for tensor in tensors]
        relative = [spread / size.clamp_min(1e-30) for spread, size in pairs]
        calls.append((rows, [_largest(relative), _largest([size for _, size in pairs]), inputs]))

    def _path(self, module: nn.Module) -> str:
        known = self._paths.get(module)
        if known is None:
            paths = (
                ".".join(part for part in (prefix, name) if part)
                for prefix, model in self.watched.models.items()
                for name, inner in model.named_modules()
                if inner is module
            )
            known = self._paths[module] = next(paths, "") or type(module).__name__
        return known

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if graph is None:
            return
        for at, node in enumerate(graph.nodes):
            if len(self._singles) < _MOST_CALLS and units.softmax_of_one(graph, at):
                self._singles.append({"module": node.module, "op": node.op, "shape": list(node.shape)})

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        self._sent = []
        for name, calls in self._calls.items():
            if calls:
                self._sent.append((name, min(rows for rows, _ in calls)))
                pack.add(f"outputs/{name}", [value for _, values in calls for value in values])
        if self._prints:
            pack.add("outputs/inputs", [value for _, value in self._prints])
        self._sent_rows, self._sent_singles = [rows for rows, _ in self._prints], self._singles
        self.restart()

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        models = []
        for name, rows in self._sent:
            numbers = values[f"outputs/{name}"]
            spread, size, inputs = (max(numbers[part::3]) for part in range(3))
            models.append({"name": name, "rows": rows, "spread": spread, "size": size, "inputs": inputs})
        for rows, mark in zip(self._sent_rows, values.get("outputs/inputs", ()), strict=False):
            if not any(many == rows and abs(mark - other) <= 1e-5 * abs(other) for other, many in self._batches):
                self._batches.append((mark, rows))
        singles = self._sent_singles
        self._sent, self._sent_rows, self._sent_singles = [], [], []
        if not models and not singles:
            return None
        samples = sum(rows for _, rows in self._batches)
        return {"models": models, "samples": samples, "singles": singles}


def _tensors(thing: Any) -> list[Tensor]:
    """The first few tensors with rows."""
    return list(islice(filter(_has_rows, tensors_in(thing)), _MOST_TENSORS))


def _has_rows(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and not tensor.is_complex() and tensor.device.type != "meta"
    return bool(plain and tensor.ndim and tensor.numel() and not tensor.is_quantized)


def _sampled(tensor: Tensor) -> Tensor:
    """Some of its rows and columns, evenly chosen, as numbers."""
    rows = tensor.detach()[:_MOST_ROWS].flatten(1) if tensor.ndim > 1 else tensor.detach()[:_MOST_ROWS, None]
    stride = -(-rows.shape[1] // _MOST_COLUMNS)
    return rows[:, ::stride].float()


def _spread(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """How far the samples lie apart at most, in one feature; and the largest number among them."""
    values = _sampled(tensor)
    high, low = values.amax(0), values.amin(0)
    return (high - low).amax(), torch.maximum(high.abs(), low.abs()).amax()


def _largest(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([value.to(values[0].device) for value in values]).amax() if len(values) > 1 else values[0]
