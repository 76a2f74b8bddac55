"""Batches from one step to the next: the scale of what is trained on, and whether it is the same again and again."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.places import Spot, chain
from seismograd.probes.pack import Pack, Values
from seismograd.probes.validation import StorageWeakRef
from seismograd.probes.watched import Watched

_SAMPLE = 4096
"""So many elements of an input tell its scale."""
_PRINT = 32
_PRINT_SUM = 16_384
"""So many elements of a batch are its fingerprint, and the sum of so many."""
_EARLY = 64
"""So many steps are followed one by one; after them only those that are looked at, batches that came again, and inputs
that stand out at a glance."""
_GLANCE, _STANDS_OUT = 32, 4.0
"""So many elements are glanced at, and so many times their usual deviation they have to lie off, or closer together."""
_MOST_INPUTS = 4
_MOST_SETS = 8


class Batches(Onlooker):
    """Tells mean, deviation and share of non-zeros of each model's input, and of batches that come again at once.

    A batch comes *again* if a `DataLoader` with more to give has been asked for its first batch anew and gave the same,
    if its iterator gives the same batch twice in a row, or if the random numbers that it was drawn with are the same:
    `torch.manual_seed` was called with the same seed as at the step before.
    """

    topic: ClassVar[str] = "batches"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._names: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._inputs: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._in_pack: list[str] = []
        self._met: set[str] = set()  # whose first input of the step was looked at: later ones may be of another kind
        self._usual: dict[str, tuple[float, float]] = {}  # mean and deviation of each input, when last told of
        self._batch: _Batch | None = None
        self._last: dict[int, _Batch] = {}  # by data set: the batch of the last step
        self._seeds: dict[int, tuple[Spot, ...]] = {}  # since the last step
        self._drawn: _Batch | None = None
        self._trained: _Batch | None = None
        self._told: dict[str, Any] | None = None
        self._steps = 0
        self._since_again = 0  # steps since a batch came again

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if not ours:
            return
        if not trains:
            self._batch = None  # evaluated, not trained on
            return
        name = self._names.get(module)
        if name is None:
            name = self._names[module] = _name_of(module, self.watched)
        brief = self._steps > _EARLY and not self.looks
        if brief and (name not in self._usual or name in self._met):
            return
        given = next((x for x in tensors_in((args, kwargs)) if not x.requires_grad), None)
        if given is None or given.layout != torch.strided or given.device.type == "meta":
            return
        self._met.add(name)
        if brief and not _stands_out(given, *self._usual[name]):
            return
        wanted = name not in self._inputs and len(self._inputs) < _MOST_INPUTS
        if wanted and given.is_floating_point() and given.numel() > 1:
            self._inputs[name] = scale_of(given)
        if self._trained is None:
            if self._batch is not None:
                self._trained, self._batch = self._batch, None
            elif self._seeds:
                mark = fingerprint([given])
                if mark is not None:
                    held = StorageWeakRef(given.untyped_storage())
                    self._trained = _Batch(mark, given.data_ptr(), self._seeds, held=held)

    def data_came(self, batch: Any, loader: Any) -> None:
        self._batch = None
        if self._since_again > _EARLY:
            return
        mark = fingerprint(list(tensors_in(batch))[:2])
        if mark is None:
            return
        number = getattr(loader, "_num_yielded", 0)
        try:
            length = len(loader)
        except TypeError:  # a stream
            length = 0
        spots = chain(sys._getframe()) if number == 1 else ()
        source = id(getattr(loader, "_dataset", None))
        self._batch = _Batch(mark, source, {}, number, length, spots)

    def seeded(self, seed: int) -> None:
        if len(self._seeds) < _MOST_SETS:
            self._seeds.setdefault(seed, chain(sys._getframe()))

    def step_ended(self, optimizer: Optimizer) -> None:
        self._steps += 1
        self._since_again += 1
        batch, self._trained = self._trained, None
        if batch is not None:
            self._told = self._compare(batch)
            if self._told is not None:
                self._since_again = 0
        self._seeds = {}

    def _compare(self, batch: _Batch) -> dict[str, Any] | None:
        if batch.length < 0:
            last, self._drawn = self._drawn, batch
            kind = "seed" if last is not None and last.was_drawn_like(batch) else None
        else:
            last = self._last.pop(batch.source, None)
            if len(self._last) < _MOST_SETS:
                self._last[batch.source] = batch
            kind = last.goes_on_as(batch) if last is not None else None
        if last is None or kind is None or last.mark != batch.mark:
            return None
        batch.again = last.again + 1
        seed = next((seed for seed in batch.seeds if seed in last.seeds), None)
        spots = batch.spots if seed is None else batch.seeds[seed]
        place = {"file": spots[0].file, "line": spots[0].line, "code": spots[0].source} if spots else {}
        return {"kind": kind, "times": batch.again + 1, "batches": batch.length, "seed": seed, **place}

    def look(self, pack: Pack, step: int) -> None:
        inputs, self._inputs = self._inputs, {}
        self._met.clear()
        self._in_pack = list(inputs)
        if inputs:
            pack.add("batches", [number for numbers in inputs.values() for number in numbers])

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        told: dict[str, Any] = {}
        if self._in_pack:
            numbers = values["batches"]
            told["inputs"] = {
                name: dict(zip(("mean", "std", "filled"), numbers[3 * at : 3 * at + 3], strict=True))
                for at, name in enumerate(self._in_pack)
            }
            for name, given in told["inputs"].items():
                self._usual.setdefault(name, (given["mean"], given["std"]))
                if self._steps <= _EARLY or self.looks:
                    self._usual[name] = (given["mean"], given["std"])
            self._in_pack = []
        if self._told is not None:
            told["again"], self._told = self._told, None
        return told or None

    def restart(self) -> None:
        self._inputs, self._batch, self._trained, self._drawn, self._seeds = {}, None, None, None, {}
        self._met.clear()
        self._last.clear()

    def close(self) -> None:
        self.restart()
        self._names.clear()


@dataclass(slots=True)
class _Batch:
    """A batch that was trained on, known by its fingerprint."""

    mark: int
    source: int
    seeds: dict[int, tuple[Spot, ...]]
    number: int = 0
    """Which of its iterator's it was, from 1."""
    length: int = -1
    """How many the iterator has; 0 where it does not say, -1 where there is none."""
    spots: tuple[Spot, ...] = ()
    again: int = 0
    """How many times in a row it has come again."""
    held: Any = None
    """Knows whether the storage is gone."""

    def was_drawn_like(self, later: _Batch) -> bool:
        """Whether both were drawn after the same seed, and are not one tensor that simply stays."""
        stays = self.source == later.source and not self.held.expired()
        return not stays and not self.seeds.keys().isdisjoint(later.seeds)

    def goes_on_as(self, later: _Batch) -> str | None:
        """`first`: an iterator was started anew for it; `constant`: it came after this one from the same iterator."""
        if self.number == later.number == 1:
            return "first" if later.length > 1 else None
        return "constant" if later.number == self.number + 1 else None


def scale_of(given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, deviation and share of non-zeros of some of its elements, still on its device."""
    sample = _some(given, _SAMPLE).float()
    deviation, mean = torch.std_mean(sample)
    return mean, deviation, sample.count_nonzero() / sample.numel()


def _some(tensor: Tensor, most: int) -> Tensor:
    """Some elements, from all over it."""
    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach()[:1].reshape(-1)
    return flat[:: max(1, flat.numel() // most)][:most]


def _stands_out(given: Tensor, mean: float, deviation: float) -> bool:
    """Whether a few elements lie far off the usual mean, or closer together than they ever should."""
    if given.device.type != "cpu" or not given.is_floating_point():
        return False
    off = [(number - mean) ** 2 for number in _some(given, _GLANCE).tolist()]
    spread = math.sqrt(sum(off) / max(1, len(off)))
    return spread > _STANDS_OUT * deviation or 2.0 * _STANDS_OUT * spread < deviation


def fingerprint(tensors: list[Tensor]) -> int | None:
    """A number that two batches share if they are the same; None where it could not be had without a wait."""
    marks: list[Any] = []
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
            return None
        marks += [tensor.shape, *_some(tensor, _PRINT).tolist()]
        if tensor.is_contiguous():
            marks.append(float(tensor.detach().reshape(-1)[:_PRINT_SUM].sum()))
    return hash(tuple(marks)) if marks else None


def _name_of(module: nn.Module, watched: Watched) -> str:
    for prefix, model in watched.models.items():
        for name, inner in model.named_modules():
            if inner is module:
                return ".".join(part for part in (prefix, name) if part) or type(module).__name__
    return type(module).__name__
