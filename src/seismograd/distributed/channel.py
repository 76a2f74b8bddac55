"""A side channel between the ranks of a training: short messages over a connection of its own to torch's store.

Torch's ranks meet at a key-value store, which lives on as long as they train. The channel is another connection to it:
never the training's own, so that nothing of ours can stand in front of it. Nothing here is a collective, nobody waits
for anybody, and all of it runs on a thread of ours: if the store is gone, the channel is closed, and that is all.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.distributed_c10d import _get_default_store

PATIENCE = timedelta(seconds=5)
"""So long an answer of the store may take."""
DEPTH = 4
"""Messages of a rank that may wait for the leader: if nobody takes them, no more are sent."""


class NoChannelError(RuntimeError):
    """There is no way to the other ranks; the message says why."""


def is_needed() -> bool:
    """Whether this process trains together with others."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class Channel:
    """What one rank says and hears. Every call may raise: whoever uses it then lets go of it."""

    def __init__(self, name: str, *, store: Any = None, rank: int | None = None, world: int | None = None) -> None:
        self.rank = dist.get_rank() if rank is None else rank
        self.world = dist.get_world_size() if world is None else world
        self._store: Any = PrefixStore(f"seismograd/{name}", own_connection() if store is None else store)
        self._sent = 0
        self._taken: dict[int, int] = {}
        self._asked = 0
        self._questions = 0

    # -- to the leader -----------------------------------------------------------------------------------------------

    def post(self, message: str) -> bool:
        """Sends a message to the leader; `False` if it has not taken those before."""
        if self._sent >= DEPTH and self._store.check([f"note/{self.rank}/{self._sent - DEPTH}"]):
            return False
        self._store.set(f"note/{self.rank}/{self._sent}", message)
        self._sent += 1
        return True

    def collect(self, rank: int) -> list[str]:
        """What has come from a rank since the last time."""
        found: list[str] = []
        at = self._taken.get(rank, 0)
        while len(found) < DEPTH and self._store.check([key := f"note/{rank}/{at}"]):
            found.append(self._store.get(key).decode())
            self._store.delete_key(key)
            at += 1
        self._taken[rank] = at
        return found

    # -- to everyone -------------------------------------------------------------------------------------------------

    def ask(self, question: str) -> None:
        """The leader asks something of all ranks; only the newest question stands."""
        self._questions += 1
        self._store.set("question", f"{self._questions} {question}")

    def asked(self) -> str | None:
        """What the leader asks, if it was not heard before."""
        if not self._store.check(["question"]):
            return None
        number, _, question = self._store.get("question").decode().partition(" ")
        if int(number) <= self._asked:
            return None
        self._asked = int(number)
        return str(question)

    def beat(self, told: str) -> None:
        """A sign of life, with how it goes."""
        self._store.set(f"beat/{self.rank}", told)

    def beats(self, ranks: Iterable[int]) -> dict[int, str]:
        """The newest signs of life of some ranks; those that never gave one are left out."""
        return {rank: self._store.get(key).decode() for rank in ranks if self._store.check([key := f"beat/{rank}"])}

    def close(self) -> None:
        self._store = None


def own_connection() -> Any:
    """Another connection to the store at which the ranks have met, with a limit of time where torch keeps to it."""
    store = _get_default_store()
    inner = store
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, TCPStore):
        raise NoChannelError(f"the ranks have met at a {type(inner).__name__}, which has no second connection")
    if hasattr(store, "clone"):
        own = store.clone()
    else:  # an older torch
        own = TCPStore(inner.host, inner.port, None, False, PATIENCE, wait_for_workers=False)
    own.set_timeout(PATIENCE)
    return own
