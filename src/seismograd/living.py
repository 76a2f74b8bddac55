"""All objects of the process, with those that `gc.freeze()` takes out of the collector's lists.

Models and optimizers are found among all objects. Who freezes them before the loop, as one does to keep collections
short, would hide them there: what matters is noted before, weakly.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

_frozen: dict[int, weakref.ref[Any]] = {}


def note(kinds: tuple[type, ...]) -> None:
    """They are about to be frozen: those of these kinds are kept in mind."""
    for key in [key for key, reference in _frozen.items() if reference() is None]:
        del _frozen[key]
    for thing in gc.get_objects():
        if issubclass(type(thing), kinds):  # not isinstance: that runs code of lazy proxies
            _frozen[id(thing)] = weakref.ref(thing)


def objects() -> list[Any]:
    """Everything that the collector knows, and what was noted before it was frozen."""
    known = gc.get_objects()
    if not _frozen or not gc.get_freeze_count():
        return known
    return [*known, *(thing for reference in list(_frozen.values()) if (thing := reference()) is not None)]
