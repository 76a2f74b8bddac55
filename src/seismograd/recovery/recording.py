"""A recovery is never silent: it is logged, and told to whoever is there to hear it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from typing import Any

import torch

from seismograd.complaints import complain
from seismograd.errors import ErrorSeverity
from seismograd.logger import LogLevel

logger = logging.getLogger("seismograd.recovery")


def tell(listener: Any, event_type: str, message: str, level: LogLevel, data: Mapping[str, Any]) -> None:
    """Tells a watch (`note`), a debugger (`log_debug_event`) or a function of an event. Its failure is only said."""
    try:
        if callable(getattr(listener, "note", None)):
            listener.note(event_type, message, str(level), **data)
        elif callable(getattr(listener, "log_debug_event", None)):
            listener.log_debug_event(event_type, message, data, level)
        elif callable(listener):
            listener({"event_type": event_type, "message": message, "level": str(level), **data})
    except Exception as failure:
        complain(f"seismograd: {message} ({listener!r} could not be told: {type(failure).__name__}: {failure})")


def record(error: BaseException, context: Mapping[str, Any], action: str, *, recovered: bool) -> None:
    """Logs what was done about an error, and tells `watch`, `debugger` and `error_system` of the context."""
    kind = f"{type(error).__name__}: {error}".rstrip(": ")
    message = f"recovered from {kind}: {action}" if recovered else f"no recovery from {kind}: {action}"
    level = LogLevel.WARNING if recovered else LogLevel.ERROR
    logger.log(level.number, "%s", message)
    data = {"error": kind, "action": action, "recovered": recovered}
    for name in ("watch", "debugger"):
        if context.get(name) is not None:
            tell(context[name], "recovery" if recovered else "recovery_failed", message, level, data)
    tracker = getattr(context.get("error_system"), "error_tracker", None)
    if tracker is not None:
        severity = ErrorSeverity.WARNING if recovered else ErrorSeverity.ERROR
        tracker.track_error(error, severity, context={"recovery": action, "recovered": recovered})


def free_memory() -> None:
    """Gives back what nobody uses any more: Python's garbage, and what allocators of accelerators keep for later."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()
