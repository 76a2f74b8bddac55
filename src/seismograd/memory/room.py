"""How much memory can still be had, and what stands in the way: the machine, a cgroup's limit, or `ulimit`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from seismograd.memory.limits import Group, tightest, used


@dataclass(frozen=True, slots=True)
class Room:
    """The tightest of the limits. Page cache that can be dropped counts as free."""

    limit: int
    used: int
    """By all who share it; under the user's own limit by this process, in addresses."""
    of: str
    """`machine`, `cgroup` or `ulimit`."""

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


def room() -> Room:
    """What is left now, swap included where the machine is the limit. A fraction of a millisecond."""
    found = [_machine()]
    limit, group = tightest()
    if group is not None:
        found.append(Room(limit, _unreclaimable(group), "cgroup"))
    addresses = _address_limit()
    if addresses is not None:
        found.append(Room(addresses, _addresses(), "ulimit"))
    return min(found, key=lambda each: each.left)


def _machine() -> Room:
    try:
        with open("/proc/meminfo", "rb", buffering=0) as file:
            lines = file.read(4096).splitlines()
        told = {line.partition(b":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(b" kB")}
        total, available, swap = told[b"MemTotal"], told[b"MemAvailable"], told.get(b"SwapFree", 0)
    except (OSError, ValueError, IndexError, KeyError):
        memory = psutil.virtual_memory()
        total, available, swap = int(memory.total), int(memory.available), 0
    return Room(total + swap, total - available, "machine")


def _unreclaimable(group: Group) -> int:
    """What a cgroup uses without any page cache: a dataset that was read twice counts as active, and can be dropped."""
    active = group.inactive.replace("inactive", "active")
    try:
        lines = (line.partition(" ") for line in group.stat.read_text().splitlines())
        cached = sum(int(value) for name, _, value in lines if name in (group.inactive, active))
        return max(0, int(group.used.read_text()) - cached)
    except (OSError, ValueError):
        return used()


def _address_limit() -> int | None:
    """What `ulimit -v` allows, as batch systems set it; `None` where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft in (resource.RLIM_INFINITY, -1) else soft


def _addresses() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return int(psutil.Process().memory_info().vms)
