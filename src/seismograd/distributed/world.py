"""Who we are among the ranks, and which run it is that all of them are in. Nothing of torch is imported for it."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from seismograd import records
from seismograd.records import attempt, rank, spans_machines, world_size

__all__ = ["Place", "attempt", "place", "rank", "run_id", "spans_machines", "store", "world_size"]

PATIENCE = 5.0
"""Seconds that the first rank is waited for to name the run."""


@dataclass(frozen=True, slots=True)
class Place:
    """This process among the others."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    host: str
    pid: int
    attempt: int


def place() -> Place:
    """Who we are."""
    local, among = os.environ.get("LOCAL_RANK", ""), os.environ.get("LOCAL_WORLD_SIZE", "")
    return Place(
        rank=rank(),
        world=world_size(),
        local_rank=int(local) if local.isdecimal() else 0,
        local_world=int(among) if among.isdecimal() else 1,
        host=platform.node(),
        pid=os.getpid(),
        attempt=attempt(),
    )


def run_id() -> str:
    """A name for a run, the same on all ranks of a launch and in all its attempts.

    The ranks of one machine have the same parent, which is enough. Where they are on several, or the launcher is no
    elastic one, the first says it over torch's own key-value store. Without one, it is made of what all are told: so
    it is, too, where the store is the ranks' own, which is another one in each attempt.
    """
    name = records.run_id()
    elastic = bool(os.environ.get("TORCHELASTIC_RUN_ID"))
    if world_size() < 2 or (elastic and not spans_machines()):
        return name
    proposed = name if elastic and not _is_the_launchers() else records.new_id()
    told: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # it does not answer, or not in time: what all are told has to do
            found = store()
            if found is not None:
                told.append(_agreed(found, proposed))

    asking = threading.Thread(target=ask, name="seismograd-name", daemon=True)  # not all of torch's calls have a limit
    asking.start()
    asking.join(2 * PATIENCE)
    return told[0] if told else name


def store(timeout: float = PATIENCE) -> Any:
    """A connection of our own to the key-value store that all ranks share, whatever the attempt; none if there is none.

    Never the training's: one that waits there makes others wait.
    """
    torch = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available():
        return None
    if torch.is_initialized():
        from torch.distributed.distributed_c10d import _get_default_store

        found: Any = _get_default_store()
        while isinstance(found, torch.PrefixStore):
            found = found.underlying_store
        if isinstance(found, torch.TCPStore):
            return _client(torch, found.host, found.port, timeout)
        return found.clone() if hasattr(found, "clone") else None
    if _is_the_launchers():  # it is there before the ranks
        return _client(torch, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout)
    return None


def _is_the_launchers() -> bool:
    """Whether the store is the elastic launcher's own, which lives as long as the launch."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _client(torch: Any, host: str, port: int, timeout: float) -> Any:
    wait = timedelta(seconds=timeout)
    return torch.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait)


def _agreed(found: Any, proposed: str) -> str:
    """What the first rank calls the run; if it does not come, the first that waited long enough."""
    key = f"seismograd/run/{next(_named)}"
    if rank():
        with contextlib.suppress(Exception):  # a timeout has another class in each version of torch
            found.wait([key], timedelta(seconds=PATIENCE))
    told = found.compare_set(key, "", proposed)
    return told.decode() if isinstance(told, bytes) else str(told)


_named = itertools.count()
