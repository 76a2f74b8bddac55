"""How often a client may do something."""

from __future__ import annotations

import time
from collections import OrderedDict


class Buckets:
    """For each client a bucket of `size`, refilled at a steady rate."""

    clients = 1024
    """Those seen longest ago are forgotten."""

    def __init__(self, size: int, per_second: float) -> None:
        self.size, self.per_second = size, per_second
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, client: str) -> bool:
        """Whether there is anything in it."""
        return self._level(client, time.monotonic()) >= 1

    def take(self, client: str) -> bool:
        """Takes one out, if there is one."""
        now = time.monotonic()
        level = self._level(client, now)
        enough = level >= 1
        self._levels[client] = (level - enough, now)
        self._levels.move_to_end(client)
        if len(self._levels) > self.clients:
            self._levels.popitem(last=False)
        return enough

    def _level(self, client: str, now: float) -> float:
        level, then = self._levels.get(client, (float(self.size), now))
        return min(float(self.size), level + (now - then) * self.per_second)
