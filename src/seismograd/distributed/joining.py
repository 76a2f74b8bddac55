"""Has a rank compare itself with the others: ties the exchange to a debugger and its loop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch.distributed as dist

from seismograd.distributed.channel import Channel, is_needed
from seismograd.distributed.exchange import Exchange, hang_limit
from seismograd.distributed.stalls import Stalls
from seismograd.onlookers.ranks.replicas import Replicas
from seismograd.records import DebugLevel

if TYPE_CHECKING:
    from seismograd.loop import Loop
    from seismograd.training import TrainingDebugger

_EVERY = {DebugLevel.BASIC: 8, DebugLevel.ADVANCED: 2, DebugLevel.EXTREME: 1}
"""Of so many steps one is summed up, by level; all of the first ones are."""


def join(debugger: TrainingDebugger, loop: Loop) -> bool:
    """Joins the other ranks, if there are any by now; whether it did."""
    if not is_needed():
        return False
    exchange = debugger.exchange
    if exchange is None:
        exchange = debugger.exchange = _opened(debugger)
    replicas = Replicas(
        loop.watched,
        tell=exchange.state,
        every=lambda: _EVERY[debugger.level],
        account=loop.account,
    )
    exchange.replicas = replicas
    loop.add(replicas)
    return True


def processors() -> float:
    """How much of a processor each rank on this machine has, at most 1."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(1.0, there / max(1, ranks))


def _opened(debugger: TrainingDebugger) -> Exchange:
    rank, world = dist.get_rank(), dist.get_world_size()
    name = f"{debugger.id}/{os.environ.get('TORCHELASTIC_RESTART_COUNT') or 0}"
    governor = debugger.governor

    def progress() -> object:
        loop = debugger.loop
        return debugger.newest_step if loop is None else loop.progress

    def thread() -> int:
        loop = debugger.loop
        return 0 if loop is None else loop.thread

    def usual() -> float:
        return governor.elapsed / governor.steps if governor.steps else 0.0

    return Exchange(
        name,
        rank,
        world,
        connect=lambda: Channel(name, rank=rank, world=world),
        deliver=debugger.hear_ranks,
        note=debugger.note,
        stalls=Stalls(progress, thread, usual, hang_limit()),
    )
