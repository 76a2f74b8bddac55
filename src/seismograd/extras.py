"""Packages that are only needed by some: an error names the line that installs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, extra: str) -> Any:
    """The module, which the extra of that name installs."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and something that it needs itself is not
        raise ModuleNotFoundError(
            f"{module} is not installed: pip install 'seismograd[{extra}]'", name=module
        ) from None
