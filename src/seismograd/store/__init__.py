"""The record of runs: SQLite in a folder, or PostgreSQL by URL. Importing it takes neither torch nor a database."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "Heat": "layers",
    "NoRunError": "store",
    "Recorder": "recorder",
    "Run": "run",
    "Series": "curves",
    "Store": "store",
    "StoreError": "schema",
    "open_store": "store",
    "runs": "store",
}

__all__ = ["Heat", "NoRunError", "Recorder", "Run", "Series", "Store", "StoreError", "open_store", "runs"]

if TYPE_CHECKING:
    from seismograd.store.curves import Series
    from seismograd.store.layers import Heat
    from seismograd.store.recorder import Recorder
    from seismograd.store.run import Run
    from seismograd.store.schema import StoreError
    from seismograd.store.store import NoRunError, Store, open_store, runs


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'seismograd.store' has no attribute {name!r}")
    value = getattr(import_module(f"seismograd.store.{_HOME[name]}"), name)
    globals()[name] = value
    return value
