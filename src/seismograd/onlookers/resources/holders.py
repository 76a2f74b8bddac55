"""Notices that memory grows, by signs that cost next to nothing, and only then looks at what holds it."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

from seismograd.memory import accelerator, snapshots
from seismograd.memory.holders import Look, Looks
from seismograd.memory.telling import grown_in_methods
from seismograd.onlookers.onlooker import Onlooker
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

_WARM = 4
"""Steps at the beginning of which nothing is noted: everything is made in them."""

_RECENT = 8
"""So many samples are compared: the lowest of the later half with the highest of the earlier."""

_SPACING = 16
"""A sample is taken at every step at first, later whenever the run is longer by this part."""

_FIRST_GAP = 8
"""Steps from the first look to the second."""

_FREE = 4
"""So many looks are made whatever they cost; later ones wait until they are no more than a share of the time."""

_SHARE = 0.02
_SHARE_OF_GROWTH = 0.1
"""That share while nothing grows, and while something does."""

_MOST_POINTS = 32
_MOST_DATASETS = 8


class Holders(Onlooker):
    """Takes a few numbers now and then: the blocks that Python has allocated, what the process owns, what the
    accelerator holds, what the workers of the loader own. Where one of the first three rises it looks, and again some
    steps later, and tells which containers grew in between (`memory/holders.py`)."""

    topic: ClassVar[str] = "holders"

    def __init__(self, watched: Watched, account: Callable[[float], None]) -> None:
        super().__init__(watched)
        self._account = account
        self._looks = Looks()
        self._signs: tuple[deque[int], ...] = tuple(deque(maxlen=_RECENT) for _ in range(3))
        self._step = -1
        self._next = _WARM
        self._due, self._gap = 0, _FIRST_GAP
        self._rises = self._grows = False
        self._not_before = 0.0
        self._loader: weakref.ref[Any] | None = None
        self._passes: dict[int, list[int]] = {}  # by dataset: batches of this pass, passes that are over
        self._workers: list[list[int]] = []
        self._pids: tuple[int, ...] = ()
        self._next_of_workers = 0
        self._on_accelerator = accelerator.is_there()
        self._over = False
        self._told: dict[str, Any] | None = None

    def data_came(self, batch: Any, loader: Any) -> None:
        self._count_passes(loader)
        if self._loader is None or self._loader() is not loader:
            self._loader = weakref.ref(loader)

    def finished(self) -> None:
        self._over = True

    def look(self, pack: Pack, step: int) -> None:
        self._told = None
        if step <= self._step and not self._over:
            return
        self._step = step
        if step >= self._next:
            began = perf_counter()
            self._next = step + max(1, step // _SPACING)
            self._sample(step)
            self._account(perf_counter() - began)
        if self._is_due(step):
            look = self._looks.look(step, self.watched.models, sys._getframe(1))
            self._account(look.seconds)
            self._plan(look)
            self._told = self._tell(look) if self._looks.number > 1 else None
        elif step >= self._next_of_workers and _rises([size for _, size in self._workers[-_RECENT:]]):
            self._next_of_workers = step + max(8, step // 4)
            self._told = self._tell(Look(step))

    def _sample(self, step: int) -> None:
        numbers = (sys.getallocatedblocks(), snapshots.own(), accelerator.allocated() if self._on_accelerator else 0)
        for sign, number in zip(self._signs, numbers, strict=True):
            sign.append(number)
        self._rises = any(_rises(sign) for sign in self._signs)
        self._ask_workers(step)

    def _is_due(self, step: int) -> bool:
        looks = self._looks.number
        if self._over:  # the last chance to see whether it went on
            return looks >= 2 and self._grows and step >= self._due - self._gap // 2
        if not self._rises and not self._grows and looks != 1:
            return False
        return step >= self._due and (looks < _FREE or perf_counter() >= self._not_before)

    def _plan(self, look: Look) -> None:
        """When the next look is to be: soon where something grows, else when the run is twice as long."""
        self._grows = any(each["holds"] != "numbers" and each["limit"] is None for each in look.growing)
        if self._looks.number > 1:
            self._gap = max(_FIRST_GAP, look.step // 2) if self._grows else max(_FIRST_GAP, look.step)
        self._not_before = perf_counter() + look.seconds / (_SHARE_OF_GROWTH if self._grows else _SHARE)
        self._due = look.step + self._gap

    def _tell(self, look: Look) -> dict[str, Any]:
        return {
            "looks": self._looks.number,
            "growing": look.growing,
            "groups": look.groups,
            "complete": look.complete,
            "own": snapshots.own(),
            "limit": snapshots.limit(),
            "used": snapshots.used(),
            "device": accelerator.room() if self._on_accelerator else None,
            "passes": min((over for _, over in self._passes.values()), default=None),
            "workers": self._of_workers(),
        }

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        return self._told

    def close(self) -> None:
        self._told, self._loader, self._looks = None, None, Looks()

    # -- the loader ----------------------------------------------------------------------------------------------

    def _count_passes(self, loader: Any) -> None:
        dataset = id(getattr(loader, "_dataset", None))
        came = int(getattr(loader, "_num_yielded", 0))
        known = self._passes.get(dataset)
        if known is not None:
            known[:] = came, known[1] + (came <= known[0])
        elif len(self._passes) < _MOST_DATASETS:
            self._passes[dataset] = [came, 0]

    def _iterator(self) -> Any:
        return None if self._loader is None else self._loader()

    def _ask_workers(self, step: int) -> None:
        """Notes what the loader's workers own; from anew where they are others."""
        workers = getattr(self._iterator(), "_workers", None) or ()
        pids = tuple(worker.pid for worker in workers if worker.pid is not None)
        if pids != self._pids:
            self._pids, self._workers = pids, []
        own = [size for pid in pids if (size := snapshots.own_of(pid)) is not None]
        if own:
            self._workers.append([step, sum(own)])
            if len(self._workers) > _MOST_POINTS:
                del self._workers[1::2]

    def _of_workers(self) -> dict[str, Any] | None:
        dataset = getattr(self._iterator(), "_dataset", None)
        if dataset is None or len(self._workers) < _RECENT:
            return None
        return {
            "count": len(self._pids),
            "own": [list(each) for each in self._workers],
            "dataset": type(dataset).__name__,
            "grown": grown_in_methods(dataset),
        }


def _rises(sign: Sequence[int]) -> bool:
    """Whether the later half of the last samples lies above the earlier one."""
    if len(sign) < _RECENT:
        return False
    values, half = list(sign), _RECENT // 2
    return max(values[:half]) < min(values[half:])
