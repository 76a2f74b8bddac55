"""Where readings and findings go: the terminal, `logging`, a function, a webhook, memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from seismograd.protocols import Sink
from seismograd.sinks.callback import Callback
from seismograd.sinks.console import Console
from seismograd.sinks.logger import Logging
from seismograd.sinks.memory import Memory

__all__ = ["Callback", "Console", "Logging", "Memory", "Notify", "as_sink"]

if TYPE_CHECKING:
    from seismograd.sinks.notify import Notify


def __getattr__(name: str) -> Any:
    if name == "Notify":  # it brings half of the network with it
        from seismograd.sinks.notify import Notify

        return Notify
    raise AttributeError(f"module 'seismograd.sinks' has no attribute {name!r}")


def as_sink(obj: Any) -> Sink:
    """`obj` as a sink: a sink stays what it is, a logger becomes `Logging`, a function of a finding `Callback`."""
    if isinstance(obj, type):
        raise TypeError(f"{obj.__name__} is a class, and a sink is an object: write {obj.__name__}()")
    if isinstance(obj, Sink):
        return obj
    if isinstance(obj, (logging.Logger, logging.LoggerAdapter)):
        return Logging(obj)
    if callable(obj):
        return Callback(obj)
    raise TypeError(
        f"{obj!r} is not a sink: give an object with write_reading, write_finding, update_finding and close, "
        "a logging.Logger, or a function that takes a finding"
    )
