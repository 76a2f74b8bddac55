"""Sinks by name: `tensorboard:runs`, `jsonl:out.jsonl`, `wandb`; checked without importing any package."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from urllib.parse import urlsplit

from seismograd.masking import without_secrets
from seismograd.protocols import Sink


@dataclass(frozen=True, slots=True)
class Kind:
    """What a name stands for."""

    make: Callable[[str], Sink]
    """The sink, given what stands behind the name."""
    packages: tuple[str, ...] = ()
    extra: str = ""
    where: str = ""
    """What may stand behind the name, for people to read."""
    mistake: Callable[[str], str | None] = lambda where: None
    """What is wrong with what stands there."""
    is_path: bool = False


def sink_named(text: str) -> Sink:
    """The sink that `NAME` or `NAME:WHERE` names; a `ValueError` says which there are, and what is wrong."""
    kind, where = checked(text)
    return kind.make(where)


def checked(text: str) -> tuple[Kind, str]:
    """What the text names; a `ValueError` for a mistake, a `ModuleNotFoundError` with the line that installs it."""
    name, _, where = text.partition(":")
    kind = KINDS.get(name.strip().lower())
    if kind is None:
        near = get_close_matches(name.lower(), KINDS, n=1, cutoff=0.5)
        meant = f", did you mean {near[0]!r}?" if near else ":"
        raise ValueError(f"{without_secrets(text)!r} names no sink{meant} there are {', '.join(KINDS)}")
    if where and not kind.where:
        raise ValueError(f"the sink {name!r} takes nothing behind its name, and {where!r} stands there")
    if problem := kind.mistake(where):
        raise ValueError(f"the sink {without_secrets(text)!r} {problem}: write {name}:{kind.where}")
    for package in kind.packages:
        if not _installed(package):
            raise ModuleNotFoundError(
                f"{package} is not installed: pip install 'seismograd[{kind.extra}]'", name=package
            )
    return kind, where


def settled(text: str) -> str:
    """The same name, with the whole path where it is one: a script may go to another folder."""
    kind, where = checked(text)
    return f"{text.partition(':')[0]}:{os.path.abspath(where)}" if where and kind.is_path else text


def _installed(package: str) -> bool:
    """Without importing it. A folder of that name, as W&B makes one, is no package."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


# -- the kinds -------------------------------------------------------------------------------------------------------


def _console(where: str) -> Sink:
    from seismograd.sinks.console import Console

    return Console()


def _logging(where: str) -> Sink:
    import logging

    from seismograd.sinks.logger import Logging

    return Logging(logging.getLogger(where) if where else None)


def _tensorboard(where: str) -> Sink:
    from seismograd.sinks.tensorboard import TensorBoard

    return TensorBoard(where or None)


def _mlflow(where: str) -> Sink:
    from seismograd.sinks.mlflow import MLflow

    return MLflow(where or None)


def _wandb(where: str) -> Sink:
    from seismograd.sinks.wandb import WandB

    entity, _, project = where.rpartition("/")
    return WandB(project or None, entity=entity or None)


def _trackio(where: str) -> Sink:
    from seismograd.sinks.trackio import Trackio

    return Trackio(where or None)


def _prometheus(where: str) -> Sink:
    from seismograd.sinks.prometheus import PORT, Prometheus

    host, _, port = where.rpartition(":")
    return Prometheus(int(port) if port else PORT, *([host.strip("[]")] if host else []))


def _otel(where: str) -> Sink:
    from seismograd.sinks.opentelemetry import OpenTelemetry

    return OpenTelemetry(where or None)


def _jsonl(where: str) -> Sink:
    from seismograd.sinks.jsonl import JSONLines

    return JSONLines(where)


def _no_port(where: str) -> str | None:
    port = where.rpartition(":")[2]
    return None if not where or (port.isdecimal() and int(port) < 65536) else f"has no port in {where!r}"


def _no_address(where: str) -> str | None:
    parts = urlsplit(where)
    fine = not where or (parts.scheme in ("http", "https") and parts.hostname)
    return None if fine else "has no address"


def _no_file(where: str) -> str | None:
    if not where:
        return "has no file to write to"
    return "is a folder" if os.path.isdir(where) else None


KINDS: dict[str, Kind] = {
    "console": Kind(_console),
    "logging": Kind(_logging, where="LOGGER"),
    "tensorboard": Kind(_tensorboard, ("tensorboard",), "tensorboard", "FOLDER", is_path=True),
    "mlflow": Kind(_mlflow, ("mlflow",), "mlflow", "TRACKING-URI"),
    "wandb": Kind(_wandb, ("wandb",), "wandb", "[ENTITY/]PROJECT"),
    "trackio": Kind(_trackio, ("trackio",), "trackio", "PROJECT"),
    "prometheus": Kind(_prometheus, ("prometheus_client",), "prometheus", "[HOST:]PORT", _no_port),
    "otel": Kind(
        _otel,
        ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http"),
        "otel",
        "http://HOST:4318",
        _no_address,
    ),
    "jsonl": Kind(_jsonl, where="FILE", mistake=_no_file, is_path=True),
}
"""Every name, in the order in which they are listed."""


def names() -> Iterable[str]:
    """What can be typed, with what may stand behind it."""
    return [f"{name}[:{kind.where}]" if kind.where else name for name, kind in KINDS.items()]
