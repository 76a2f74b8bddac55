"""What a trainer's arguments stand for: each is checked, and becomes the object it names."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seismograd.optimize.autocasting import narrow_dtype
from seismograd.optimize.trainer.checkpoint_files import CheckpointError, CheckpointFolder
from seismograd.quiet_rich import Console
from seismograd.records import Finding, Severity
from seismograd.sinks import Console as Shown
from seismograd.sinks import Logging
from seismograd.training import watch


def at_least_one(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}: it takes a whole number, 1 or more")
    return value


def positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{name} is {value!r}: it takes a number above 0")
    return value


def the_optimizer(model: nn.Module, asked: Any, learning_rate: float) -> Optimizer:
    """The one that was given, or made over the parameters that are trained; AdamW if nothing was said."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r}, not an nn.Module")
    if asked is torch.optim.LBFGS or isinstance(asked, torch.optim.LBFGS):
        raise ValueError("LBFGS evaluates the loss by itself, several times a step: train it by hand, with sg.watch")
    if isinstance(asked, Optimizer):
        return asked
    parameters = [one for one in model.parameters() if one.requires_grad]
    if asked is None or isinstance(asked, type):
        return (asked or torch.optim.AdamW)(parameters, lr=positive("learning_rate", learning_rate))  # type: ignore[no-any-return]
    made = asked(parameters) if callable(asked) else asked
    if not isinstance(made, Optimizer):
        raise TypeError(f"optimizer is {made!r}: it takes an optimizer, or a class or function of the parameters")
    return made


def the_scheduler(optimizer: Optimizer, asked: Any, per: str) -> tuple[Any, Literal["step", "epoch"]]:
    """The one that was given, or made over the optimizer, and when it steps."""
    if per not in ("step", "epoch"):
        raise ValueError(f"schedule_per is {per!r}: use 'step' or 'epoch'")
    made = asked(optimizer) if isinstance(asked, type) or (callable(asked) and not hasattr(asked, "step")) else asked
    if made is not None and not (hasattr(made, "step") and hasattr(made, "state_dict")):
        raise TypeError(f"scheduler is {made!r}: it takes a scheduler of torch's, or a function of the optimizer")
    if isinstance(made, ReduceLROnPlateau) and per == "step":
        raise ValueError("ReduceLROnPlateau waits for a validation loss, and that comes once an epoch: use 'epoch'")
    return made, "step" if per == "step" else "epoch"


def autocast_dtype(amp: Any, device: torch.device) -> torch.dtype | None:
    """What autocast computes in; `None` where it is off."""
    if amp is False or amp is None:
        return None
    asked = None if amp is True else _NARROW.get(str(amp).removeprefix("torch."))
    if asked is None and amp is not True:
        raise ValueError(f"amp is {amp!r}: use True, False, 'bf16' or 'fp16'")
    return narrow_dtype(device, asked)


_NARROW = {
    **dict.fromkeys(("bf16", "bfloat16"), torch.bfloat16),
    **dict.fromkeys(("fp16", "float16"), torch.float16),
}


def where_to_go_on(resume: Any, checkpoints: CheckpointFolder | None) -> CheckpointFolder | Path | None:
    """What a run goes on from: the newest in a folder, one file, or nothing."""
    if isinstance(resume, (str, os.PathLike)) and resume != "auto":
        path = Path(resume)
        if not path.exists():
            raise CheckpointError(f"resume is {str(resume)!r}, and there is no such file or folder")
        return CheckpointFolder(path) if path.is_dir() else path
    if resume not in (True, False, "auto"):
        raise ValueError(f"resume is {resume!r}: use True, False, 'auto' or a path")
    if checkpoints is None:
        if resume:
            raise ValueError(f"resume is {resume!r}, and there is no checkpoint_dir to look in")
        return None
    if resume is True and not checkpoints:
        raise CheckpointError(f"resume is True, and there is no checkpoint in {checkpoints.folder}: 'auto' begins anew")
    if resume is False and checkpoints:
        raise FileExistsError(
            f"{checkpoints.folder} has a run's checkpoints, which would be lost: resume='auto' goes on with it, another"
            " checkpoint_dir keeps both"
        )
    return checkpoints if checkpoints else None


def check_watching(watching: Mapping[str, Any], watched: bool) -> None:
    """What goes to the watch is known to it."""
    known = inspect.signature(watch).parameters
    for name in watching:
        if name not in known or name in ("models", "optimizers"):
            raise TypeError(f"a trainer has no argument {name!r}, nor has seismograd.watch")
    if watching.get("recovery") is not None and not watched:
        raise ValueError("recovery needs the watch: leave enable_pytorch_debugging on")


def told(console: Console, logger: Any) -> list[Any]:
    """Who is told of findings: the terminal, and the logger."""
    if logger is None or isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
        return [Shown(console), Logging(logger)]
    if not hasattr(logger, "log_warning"):
        raise TypeError(
            f"logger is {logger!r}: it takes a logging.Logger, or an object with log_info, log_warning and log_error"
        )
    return [Shown(console), lambda finding: _tell(logger, finding)]


def _tell(logger: Any, finding: Finding) -> None:
    name = {Severity.INFO: "log_info", Severity.WARNING: "log_warning", Severity.CRITICAL: "log_error"}
    method: Callable[[str], Any] = getattr(logger, name[finding.severity])
    method(f"{finding.id}: {finding.message}")
