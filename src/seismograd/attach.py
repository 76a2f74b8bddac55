"""Checks what `watch()` was given, and ties a loop to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from seismograd import folders
from seismograd.loop import Loop
from seismograd.replay.capture import Captures
from seismograd.replay.recorder import Recorder

if TYPE_CHECKING:
    from seismograd.recovery.policies import Plan
    from seismograd.training import TrainingDebugger


def check_models(models: Any) -> dict[str, nn.Module]:
    """The models by name; a `TypeError` or `ValueError` says what cannot be watched."""
    if isinstance(models, nn.Module):
        named = {"": models}
    elif isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    elif isinstance(models, Sequence):
        named = {str(at): model for at, model in enumerate(models)} if len(models) != 1 else {"": models[0]}
    else:
        raise TypeError(f"watch() got {models!r} as its model: give an nn.Module, several of them, or a dict of them")
    for name, model in named.items():
        label = f"model {name!r}" if name else "the model"
        if isinstance(model, type) or not isinstance(model, nn.Module):
            raise TypeError(f"{label} is {model!r}, not an nn.Module")
        on_meta = [path for path, p in model.named_parameters() if p.is_meta]
        if on_meta:
            raise ValueError(
                f"{label} has {len(on_meta)} parameters on the meta device (first: {on_meta[0]!r}), which hold no "
                "numbers: materialise it (to_empty, load_state_dict) before watching it"
            )
    if not any(True for model in named.values() for _ in model.parameters()):
        kinds = ", ".join(type(model).__name__ for model in named.values()) or "nothing"
        raise ValueError(f"there is nothing to watch: {kinds} has no parameters")
    return named


def check_optimizers(optimizers: Any) -> list[Optimizer] | None:
    """The torch optimizers among those given, unwrapped; `None` where they are to be found by themselves."""
    if optimizers is None:
        return None
    if isinstance(optimizers, Mapping):
        optimizers = list(optimizers.values())
    elif not isinstance(optimizers, (list, tuple, set, frozenset)):
        optimizers = [optimizers]
    found: list[Optimizer] = []
    for optimizer in optimizers:
        if isinstance(optimizer, type) or not hasattr(optimizer, "step"):
            raise TypeError(f"watch() got {optimizer!r} as an optimizer: it has to be an object with step()")
        inner = optimizer
        while isinstance(getattr(inner, "optimizer", None), Optimizer):  # Accelerate and others wrap theirs
            inner = inner.optimizer
        if isinstance(inner, Optimizer) and not any(inner is known for known in found):
            found.append(inner)
    return found or None


def check_lag(lag: int | None, models: Mapping[str, nn.Module], plan: Plan | None = None) -> int:
    """Whether readings are judged a step late: with policies only if asked for, and if all of them can wait."""
    hurried = [policy.name for policy in plan.policies if policy.on_the_spot] if plan is not None else []
    if hurried and lag:
        raise ValueError(
            f"lag {lag!r} is too late for recovery by {hurried[0]!r}, which acts before the update: leave lag out"
        )
    if plan is not None and lag is None:
        return 0
    if lag is None:
        waits = {p.device.type for model in models.values() for p in model.parameters()} - {"cpu"}
        return int(bool(waits))
    if lag not in (0, 1):
        raise ValueError(f"lag {lag!r} is not possible: 0 judges at once, 1 a step later")
    return int(lag)


def loop_for(
    debugger: TrainingDebugger,
    models: Mapping[str, nn.Module],
    optimizers: Sequence[Optimizer] | None,
    *,
    lag: int,
    replay: bool = True,
    recorder: Recorder | None = None,
    **more: Any,
) -> Loop:
    """A loop that reads for `debugger`; whoever asks for it sees to it that it hears of what happens."""
    scaler = more.get("scaler")
    if scaler is not None and not (hasattr(scaler, "get_scale") or hasattr(scaler, "_scale")):
        raise TypeError(f"watch() got {scaler!r} as a scaler: it has to have get_scale()")
    loop = Loop(
        models,
        optimizers,
        governor=debugger.governor,
        take=debugger._take,
        fail=debugger._failed,
        blind=debugger._blind,
        lag=lag,
        rank=debugger.rank,
        recorder=(recorder or Recorder()) if replay else None,
        capture=_captures(debugger) if replay else None,
        errands=debugger.errands,
        **more,
    )
    if debugger.recovery is not None:
        loop.recover_by(debugger.recovery)
    if debugger.compares:
        debugger.join_ranks(loop)
    return loop


def _captures(debugger: TrainingDebugger) -> Captures | None:
    """What saves the run's bad steps, the same for all of its loops; `None` if the user wants none saved."""
    if not debugger.saves_steps or not folders.wanted():
        return None
    if debugger.captures is None:
        debugger.captures = Captures(
            debugger.id,
            note=debugger._note_capture,
            is_theirs=lambda error: debugger.passes_on is not None and debugger.passes_on(error),
            home=debugger.home,
        )
    return debugger.captures
