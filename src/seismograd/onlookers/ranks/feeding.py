"""What a rank is fed by: how many batches its loader has, and how its sampler shares the samples out."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils.data import DistributedSampler

_PASSES = 4
_LOADERS = 16


class Feeding:
    """Looks at the loader whose batches are trained on, at the first batch of each pass; at a later one where a
    training is met in the middle of it."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[str, Any]] = {}
        self._source = 0
        """The loader whose batch came last: one that is only validated with is none that is trained on."""
        self._epochs: dict[tuple[int, int], list[int]] = {}
        self._lengths: dict[int, int] = {}
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those that were seen already."""
        self._passes = 0
        self.told: dict[str, Any] | None = None
        """What there is to tell the others, once."""

    def data_came(self, iterator: Any) -> None:
        index = getattr(iterator, "_index_sampler", None)
        self._source = id(index)
        if getattr(iterator, "_num_yielded", 0) != 1 and iterator in self._iterators:
            return
        self._iterators.add(iterator)
        try:
            length: int | None = len(iterator)
        except Exception:  # a stream, or a sampler of the user's that does not know
            length = None
        sampler = getattr(index, "sampler", index)
        if len(self._waiting) > _LOADERS:
            self._waiting.clear()
        waiting: dict[str, Any] = {"length": length}
        self._waiting[self._source] = waiting
        if isinstance(sampler, DistributedSampler):
            waiting["sampler"] = {
                "seed": sampler.seed,
                "rank": sampler.rank,
                "replicas": sampler.num_replicas,
                "shuffle": bool(sampler.shuffle),
                "epoch": sampler.epoch,
            }

    def trained(self) -> None:
        """What came last is trained on."""
        told = self._waiting.pop(self._source, None)
        if told is None:
            return
        self._passes += 1
        if "sampler" in told:
            # by its seed, too: one that is made anew for each epoch, with another, may lie where the last one did
            epochs = self._epochs.setdefault((self._source, told["sampler"]["seed"]), [])
            epochs.append(told["sampler"].pop("epoch"))
            del epochs[:-_PASSES]
            told["sampler"]["epochs"] = list(epochs)
        elif self._lengths.get(self._source) == told["length"]:
            return
        if len(self._lengths) > _LOADERS or len(self._epochs) > _LOADERS:  # a loader for each epoch
            self._lengths.clear()
            self._epochs.clear()
        self._lengths[self._source] = told["length"]
        self.told = {**told, "pass": self._passes}

    def take(self) -> dict[str, Any] | None:
        told, self.told = self.told, None
        return told
