"""Runs a script or a module as `python` would: its own `__main__`, `sys.argv`, `sys.path[0]` and traceback."""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from seismograd.run.frames import stripped


@dataclass(frozen=True)
class Script:
    """What is to be run: the path of a script, a folder or an archive (`-`: stdin), or the name of a module."""

    path: str = ""
    module: str = ""
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.module or ("<stdin>" if self.path == "-" else os.path.basename(self.path.rstrip("/")))

    def problem(self) -> str | None:
        """Why it cannot be run at all, as far as that shows from outside."""
        if self.module or self.path == "-":
            return None
        if not os.path.exists(self.path):
            return f"there is no file {self.path!r}"
        if os.path.isdir(self.path) and not os.path.exists(os.path.join(self.path, "__main__.py")):
            return f"{self.path!r} is a folder without a __main__.py: name the script in it"
        return None


@dataclass(frozen=True)
class Ending:
    """How a script ended: the exit code that `python` would use, and the exception that was not caught."""

    code: int = 0
    error: BaseException | None = None

    @property
    def interrupted(self) -> bool:
        """Whether `python` would end by SIGINT."""
        return isinstance(self.error, KeyboardInterrupt)


def run(script: Script) -> Ending:
    """Runs it to its end, and says on stderr what `python` says about an exception."""
    caught: BaseException | None = None
    try:
        _prepared(script)()
    except BaseException as error:
        caught = error
    return Ending() if caught is None else _ending(caught)


def _prepared(script: Script) -> Callable[[], object]:
    """Sets the process up for the script, and returns what starts it."""
    main = _fresh_main()
    first = script.path
    if script.module:
        sys.argv = ["-m", *script.args]  # runpy puts the module's file in its place
        _put_first(os.getcwd())
        start: Callable[[], object] = _Module(script.module, alter_argv=True)
        shown = ["-m", script.module]
    elif _holds_main(script.path):
        sys.argv = [script.path, *script.args]
        _put_first(os.path.abspath(script.path))
        start, shown = _Module("__main__", alter_argv=False), [first]
    else:
        sys.argv = [script.path, *script.args]
        _put_first("" if script.path == "-" else os.path.dirname(os.path.realpath(script.path)))
        start, shown = _File(script.path, main), [first]
    sys.orig_argv = [sys.executable, *shown, *script.args]
    return start


@dataclass(frozen=True)
class _Module:
    name: str
    alter_argv: bool

    def __call__(self) -> None:
        runpy._run_module_as_main(self.name, self.alter_argv)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _File:
    path: str
    main: ModuleType

    def __call__(self) -> None:
        names = self.main.__dict__
        if self.path == "-":
            names["__file__"], names["__cached__"] = "<stdin>", None
            exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True), names)
            return
        full = os.path.abspath(self.path)
        names["__file__"] = full
        names["__cached__"] = None
        names["__loader__"] = importlib.machinery.SourceFileLoader("__main__", full)
        exec(_code(full), names)


def _code(path: str) -> CodeType:
    with io.open_code(path) as file:
        compiled = pkgutil.read_code(file)
    if compiled is not None:
        code: CodeType = compiled
        return code
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)


def _fresh_main() -> ModuleType:
    """A `__main__` with the names that `python` gives it, in its order; the old one stays alive, for it still runs."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __annotations__={},
        __builtins__=builtins,
        __loader__=importlib.machinery.BuiltinImporter,
    )
    _before.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    return main


_before: list[ModuleType] = []


def _put_first(folder: str) -> None:
    """The script's folder in the place of ours; under `-P` there is none."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _holds_main(path: str) -> bool:
    if path == "-" or path.endswith((".py", ".pyc")):
        return False
    if os.path.isdir(path):
        return True
    import zipfile

    return zipfile.is_zipfile(path)


# -- what `python` says at the end ---------------------------------------------------------------------------------


def _ending(error: BaseException) -> Ending:
    if isinstance(error, SystemExit):
        return Ending(exit_code(error), error)
    return Ending(_told(error), error)


def _told(error: BaseException) -> int:
    """Has the exception told by `sys.excepthook`, and returns the exit code."""
    stripped(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    _flush(sys.stdout)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as exit_:
        return exit_code(exit_)
    except BaseException as second:
        _say_both(second, error)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def exit_code(error: SystemExit) -> int:
    """What the process exits with; says what `sys.exit("...")` was given."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    _flush(sys.stdout)
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{error.code}\n")
            sys.stderr.flush()
    return 1


def _say_both(second: BaseException, error: BaseException) -> None:
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("Error in sys.excepthook:\n")
        traceback.print_exception(stripped(second))
        sys.stderr.write("\nOriginal exception was:\n")
        traceback.print_exception(error)


def _flush(stream: Any) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stream.flush()
