"""Where and how a run was started: what its row in the store says of the process. Torch is not imported for it."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import seismograd
from seismograd.masking import masked, shown
from seismograd.records import world_size

LONGEST = 4000
"""So many characters of a command are kept."""


def about() -> dict[str, Any]:
    """The process as plain values: command (without secrets), script, folder, versions, machine. No environment."""
    facts: dict[str, Any] = {
        "command": _command(),
        "script": _script(),
        "cwd": _folder(),
        "python": platform.python_version(),
        "seismograd": seismograd.__version__,
        "host": platform.node(),
        "pid": os.getpid(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "world_size": world_size(),
    }
    for name in ("torch", "numpy"):
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            facts[name] = str(version)
    try:
        facts.update(_accelerators())
    except Exception:  # a driver that does not answer is no reason to have no record
        facts["devices"] = []
    return facts


def _command() -> str:
    arguments = sys.orig_argv[:400]
    at = 1
    while at < len(arguments) - 1 and arguments[at].startswith("-"):
        if re.fullmatch(r"-[A-Za-z]*c", arguments[at]):  # a program, not an argument
            arguments[at + 1] = "..."
            break
        at += 2 if arguments[at] in ("-W", "-X") else 1
    command = shown(arguments)
    return command if len(command) <= LONGEST else command[: LONGEST - 3] + "..."


def _script() -> str | None:
    """The file that was started; `-m` has one too, a prompt and a notebook have none."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return masked([os.path.abspath(file)])[0] if isinstance(file, str) and Path(file).suffix != "" else None


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


def _accelerators() -> dict[str, Any]:
    """CUDA's version and its devices, if the script uses them already: asking first would keep it from forking."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):  # not imported, or in the middle of it
        return {"devices": []}
    facts: dict[str, Any] = {"devices": []}
    if torch.version.cuda is not None:
        facts["cuda"] = torch.version.cuda
    if torch.cuda.is_initialized():
        facts["devices"] = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    elif sys.platform == "darwin" and torch.backends.mps.is_available():
        facts["devices"] = ["mps"]
    return facts
