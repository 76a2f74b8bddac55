"""Which threads are ours: what Python does in them is none of the training's."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

_known: set[int] = set()


def ours(work: Callable[[], None]) -> Callable[[], None]:
    """What a thread of ours is started with."""

    def working() -> None:
        number = get_ident()
        _known.add(number)
        try:
            work()
        finally:
            _known.discard(number)

    return working


def in_one() -> bool:
    """Whether this is one of them. It makes no object: the garbage collector asks."""
    return get_ident() in _known
