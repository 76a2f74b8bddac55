"""What there is to say of a container that grew: its name, its line, what bounds or empties it, what it holds."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from time import perf_counter
from types import CodeType
from typing import Any

from torch import Tensor, nn

from seismograd.memory.nodes import Container, Node, plain
from seismograd.memory.sites import Site, Source, Tail, growth, source_of
from seismograd.memory.walk import Walk
from seismograd.memory.weights import SAMPLE, Weight, storages, weigh
from seismograd.places import is_users, shown

_MOST_FILES = 24
_READING = 0.3
"""Seconds for reading sources in one look."""

Length = tuple[int, int]
"""A step, and how long the container was after it."""


class Teller:
    """Says what there is to say of a container, from the objects and from the source."""

    def __init__(self, walk: Walk, models: Mapping[str, nn.Module]) -> None:
        self._walk, self._models = walk, models
        self._known = storages(models.values())
        self._until = perf_counter() + _READING
        self._sources: dict[str, Source] = {}

    def tell(self, container: Container, lengths: list[Length]) -> dict[str, Any]:
        node, kind = container.node, container.kind
        weight = _weight(container, self._known)
        files = self._files(node)
        tails = self._tails(container)
        site = self._site(container, tails, files)
        made = None if site is not None else self._made(node, tails, files)
        at = site or made
        steps = lengths[-1][0] - lengths[0][0]
        if kind == "cache":
            at = _definition(container.thing)
        return {
            "name": self.name(container),
            "kind": kind,
            "scope": self._scope(node),
            "module": self._module(container),
            "file": shown(at.file) if at else _short(node.root.file),
            "line": at.line if at else node.root.line,
            "code": at.code if at else None,
            "known": at is not None,
            "how": site.how if site else None,
            "value": site.value if site else "",
            "count": container.length,
            "lengths": [list(each) for each in lengths],
            "rate": (lengths[-1][1] - lengths[0][1]) / steps if steps > 0 else 0.0,
            "each": weight.bytes,
            "holds": weight.holds,
            "tensors": weight.tensors,
            "graphs": weight.graphs,
            "freed": weight.freed,
            "numel": weight.numel,
            "shape": list(weight.shape),
            "dtype": weight.dtype,
            "device": weight.device,
            "limit": container.limit,
            "guarded": bool(site and site.guarded),
            "emptied": self._is_emptied(node, tails, site, files),
            "read": self._is_read(node, tails, files),
            "passing": node.root.passing,
            "by_tensors": _is_keyed_by_tensors(container),
            "unused": kind == "cache" and container.thing.cache_info().hits == 0,
        }

    def name(self, container: Container) -> str:
        node = container.node
        if container.kind == "hooks" and node.above is not None:
            return node.above.name
        return node.name

    def _scope(self, node: Node) -> str:
        if node.root.scope == "threads":
            return "of the process"
        if node.sort == "hooks":
            return node.label.removeprefix(".")
        if node.sort in ("closure", "default") and node.function is not None:
            what = "held by function" if node.sort == "closure" else "default argument of"
            return f"{what} `{plain(node.function.__qualname__)}`"
        named = next((each for each in _upwards(node) if not each.label.startswith("[")), node)
        if named.sort in ("closure", "default") and named is not node:
            return self._scope(named)
        if named.holder is not None:
            what = "attribute of class" if named.sort == "class" else "attribute of"
            return f"{what} `{named.holder.__name__}`"
        if node.root.scope == "local":
            return f"local of `{plain(node.root.owner)}`"
        if node.root.scope == "global":
            return "global"
        return f"attribute of `{node.root.owner}`"

    def _module(self, container: Container) -> str | None:
        """The path of the module whose attribute or hook it is."""
        if not isinstance(container.owner, nn.Module):
            return None
        for prefix, model in self._models.items():
            for name, module in model.named_modules():
                if module is container.owner:
                    return ".".join(part for part in (prefix, name) if part) or None
        return None

    # -- the source ----------------------------------------------------------------------------------------------

    def _files(self, node: Node) -> list[Source]:
        """The sources that may speak of it, the likeliest first."""
        names: dict[str, None] = {}
        for each in _upwards(node):
            if each.function is not None:
                names.setdefault(each.function.__code__.co_filename)
            for kind in each.holder.__mro__ if each.holder is not None else ():
                file = getattr(sys.modules.get(kind.__module__), "__file__", None)
                if file in self._walk.files:
                    names.setdefault(file)
        if node.root.file is not None:
            names.setdefault(node.root.file)
        for file in self._walk.files:
            names.setdefault(file)
        return [self._source(file) for file in islice(names, _MOST_FILES)]

    def _source(self, file: str) -> Source:
        known = self._sources.get(file)
        if known is None:
            if perf_counter() > self._until:
                return Source()
            known = self._sources[file] = source_of(file)
        return known

    def _tails(self, container: Container) -> list[Tail]:
        key: str | None = None
        tails: list[Tail] = []
        for label in reversed(container.node.labels):
            if label.startswith("["):
                key = label[1:-1] if label != "[...]" else None
                continue
            name = label.rpartition(".")[2]
            if name.isidentifier() and name != "__self__":
                tails.append(Tail(name, key, "." in label))
                break
        aliases = self._walk.aliases.get(id(container.thing), ())
        return tails + [Tail(name) for name in sorted(aliases)]

    def _site(self, container: Container, tails: list[Tail], files: list[Source]) -> Site | None:
        """The line that makes it longer."""
        node = container.node
        if container.kind == "hooks":
            wanted = node.label.removeprefix(".")
            names = (wanted, wanted.replace("full_", ""))
            sites = [site for source in files for site in source.hooks if site.how in names]
            newest = getattr(next(iter(_newest(container)), None), "__code__", None)
            return min(sites, key=lambda site: (not _registers(site, newest), self._away(site)), default=None)
        if container.kind == "threads":
            return min((site for source in files for site in source.threads), key=self._away, default=None)
        if container.kind == "cache":
            return None
        found = [
            (rank, number, site)
            for number, source in enumerate(files)
            for tail in tails
            for site in growth(source.grows, container.kind)
            if site.tail.fits(tail) and (rank := _rank(site, node)) is not None
        ]
        return min(found, key=lambda each: each[:2], default=(0, 0, None))[2]

    def _away(self, site: Site) -> int:
        """How far a line is from what runs now: 0 in a loop of a live frame."""
        if (site.file, site.function) not in self._walk.running:
            return 2
        return 0 if site.loops else 1

    def _goes_on(self, site: Site) -> bool:
        """Whether a line may run again: not one before or after the loops of a function that is called once."""
        return bool(site.loops) or self._walk.running.get((site.file, site.function), True)

    def _made(self, node: Node, tails: list[Tail], files: list[Source]) -> Site | None:
        sites = [
            (rank, number, site)
            for number, source in enumerate(files)
            for tail in tails
            for site in source.made
            if site.tail.fits(tail) and (rank := _rank(site, node)) is not None
        ]
        return min(sites, key=lambda each: each[:2], default=(0, 0, None))[2]

    def _is_emptied(self, node: Node, tails: list[Tail], site: Site | None, files: list[Source]) -> bool:
        """Whether the source takes something out of it, or makes it anew while it grows."""
        for source in files:
            for tail in tails:
                for each in source.shrinks:
                    if each.tail.fits(tail) and _rank(each, node) is not None and self._goes_on(each):
                        return True
                for each in source.made:
                    anew = each.tail.fits(tail) and _rank(each, node) is not None and _is_anew(each, tail, site)
                    if anew and self._goes_on(each):
                        return True
        return False

    def _is_read(self, node: Node, tails: list[Tail], files: list[Source]) -> bool | None:
        """Whether anything but putting in is done with it; `None` where that cannot be known."""
        if not tails or any(file.startswith("<") for file in self._walk.files):
            return None
        return any(
            site.tail.name == tail.name and site.tail.attribute == tail.attribute and _rank(site, node) is not None
            for source in files
            for site in source.reads
            for tail in tails
        )


def _registers(site: Site, code: CodeType | None) -> bool:
    """Whether this line registers the hook with this code: by its name, or written there as a lambda."""
    if code is None:
        return False
    return site.value.rpartition(".")[2] == code.co_name or (
        site.file == code.co_filename and site.line == code.co_firstlineno
    )


def _is_anew(made: Site, tail: Tail, site: Site | None) -> bool:
    if tail.attribute:
        return made.function.rpartition(".")[2] not in _SET_UP and made.function != made.owner
    if made.loops:
        return site is None or site.function != made.function or made.loops == site.loops[: len(made.loops)]
    return False


_SET_UP = frozenset(["__init__", "__post_init__", "__new__", "__init_subclass__"])


def _rank(site: Site, node: Node) -> int | None:
    """How surely a line speaks of this container: 0 is sure, `None` not at all."""
    named = next((each for each in _upwards(node) if not each.label.startswith("[")), node)
    if named.function is not None:
        inside = plain(named.function.__qualname__)
        same = site.file == named.function.__code__.co_filename
        if not same:
            return None
        return 0 if site.function == inside else 1 if inside.startswith(site.function) else 2
    if named.holder is not None:
        own = site.owner in {kind.__name__ for kind in named.holder.__mro__}
        return 0 if own else None if site.tail.of_self else 2
    if site.file != node.root.file:
        return 3 if node.root.scope == "global" else None
    inside = plain(node.root.owner) if node.root.scope == "local" else ""
    if site.function == inside:
        return 0
    return 1 if site.function.startswith(inside) else 2


def _short(file: str | None) -> str | None:
    return None if file is None else shown(file)


def _upwards(node: Node) -> Iterator[Node]:
    at: Node | None = node
    while at is not None:
        yield at
        at = at.above


def grown_in_methods(thing: Any) -> list[dict[str, Any]]:
    """The containers among an object's attributes that its methods put something into, as the source says.

    For what grows out of sight: a dataset's copy in a worker."""
    kind = type(thing)
    files = {getattr(sys.modules.get(each.__module__), "__file__", None) for each in kind.__mro__}
    names = {each.__name__ for each in kind.__mro__}
    found = []
    for file in sorted(file for file in files if file is not None and is_users(file)):
        source = source_of(file)
        for site in source.grows:
            value = object.__getattribute__(thing, "__dict__").get(site.tail.name) if site.tail.attribute else None
            inside = site.owner in names and site.function.rpartition(".")[2] not in _SET_UP
            if not inside or type(value) not in (list, dict, set, deque):
                continue
            emptied = any(each.tail.fits(site.tail) and each.owner in names for each in source.shrinks)
            found.append(
                {
                    "name": f"self.{site.tail.name}",
                    "kind": type(value).__name__,
                    "file": shown(site.file),
                    "line": site.line,
                    "code": site.code,
                    "how": site.how,
                    "guarded": site.guarded,
                    "emptied": emptied,
                    "limit": value.maxlen if isinstance(value, deque) else None,
                }
            )
    return found[:4]


# -- what is in it -------------------------------------------------------------------------------------------------


def _weight(container: Container, known: frozenset[int]) -> Weight:
    thing, kind = container.thing, container.kind
    if kind == "tensor":
        weight = weigh([thing])
        weight.bytes = weight.bytes / max(1, container.length)
        return weight
    if kind == "array":
        return Weight(float(thing.itemsize), "arrays")
    if kind == "threads":
        return Weight(0.0, "threads")
    return weigh(_newest(container), known)


def _definition(wrapper: Any) -> Site | None:
    """Where the function of a cache is written."""
    code = getattr(getattr(wrapper, "__wrapped__", None), "__code__", None)
    return None if code is None else Site(Tail(""), "", code.co_filename, code.co_firstlineno, "", "", ())


def _is_keyed_by_tensors(container: Container) -> bool:
    """Whether its keys are tensors: those are never found again, for each is equal only to itself."""
    if container.kind == "cache":
        keys: Iterable[Any] = (key for key, _ in _newest(container))
    elif container.kind == "dict":
        keys = islice(dict.__reversed__(container.thing), SAMPLE)
    else:
        return False
    parts = [part for key in keys for part in (key if isinstance(key, (tuple, list)) else (key,))]
    return any(issubclass(type(part), Tensor) for part in parts)


def _newest(container: Container) -> Iterable[Any]:
    thing = container.thing
    if container.kind in ("list", "deque"):
        kind: Any = list if container.kind == "list" else deque
        length = kind.__len__(thing)
        return [kind.__getitem__(thing, at) for at in range(max(0, length - SAMPLE), length)]
    if container.kind == "set":
        return list(islice(set.__iter__(thing), SAMPLE))
    if container.kind == "cache":
        inner = max((each for each in gc.get_referents(thing) if type(each) is dict), key=len, default={})
        return list(islice(reversed(inner.items()), SAMPLE))
    return list(islice(reversed(dict.values(thing)), SAMPLE))
