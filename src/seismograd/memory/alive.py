"""Which tensors are alive, by shape, dtype and device, and who holds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch import Tensor, nn

from seismograd import living
from seismograd.memory.nodes import Container

_MOST_ITEMS = 50_000
_MOST_GROUPS = 6
_LARGE = 2_000_000


def live_tensors(
    models: Mapping[str, nn.Module],
    containers: Iterable[tuple[Container, str]],
    objects: Callable[[], list[Any]] = living.objects,
) -> list[dict[str, Any]]:
    """The live tensors that take most, by shape, dtype and device, and who holds how many of each."""
    holders: dict[int, str] = {}
    for model in models.values():
        for parameter in model.parameters():
            holders[id(parameter)] = "parameters"
            if parameter.grad is not None:
                holders[id(parameter.grad)] = "gradients"
        holders.update((id(buffer), "buffers") for buffer in model.buffers())
    for container, name in containers:
        for item in _all(container):
            for each in (item,) if isinstance(item, Tensor) else _inside(item):
                holders.setdefault(id(each), name)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    kinds = {kind for kind in _kinds(Tensor) if kind.__name__ != "FakeTensor"}  # torch.compile leaves some: no memory
    for thing in [each for each in islice(objects(), _LARGE) if type(each) in kinds]:
        try:
            key = (tuple(thing.shape), thing.dtype, thing.device.type)
            size = thing.numel() * thing.element_size()
            group = groups.setdefault(key, {"count": 0, "bytes": 0, "held": {}})
        except (RuntimeError, NotImplementedError, TypeError):  # TypeError: a shape of symbols
            continue
        group["count"] += 1
        group["bytes"] += size
        held = group["held"]
        who = holders.get(id(thing), "others")
        held[who] = held.get(who, 0) + 1
    largest = sorted(groups.items(), key=lambda each: -each[1]["bytes"])[:_MOST_GROUPS]
    return [
        {"shape": list(shape), "dtype": str(dtype).removeprefix("torch."), "device": device, **group}
        for (shape, dtype, device), group in largest
    ]


def _kinds(kind: type) -> set[type]:
    """A class and all below it."""
    found, waiting = {kind}, [kind]
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())
        for each in below:
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _inside(item: Any) -> Iterator[Tensor]:
    """The tensors in a small nest of tuples, lists and dicts."""
    waiting: deque[Any] = deque([item])
    for _ in range(64):
        if not waiting:
            return
        each = waiting.popleft()
        if issubclass(type(each), Tensor):
            yield each
        elif type(each) in (list, tuple):
            waiting.extend(each[:64])
        elif type(each) is dict:
            waiting.extend(islice(each.values(), 64))


def _all(container: Container) -> Iterable[Any]:
    thing = container.thing
    if container.kind in ("list", "deque", "set"):
        kind: Any = {"list": list, "deque": deque, "set": set}[container.kind]
        return islice(kind.__iter__(thing), _MOST_ITEMS)
    return islice(dict.values(thing), _MOST_ITEMS) if container.kind == "dict" else ()
