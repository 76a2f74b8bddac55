"""What the user names as MODULE:NAME: it is imported, found and called, and what is wrong with it is said in a line."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from seismograd.cli.mistakes import stop


def named(given: str, option: str, what: str, examples: str) -> Any:
    """What is called so: `package.models:make`, `train.py:Net`."""
    source, colon, name = given.rpartition(":")
    if not colon or not source or not name:
        stop(f"{option} {given!r} names no {what}", hint=f"MODULE:{what.upper()}, such as {examples}")
    found: Any = _imported(source)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in vars(found) if not each.startswith("_")] if hasattr(found, "__dict__") else []
            stop(f"there is no {name!r} in {source!r}", part, known)
        found = getattr(found, part)
    return found


def called(found: Callable[..., Any], given: str, hint: str) -> Any:
    """What it returns, without arguments."""
    missing = _needed(found)
    if missing:
        stop(f"{given!r} needs arguments ({', '.join(missing)})", hint=hint)
    try:
        return found()
    except Exception as error:
        stop(f"{given!r} raised {type(error).__name__}: {error}")


def _imported(source: str) -> ModuleType:
    """The module of that name, or in that file, as seen from the working directory."""
    is_file = source.endswith(".py") or os.sep in source
    path = Path(source).resolve()
    if is_file and not path.is_file():
        stop(f"there is no file {source!r}")
    sys.path.insert(0, str(path.parent) if is_file else os.getcwd())
    argv, sys.argv = sys.argv, [source]
    try:
        return _from_file(path) if is_file else importlib.import_module(source)
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and f"{source}.".startswith(f"{error.name}."):
            stop(f"there is no module {source!r}", hint="a module's name, or the path of a file that ends in .py")
        _failed(source, error)
    except (Exception, SystemExit) as error:
        _failed(source, error)
    finally:
        sys.argv = argv


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _failed(source: str, error: BaseException) -> NoReturn:
    told = f"{type(error).__name__}: {error}".rstrip(": ")
    hint = "what a script does when it is run belongs behind if __name__ == '__main__'"
    stop(f"importing {source!r} raised {told}", hint=hint if isinstance(error, SystemExit) else "")


def _needed(factory: Any) -> list[str]:
    """The arguments without which it cannot be called."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
