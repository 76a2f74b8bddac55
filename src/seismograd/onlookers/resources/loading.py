"""How long the step waits for its data; and where it does so for long, for what, and what would help."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from threading import get_ident
from time import perf_counter
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer

from seismograd.detectors.running import median
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.resources.processors import allowed_processors
from seismograd.onlookers.resources.safety import caches, refusal
from seismograd.onlookers.resources.stacks import Sampler, Samples
from seismograd.onlookers.resources.trial import BATCHES, Order, Round, make
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

STEPS = 16
"""So many steps that waited say enough."""

SHARE, SECONDS = 0.4, 0.004
"""From here on a wait is worth a closer look: the detector's limits lie above."""

TRY_SHARE, TRY_SECONDS = 0.5, 0.01
"""From here on it is worth a trial."""

_SAMPLED = 6
_MOST_SAMPLING = 2.0
_LOOKS = 3
_MOST_PROCESSES = 8
_LONG = 0.5
"""A batch that takes longer is tried with fewer samples."""


class Loading(Onlooker):
    """Compares the wait for batches with the step; a wait that goes on is looked into once.

    First a thread of ours samples, for a few steps, what the loop's thread is at while it waits. Then, where that is
    safe, copies of the loader make a few batches in processes of their own.
    """

    topic: ClassVar[str] = "loading"

    def __init__(self, watched: Watched, account: Callable[[float], None]) -> None:
        super().__init__(watched)
        self._account = account  # what is done once in a run is not the steps' to pay
        self._judged: deque[tuple[float, float]] = deque(maxlen=STEPS)  # wait and length of steps, for each batch
        self._iterator: weakref.ref[Any] | None = None
        self._came = 0  # batches of this iterator
        self._batches = 0  # since the last step: several of them where gradients are accumulated
        self._passes: dict[int, int] = {}  # by dataset: how often it was begun
        self._rows = 0
        self._unjudged = True
        self._sampler: Sampler | None = None
        self._sampled, self._looks = 0, 0
        self._told: dict[str, Any] | None = None
        self._done = self._over = False
        self._device_done: Any = None
        self._device_idle = True

    # -- events --------------------------------------------------------------------------------------------------

    def data_came(self, batch: Any, loader: Any) -> None:
        if self._iterator is None or self._iterator() is not loader:
            self._iterator = weakref.ref(loader)
            self._came = 0
            source = id(getattr(loader, "_dataset", None))
            if len(self._passes) > 64:
                self._passes.clear()
            self._passes[source] = self._passes.get(source, 0) + 1
            if self._passes[source] == 2:  # a first pass may have been slow by nature: what comes now counts alone
                self._judged.clear()
        self._came += 1
        self._batches += 1
        if self._came <= int(getattr(loader, "_num_workers", 0)) + 2:
            self._unjudged = True  # the first batches of a pass wait for workers to start, by nature
        if not self._rows:
            given = getattr(getattr(loader, "_index_sampler", None), "batch_size", None)
            self._rows = given or next((len(tensor) for tensor in tensors_in(batch) if tensor.ndim), 0)
        if self._device_done is not None:
            self._device_idle = bool(self._device_done.query())

    def step_ended(self, optimizer: Optimizer) -> None:
        """On an accelerator a wait matters only if the device had nothing left to do."""
        roster = self.watched.roster
        device = roster.parameters[0].device if roster.parameters else None
        if device is not None and device.type == "cuda" and len(self._judged) >= STEPS // 2:
            if self._device_done is None:
                self._device_done = torch.Event(device)
            self._device_done.record()

    def timed(self, phases: Mapping[str, float]) -> None:
        unjudged, self._unjudged = self._unjudged, False
        batches, self._batches = max(1, self._batches), 0
        if unjudged or "data" not in phases:
            return
        told = phases.get
        between = told("evaluation", 0.0) + told("checkpoint", 0.0) + told("logging", 0.0)
        in_line = told("in_line", 0.0)  # a busy machine makes every phase longer, and that of data is no fault
        step = phases["step"] - phases["watch"] - between - in_line
        wait = phases["data"] - in_line if self._device_idle else 0.0
        if step > 0:
            self._judged.append((wait / batches, step / batches))

    def restart(self) -> None:
        self._unjudged, self._batches = True, 0

    def finished(self) -> None:
        self._over = True

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        if self._done:
            return
        if self._sampler is not None:
            self._sampled += 1
            if self._sampled >= _SAMPLED or not self._judged or self._over or not self._sampler.is_alive():
                self._look_into(self._stop())
        elif len(self._judged) == STEPS and self._looks < _LOOKS and not self._over and self._waits_for(SHARE, SECONDS):
            self._looks += 1
            self._sampled = 0
            self._sampler = Sampler(get_ident(), seconds=_MOST_SAMPLING + _SAMPLED * self._step)
            self._sampler.start()

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        if self._told is None or not self._waits_for(SHARE, SECONDS):
            return None
        iterator = self._iterator() if self._iterator is not None else None
        passes = self._passes.get(id(getattr(iterator, "_dataset", None)), 1)
        return {
            **self._told,
            "share": self._share,
            "wait": self._wait,
            "step": self._step,
            "steps": len(self._judged),
            "passes": passes,
        }

    def close(self) -> None:
        self._stop()
        self._iterator, self._device_done = None, None

    # -- inside --------------------------------------------------------------------------------------------------

    def _waits_for(self, share: float, seconds: float) -> bool:
        """Whether that is so of most steps; a look at two of them is enough where all is well."""
        judged = self._judged
        if not judged or max(judged[0][0], judged[-1][0]) < seconds:
            return False
        return self._wait >= seconds and self._share >= share

    @property
    def _share(self) -> float:
        return median([wait / step for wait, step in self._judged])

    @property
    def _wait(self) -> float:
        return median([wait for wait, _ in self._judged])

    @property
    def _step(self) -> float:
        return median([step for _, step in self._judged])

    def _stop(self) -> Samples:
        sampler, self._sampler = self._sampler, None
        return Samples() if sampler is None else sampler.stop()

    def _look_into(self, samples: Samples) -> None:
        """What the wait is for, and what would help: once, when it is certain that there is one."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is None or not self._waits_for(SHARE, SECONDS):
            return
        workers = int(iterator._num_workers)
        told: dict[str, Any] = {
            "workers": workers,
            "prefetch": getattr(iterator, "_prefetch_factor", None),
            "pinned": bool(getattr(iterator, "_pin_memory", False)),
            "dataset": type(iterator._dataset).__name__,
            "samples": _length(iterator._dataset),
            "batch": self._rows,
            "cores": allowed_processors(),
            "threads": torch.get_num_threads(),
            "trial": None,
        }
        refused = None
        certain = self._waits_for(TRY_SHARE, TRY_SECONDS)
        if certain:
            began = perf_counter()
            refused = refusal(iterator)
            if refused is None:
                seen = samples if not workers else Samples()
                told["trial"], refused = self._try(iterator, workers, seen, told["cores"])
                samples = seen if len(seen) else samples
            self._account(perf_counter() - began)
        told |= {"refused": refused, "caches": caches(iterator._dataset), "stages": samples.shares(), "line": None}
        if told["stages"]:
            line = samples.line_of(next(iter(told["stages"])))
            told["line"] = None if line is None else {"file": line.file, "line": line.line, "code": line.code}
        self._told, self._done = told, certain

    def _try(
        self, iterator: Any, workers: int, samples: Samples, cores: int
    ) -> tuple[dict[str, Any] | None, str | None]:
        """How many batches a second the loader makes with its workers, and with more."""
        cost = self._step * workers if workers else self._wait
        order = _order(iterator, max(1, self._rows), cost)
        if order is None:
            return None, "the dataset is too small for it"
        part = len(order.indices[0]) / max(1, self._rows) if order.auto_collation else 1.0
        now = make(order, max(1, min(workers, _MOST_PROCESSES)), samples)
        if now.error is not None or not now.rate:
            return None, f"a copy of it failed: {now.error}"
        waits = now.cpu < 0.5 * now.quiet  # it leaves the CPU idle: more processes than cores may help
        more = min(_MOST_PROCESSES if waits else cores, max(4 if waits else 2, 2 * workers))
        rounds = [now] + ([make(order, more, samples)] if more > now.processes else [])
        rounds = [each for each in rounds if each.error is None and each.rate]
        return {"waits": waits, "rounds": [_plain(each, part) for each in rounds], "again": now.again}, None


def _plain(made: Round, part: float) -> dict[str, Any]:
    """In whole batches, where parts of batches were made."""
    return {
        "workers": made.processes,
        "batches": made.batches,
        "rate": made.rate * part,
        "cpu": made.cpu / part,
        "quiet": made.quiet / part,
        "bytes": made.size / part,
    }


def _order(iterator: Any, rows: int, cost: float) -> Order | None:
    """Batches of samples that lie evenly over the dataset, or over those that the sampler takes."""
    sampler = getattr(iterator._index_sampler, "sampler", iterator._index_sampler)
    chosen = getattr(sampler, "indices", None)
    known = range(len(iterator._dataset)) if chosen is None else chosen
    automatic = bool(iterator._auto_collation)
    size = (max(1, int(rows * min(1.0, _LONG / max(cost, 1e-9)))) if automatic else 1) or 1
    if len(known) < 2 * size:
        return None
    wanted = min(len(known), 2 * BATCHES * size)
    spread = [int(known[at * len(known) // wanted]) for at in range(wanted)]
    batches = [spread[at : at + size] for at in range(0, wanted - size + 1, size)]
    init = getattr(iterator, "_worker_init_fn", None)
    return Order(iterator._dataset, iterator._collate_fn, automatic, init, batches)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None
