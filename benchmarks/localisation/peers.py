"""What other tools say of the programs: `python peers.py WAY PROGRAM...` writes one line of JSON for each.

Every program runs in a fork of this process, so that torch is imported once. Each tool is used as its documentation
says, with nothing in the program changed: anomaly detection is switched on for the whole program, and
DebugUnderflowOverflow is attached to every module that is called from outside of modules, at its first call.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn

SECONDS = 60
ANOMALY, OVERFLOW = "detect_anomaly", "DebugUnderflowOverflow"
FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def run(program: Path) -> str:
    """Runs it as `python PROGRAM` would; what it printed."""
    sys.argv = [str(program)]
    sys.path.insert(0, str(program.parent))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(str(program), run_name="__main__")
        except (RuntimeError, ValueError) as error:
            out.write(f"\n{type(error).__name__}: {error}")
    return out.getvalue()


def anomaly(program: Path) -> dict[str, Any]:
    """`torch.autograd.detect_anomaly`: the function whose gradient is NaN, and the line that called it in forward."""
    with warnings.catch_warnings(record=True) as caught, torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("always")
        said = re.search(r"Function '(\w+)' returned nan values.*", run(program))
    if said is None:
        return {"said": "silent"}
    told = [str(warning.message) for warning in caught if "Traceback of forward call" in str(warning.message)]
    frames = [(file, int(line)) for file, line in FRAME.findall(told[0] if told else "")]
    own = [frame for frame in frames if Path(frame[0]).is_relative_to(program.parent)]
    file, line = own[-1] if own else (None, None)
    return {"op": said[1], "file": file, "line": line, "said": said[0]}


def overflow(program: Path) -> dict[str, Any]:
    """`DebugUnderflowOverflow`: the module of the last frame that it shows."""
    with _attached(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = run(program)
    if "inf/nan detected" in said:
        *_, (path, kind) = re.findall(r"^ {17} (\S*) (\w+)$", said, re.MULTILINE)
        return {"module": path or kind, "said": f"inf/nan at {path} {kind}"}
    failed = re.search(r"^\w+Error: .*", said, re.MULTILINE)
    return {"said": f"failed: {failed[0]}" if failed else "silent"}


@contextlib.contextmanager
def _attached() -> Iterator[None]:
    from transformers.debug_utils import DebugUnderflowOverflow

    original: Callable[..., Any] = nn.Module.__call__
    known: set[nn.Module] = set()

    def attach(root: nn.Module) -> None:
        root = getattr(root, "_orig_mod", root)  # of a compiled module
        if root not in known:  # a checkpoint calls parts of a root again, from outside
            known.update(root.modules())
            DebugUnderflowOverflow(root)

    @torch.compiler.disable(recursive=False)
    def call(root: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nn.Module.__call__ = original
        try:
            attach(root)
            return original(root, *args, **kwargs)
        finally:
            nn.Module.__call__ = call

    nn.Module.__call__ = call
    try:
        yield
    finally:
        nn.Module.__call__ = original


WAYS = {ANOMALY: anomaly, OVERFLOW: overflow}


def _answer(way: str, program: Path, end: Connection) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        end.send(WAYS[way](program))
    except BaseException as error:
        end.send({"said": f"failed: {error!r}"})
    os._exit(0)  # nothing of the parent's is to be closed twice


def main(way: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # the first optimizer of a process imports for two seconds
    if way == OVERFLOW:
        import transformers.debug_utils  # noqa: F401
    forks = multiprocessing.get_context("fork")
    for name in names:
        here, there = forks.Pipe(duplex=False)
        process = forks.Process(target=_answer, args=(way, Path(name).resolve(), there))
        process.start()
        there.close()
        try:
            answer = here.recv() if here.poll(SECONDS) else {"said": f"failed: no answer in {SECONDS} s"}
        except EOFError:
            answer = {"said": "failed: the process ended"}
        process.kill()
        process.join()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
