"""How much memory this process may use, and how much of that is in use: of its cgroup's limit, else of the machine's.

The paths are found once; each call then reads a few small files. Where there is no cgroup, or no `/proc`, the machine's
memory is the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_NONE = 1 << 62
"""A limit above it is none: version 1 writes a number close to 2 ** 63."""


@dataclass(frozen=True)
class Group:
    """One cgroup's files: its limit, what it uses, and its statistics."""

    limit: Path
    used: Path
    stat: Path
    inactive: str
    """How its statistics call the page cache that can be dropped at once, with that of the groups in it."""

    def most(self) -> int | None:
        """Its limit in bytes, if it has one."""
        try:
            text = self.limit.read_text().strip()
            return None if text == "max" or int(text) >= _NONE else int(text)
        except (OSError, ValueError):
            return None

    def working_set(self) -> int | None:
        """What it uses, without the page cache that can be dropped: what the kernel kills by."""
        try:
            used = int(self.used.read_text())
            for line in self.stat.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == self.inactive:
                    return max(0, used - int(value))
            return used
        except (OSError, ValueError):
            return None


def groups(proc: Path = Path("/proc/self")) -> list[Group]:
    """The cgroups that this process's memory is counted in, innermost first."""
    found: list[Group] = []
    try:
        members = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return found
    for line in members:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            names = ("memory.max", "memory.current", "memory.stat", "inactive_file")
            tops = _mounts(mounts, "cgroup2", None)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file")
            tops = _mounts(mounts, "cgroup", "memory")
        else:
            continue
        for root, top in tops:
            for folder in _upwards(top, root, path):
                limit, used, stat, inactive = names
                if (folder / limit).is_file() and (folder / used).is_file():
                    found.append(Group(folder / limit, folder / used, folder / stat, inactive))
    return found


def folders_of(controller: str, proc: Path = Path("/proc/self")) -> list[Path]:
    """The folders of the cgroups in which this process's use of `cpu`, say, is counted, innermost first."""
    try:
        members = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for _, controllers, path in members:
        if controller in controllers.split(","):
            tops = _mounts(mounts, "cgroup", controller)
        else:
            tops = [] if controllers else _mounts(mounts, "cgroup2", None)
        found += [folder for root, top in tops for folder in _upwards(top, root, path)]
    return found


def _mounts(mounts: list[str], kind: str, controller: str | None) -> list[tuple[str, Path]]:
    """The folder of a hierarchy that is mounted, and where."""
    found: list[tuple[str, Path]] = []
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) < 5 or not more or more[0] != kind:
            continue
        if controller is None or controller in more[-1].split(","):
            found.append((fields[3], Path(fields[4].replace("\\040", " "))))
    return found


def _upwards(top: Path, root: str, path: str) -> list[Path]:
    """The folders from a group up to the mount; the mount alone where the group lies outside of what is mounted."""
    inside = path.removeprefix(root.rstrip("/")) if path.startswith(root.rstrip("/")) else ""
    folder = top / inside.strip("/") if ".." not in inside else top
    if not folder.is_dir():
        folder = top
    return [folder, *(each for each in folder.parents if each == top or top in each.parents)]


@cache
def _groups() -> tuple[Group, ...]:
    return tuple(groups())


@cache
def machine() -> int:
    """The bytes of memory of the machine."""
    return int(psutil.virtual_memory().total)


def tightest() -> tuple[int, Group | None]:
    """The smallest limit in bytes, and the cgroup that has it; `None` where it is the machine's memory."""
    least: int = machine()
    at: Group | None = None
    for group in _groups():
        most = group.most()
        if most is not None and 0 < most < least:
            least, at = most, group
    return least, at


def limit() -> int:
    """The bytes that this process may use: the smallest of its cgroups' limits and the machine's memory."""
    return tightest()[0]


def used() -> int:
    """The bytes in use of that limit, whoever in the cgroup (or on the machine) uses them; no page cache."""
    group = tightest()[1]
    working = None if group is None else group.working_set()
    if working is not None:
        return working
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)
