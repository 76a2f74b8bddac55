"""How the ranks of a training decide alike: over torch's own key-value store, never by a collective of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from seismograd.recovery.policies import STRENGTH

FIRST = timedelta(seconds=60)
"""So long the other ranks may take to join: a watch on some ranks only must not hold up the training for long."""
LATER = timedelta(minutes=30)
"""So long a rank may be late with a step; torch's own collectives wait as long."""


Wish = tuple[str, int, int]
"""The name of a policy, the number of its ladder, and of its rung there."""


def _coded(wish: Wish) -> int:
    """As a number, the higher the more it does."""
    name, ladder, rung = wish
    return (STRENGTH.index(name) * 10_000 + ladder) * 100 + rung + 1


def _decoded(vote: int) -> Wish:
    return STRENGTH[vote // 1_000_000], vote // 100 % 10_000, vote % 100 - 1


class Agreement:
    """One vote of all ranks for each update: the highest wins.

    The last to come counts the votes and writes the result, for which the others wait. That takes a few short messages
    a rank, whatever their number.
    """

    def __init__(self) -> None:
        self._round = 0
        self._store: Any = None

    @staticmethod
    def is_needed() -> bool:
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def on(self, wish: Wish | None, onset: int) -> tuple[Wish | None, int]:
        """What is done, and when it began. A rank that does not come in time is a `RuntimeError`."""
        result, first = self._counted(0 if wish is None else _coded(wish), onset)
        return (_decoded(result) if result else None), first

    def _counted(self, vote: int, least: int) -> tuple[int, int]:
        """The highest vote, and the lowest of `least`."""
        if self._store is None:
            from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

            self._store = PrefixStore("seismograd/recovery", _get_default_store())
        number, self._round = self._round, self._round + 1
        rank, world, store = dist.get_rank(), dist.get_world_size(), self._store
        store.set(f"{number}/{rank}", f"{vote} {least}")
        if store.add(f"{number}/count", 1) == world:
            told = [store.get(f"{number}/{other}").decode().split() for other in range(world)]
            result = f"{max(int(vote) for vote, _ in told)} {min(int(least) for _, least in told)}"
            store.set(f"{number}/result", result)
            if number:
                for name in (*range(world), "count", "result"):
                    store.delete_key(f"{number - 1}/{name}")
        try:
            store.wait([f"{number}/result"], LATER if number else FIRST)
        except Exception as error:
            raise RuntimeError(
                "not all ranks take part in the recovery: open the watch with the same recovery=... on every rank"
            ) from error
        vote, least = (int(part) for part in store.get(f"{number}/result").decode().split())
        return vote, least
