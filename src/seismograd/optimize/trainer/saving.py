"""All that the rest of a run depends on: taken from a trainer, and given to one that goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from seismograd.complaints import complain
from seismograd.optimize.models import Optimized
from seismograd.optimize.trainer.checkpoint_files import CheckpointError, check_fit
from seismograd.optimize.trainer.randomness import noted, restore

if TYPE_CHECKING:
    from seismograd.optimize.trainer.trainer import Trainer


def state_of(trainer: Trainer) -> dict[str, Any]:
    """The state of everything, between two steps."""
    states = {name: part.state_dict() for name, part in _parts(trainer).items()}
    buffers = bare(trainer.model).named_buffers()
    return {
        **states,
        "buffers": {name: buffer for name, buffer in buffers if name not in states["model"]},
        "course": trainer.course.state(() if trainer.watch is None else trainer.watch.findings),
        "loader": trainer.training_feed.state(),
        "random": noted(trainer.own),
        "settings": _settings(trainer),
    }


def go_on(trainer: Trainer, path: Path, state: Mapping[str, Any]) -> str:
    """Gives a trainer all of a state; says where it goes on. The generators come last: all else may draw from them."""
    model = bare(trainer.model)
    check_fit(path, state["model"], model.state_dict())
    before, now = state["settings"], _settings(trainer)
    if before["optimizer"] != now["optimizer"]:  # torch would take its state, and fail at the first step
        raise CheckpointError(
            f"{path}: its run was trained by {before['optimizer']}, and this optimizer is {now['optimizer']}: the run"
            " goes on with its own only. To begin with its weights, load torch.load(path)['model'] into the model"
        )
    for name, part in _parts(trainer).items():
        try:
            part.load_state_dict(state[name])
        except (KeyError, ValueError, RuntimeError, AttributeError) as error:
            raise CheckpointError(f"{path}: what it has of the {name} does not fit this one ({error})") from error
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in state["buffers"] and state["buffers"][name].shape == buffer.shape:
                buffer.copy_(state["buffers"][name])
    other = [f"{name} {before[name]!r}, now {now[name]!r}" for name in now if before[name] != now[name]]
    if other:
        complain(f"seismograd: the run goes on, but not as it would have: {path} was saved with {', '.join(other)}")
    trainer.course.load(state["course"])
    trainer.training_feed.go_on(state["loader"], trainer.course.epoch)
    restore(state["random"], trainer.own)
    return f"from {path}, epoch {trainer.course.epoch + 1}, step {trainer.course.step}"


def _parts(trainer: Trainer) -> dict[str, Any]:
    """Those that know their own state."""
    parts = {
        "model": bare(trainer.model),
        "loss_fn": trainer.loss_fn,
        "optimizer": trainer.optimizer,
        "scheduler": trainer.scheduler,
        "scaler": trainer.scaler,
    }
    return {name: part for name, part in parts.items() if hasattr(part, "state_dict")}


def _settings(trainer: Trainer) -> dict[str, Any]:
    """What, if it were another, would make another run of it."""
    return {
        "optimizer": type(trainer.optimizer).__name__,
        "scheduler": None if trainer.scheduler is None else type(trainer.scheduler).__name__,
        "schedule_per": trainer.schedule_per,
        "accumulation_steps": trainer.accumulation_steps,
        "gradient_clip": trainer.gradient_clip,
        "amp": None if trainer.dtype is None else str(trainer.dtype),
        "torch": str(torch.__version__),
    }


def bare(model: nn.Module) -> nn.Module:
    """The model itself, without what optimises, compiles or distributes it: checkpoints fit with and without."""
    if isinstance(model, Optimized):
        return bare(model.original)
    inner = getattr(model, "_orig_mod", None)
    if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
        inner = model.module
    return bare(inner) if isinstance(inner, nn.Module) else model
