"""A few batches made by copies of a loader in processes of their own: what more workers give, and where time goes.

The copies are forked, so that nothing they do reaches this process: not the dataset, not a generator, not the sampler,
whose place is taken by indices of ours. They write nowhere, are given a second or two, and are killed after that.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter, process_time
from typing import Any

import torch
from torch.utils.data._utils import worker as workers_of_torch
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.resources.stacks import Sampler, Samples
from seismograd.probes.timing import time_in_line

BATCHES = 8
"""So many batches are made in each round, if there is time."""

ROUND = 1.0
"""Seconds that a round may take; a batch that has begun is finished."""

PATIENCE = 2.5
"""Seconds after which a copy is given up."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a copy of the loader has to make."""

    dataset: Any
    collate: Any
    auto_collation: bool
    init: Any
    """The loader's `worker_init_fn`."""
    indices: Sequence[Sequence[int]]
    """The samples of each batch."""


@dataclass(slots=True)
class Round:
    """How fast so many processes made batches."""

    processes: int
    batches: int = 0
    rate: float = 0.0
    """Batches a second, all processes together."""
    cpu: float = 0.0
    """CPU seconds for a batch."""
    quiet: float = 0.0
    """Seconds for a batch in one process, without those in which others had the processors."""
    again: float = 1.0
    """How much faster a batch was made the second time."""
    size: int = 0
    """Bytes of a batch."""
    error: str | None = None


def make(order: Order, processes: int, samples: Samples) -> Round:
    """Has `processes` copies make batches side by side, and adds to `samples` where they were seen."""
    result = Round(processes)
    children: list[tuple[int, int]] = []
    gate, go = os.pipe()
    try:
        for number in range(processes):
            read, write = os.pipe()
            child = _fork()
            if child == 0:
                _be_worker(order, number, processes, gate, write)
            os.close(write)
            children.append((child, read))
        os.close(gate)
        gate = -1
        os.write(go, b"g" * processes)
        for told in _gather([read for _, read in children]):
            if told is None or "error" in told:
                result.error = "it did not come to an end in time" if told is None else told["error"]
                continue
            samples.add(told["rows"])
            result.batches += told["batches"]
            result.rate += told["batches"] / told["seconds"]
            result.cpu += told["cpu"]
            result.quiet += told["quiet"]
            result.again, result.size = told["again"], told["size"]
        result.cpu /= max(1, result.batches)
        result.quiet /= max(1, result.batches)
        return result
    finally:
        for child, read in children:
            _end(child)
            os.close(read)
        for end in (gate, go):
            if end >= 0:
                os.close(end)


def _fork() -> int:
    if sys.version_info < (3, 12):
        return os.fork()
    with warnings.catch_warnings():  # of threads: whoever hangs is ended
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _gather(pipes: Sequence[int]) -> list[dict[str, Any] | None]:
    """What each copy told, or None for one that did not in time."""
    texts: dict[int, bytes] = dict.fromkeys(pipes, b"")
    waiting, end = set(pipes), perf_counter() + PATIENCE
    while waiting and (left := end - perf_counter()) > 0:
        for pipe in select.select(list(waiting), [], [], left)[0]:
            part = os.read(pipe, 65536)
            texts[pipe] += part
            if not part:
                waiting.discard(pipe)
    return [_parsed(text) if pipe not in waiting else None for pipe, text in texts.items()]


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(text)
    except ValueError:  # it died
        return None
    return told


def _end(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)


# -- in the copy ---------------------------------------------------------------------------------------------------


def _be_worker(order: Order, number: int, processes: int, gate: int, write: int) -> None:
    """Never returns."""
    try:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(name, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE + 1.0)  # even if nobody is left to end it
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        sys.stdout = sys.stderr = os.fdopen(nowhere, "w")  # a notebook's are no files
        try:
            told = _worked(order, number, processes, gate)
        except BaseException as error:
            told = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.write(write, json.dumps(told).encode())
    finally:
        os._exit(0)


def _worked(order: Order, number: int, processes: int, gate: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    info: Any = workers_of_torch
    info._worker_info = info.WorkerInfo(id=number, num_workers=processes, seed=number, dataset=order.dataset)
    if order.init is not None:
        order.init(number)
    fetcher: Any = _MapDatasetFetcher(order.dataset, order.auto_collation, order.collate, False)
    mine = order.indices[number::processes]
    sampler = Sampler(get_ident(), interval=0.001, seconds=PATIENCE)
    sampler.start()
    os.read(gate, 1)
    began, cpu, in_line, times = perf_counter(), process_time(), time_in_line(), []
    size = 0
    for indices in mine:
        start = perf_counter()
        batch = fetcher.fetch(list(indices) if order.auto_collation else indices[0])
        times.append(perf_counter() - start)
        size = sum(tensor.nbytes for tensor in tensors_in(batch))
        if perf_counter() - began > ROUND:
            break
    seconds, cpu, in_line = perf_counter() - began, process_time() - cpu, time_in_line() - in_line
    start = perf_counter()
    fetcher.fetch(list(mine[0]) if order.auto_collation else mine[0][0])
    again = perf_counter() - start
    rows = sampler.stop().rows()
    return {
        "batches": len(times),
        "seconds": seconds,
        "cpu": cpu,
        "quiet": max(cpu, seconds - in_line),
        "again": sorted(times)[len(times) // 2] / max(again, 1e-9),
        "size": size,
        "rows": rows,
    }
