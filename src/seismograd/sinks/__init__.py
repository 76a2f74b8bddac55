"""Where readings and findings go: the terminal, `logging`, a function, a webhook, memory, a tracker."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from seismograd.protocols import Sink
from seismograd.sinks.callback import Callback
from seismograd.sinks.console import Console
from seismograd.sinks.logger import Logging
from seismograd.sinks.memory import Memory

__all__ = [
    "Callback",
    "Console",
    "JSONLines",
    "Logging",
    "MLflow",
    "Memory",
    "Notify",
    "OpenTelemetry",
    "Prometheus",
    "TensorBoard",
    "Trackio",
    "WandB",
    "as_sink",
    "as_sinks",
]

_HOME = {  # they bring more with them than a run without them should import
    "JSONLines": "jsonl",
    "MLflow": "mlflow",
    "Notify": "notify",
    "OpenTelemetry": "opentelemetry",
    "Prometheus": "prometheus",
    "TensorBoard": "tensorboard",
    "Trackio": "trackio",
    "WandB": "wandb",
}

if TYPE_CHECKING:
    from seismograd.sinks.jsonl import JSONLines
    from seismograd.sinks.mlflow import MLflow
    from seismograd.sinks.notify import Notify
    from seismograd.sinks.opentelemetry import OpenTelemetry
    from seismograd.sinks.prometheus import Prometheus
    from seismograd.sinks.tensorboard import TensorBoard
    from seismograd.sinks.trackio import Trackio
    from seismograd.sinks.wandb import WandB


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"seismograd.sinks.{_HOME[name]}"), name)
    raise AttributeError(f"module 'seismograd.sinks' has no attribute {name!r}")


def as_sinks(given: Any) -> list[Sink]:
    """Several as sinks, or a single one. A console leaves to `logging` what that already shows on the terminal."""
    several = isinstance(given, Iterable) and not isinstance(given, str) and not callable(given)
    sinks = [as_sink(each) for each in (given if several else [given])]
    loggings = [each for each in sinks if isinstance(each, Logging)]
    for each in sinks:
        if isinstance(each, Console) and loggings:
            each.beside = loggings[0]
    return sinks


def as_sink(obj: Any) -> Sink:
    """`obj` as a sink: a sink stays what it is, a logger becomes `Logging`, a function of a finding `Callback`.

    A text names one: `"console"`, `"tensorboard:runs"`, `"jsonl:out.jsonl"`.
    """
    if isinstance(obj, type):
        raise TypeError(f"{obj.__name__} is a class, and a sink is an object: write {obj.__name__}()")
    if isinstance(obj, str):
        from seismograd.sinks.named import sink_named

        return sink_named(obj)
    if isinstance(obj, Sink):
        return obj
    if isinstance(obj, (logging.Logger, logging.LoggerAdapter)):
        return Logging(obj)
    if callable(obj):
        return Callback(obj)
    raise TypeError(
        f"{obj!r} is not a sink: give an object with write_reading, write_finding, update_finding and close, "
        "a name such as 'tensorboard:runs', a logging.Logger, or a function that takes a finding"
    )
