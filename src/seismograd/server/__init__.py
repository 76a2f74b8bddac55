"""The service: FastAPI over a store, and the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["create_app", "serve"]

if TYPE_CHECKING:
    from seismograd.server.app import create_app
    from seismograd.server.serving import serve


def __getattr__(name: str) -> Any:
    from importlib import import_module

    homes = {"create_app": "app", "serve": "serving"}
    if name not in homes:
        raise AttributeError(f"module 'seismograd.server' has no attribute {name!r}")
    return getattr(import_module(f"seismograd.server.{homes[name]}"), name)
