"""What a check looks at: one forward pass as it was recorded, and, where it may be trained, a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd import patches
from seismograd.onlookers.graph import Graph
from seismograd.places import Spot, caller, is_users
from seismograd.preflight.trial import CannotCheckError, Trial
from seismograd.records import Finding, Severity, Where
from seismograd.replay.recorder import Call, Recorder
from seismograd.replay.second_look import may_be_noticed
from seismograd.replay.second_runs import SecondRuns


class Check(Protocol):
    """One thing that is looked at before the run; its docstring says what."""

    name: ClassVar[str]
    trains: ClassVar[bool]
    """Whether it needs a trial: the loss as a function, to be computed again and again."""
    watched: ClassVar[bool]
    """Whether the watch over a run finds the same, in the first steps."""

    def check(self, scene: Scene) -> Iterable[Finding]: ...


@dataclass(frozen=True)
class SeenLoss:
    """A loss of torch's that was computed."""

    name: str
    given: Tensor
    target: Tensor
    value: Tensor
    reduction: str


@dataclass
class Failure:
    """An exception of the user's code."""

    phase: str
    """`forward`, `loss` or `backward`."""
    error: Exception
    spot: Spot | None
    """The deepest line of the user's own code."""
    module: str | None
    """The innermost module of the model that was at work."""


@dataclass
class Scene:
    """One forward pass."""

    models: Mapping[str, nn.Module]
    optimizers: Sequence[Optimizer]
    call: Call | None = None
    """The only call of the model; `None` where there were none or several."""
    losses: Sequence[SeenLoss] = ()
    loss: float = math.nan
    leaves: Sequence[Tensor] = ()
    """What would get a gradient."""
    trial: Trial | None = None
    failure: Failure | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    """Numbers that are no findings, for the report."""

    @property
    def runs(self) -> SecondRuns:
        return SecondRuns(self.models, (), 1.0)

    def the_call(self) -> Call:
        if self.call is None:
            raise CannotCheckError("the model is not called exactly once")
        if self.trial is None and may_be_noticed(self.call.module):
            raise CannotCheckError("a second call of the model might be noticed (hooks, compiled code, global names)")
        return self.call

    def told(self, *ids: str) -> list[Finding]:
        """What the watch over the rehearsal found of these, each at the step of it where it was first seen."""
        found = [] if self.trial is None else self.trial.rehearsal.findings
        return [replace(one, last_step=one.step, count=1) for one in found if one.id in ids]


def finding(
    kind: str,
    severity: Severity,
    message: str,
    evidence: Mapping[str, Any],
    advice: Sequence[str],
    *,
    where: Where | None = None,
) -> Finding:
    """A finding of before the run: its step is 0."""
    return Finding(kind, severity, 0, message, where=where or Where(), evidence=evidence, recommendations=tuple(advice))


class Ear:
    """Hears one forward pass: the calls of modules, and the losses."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = {id(p) for p in model.parameters()}
        self.recorder = Recorder()
        self.losses: list[SeenLoss] = []
        self.inside = False
        """Whether the model, or a part of it, is at work, or has failed."""

    def module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ours = any(id(p) in self._parameters for p in module.parameters())
        self.inside = ours
        with torch.no_grad():
            self.recorder.module_starts(module, args, kwargs, ours)

    def module_ended(self, module: nn.Module, output: Any) -> None:
        self.inside = False
        with torch.no_grad():
            self.recorder.module_ended(output)

    def module_failed(self) -> None:
        self.recorder.module_failed()

    def loss_computed(self, name: str, output: Any, args: tuple[Any, ...]) -> None:
        seen = seen_loss(name, output, args)
        if seen is not None:
            self.losses.append(seen)

    def covers(self, _parameters: Any) -> bool:
        return False

    def __getattr__(self, event: str) -> Callable[..., None]:
        return _nothing


def seen_loss(name: str, output: Any, args: Sequence[Any]) -> SeenLoss | None:
    given, target = (*args[:2], None, None)[:2]
    if not (isinstance(given, Tensor) and isinstance(target, Tensor) and isinstance(output, Tensor)):
        return None
    at = patches.LOSSES.get(name, len(args))
    reduction = args[at] if len(args) > at and isinstance(args[at], int) else 1
    return SeenLoss(name, given.detach(), target.detach(), output.detach(), ("none", "mean", "sum")[reduction])


def set_up(trial: Trial) -> Scene:
    """The first pass through model, loss and backward, as it goes: what fails is told, and nothing is raised."""
    scene = Scene({"": trial.model}, [] if trial.optimizer is None else [trial.optimizer], trial=trial)
    ear: Any = Ear(trial.model)
    patches.listen(ear)
    try:
        with trial.aside():
            began = perf_counter()
            phase = "forward"
            try:
                loss = trial.loss()
                phase = "backward"
                scene.leaves, scene.loss = _taken(loss)
                calls = [call for call in ear.recorder.step.calls if call.ours]
                scene.call = calls[0] if len(calls) == 1 else None
                loss.backward()
            except Exception as error:
                if phase == "forward" and not ear.inside:
                    phase = "loss"
                scene.failure = Failure(phase, error, *_places(error, trial.model))
            trial.step_seconds = perf_counter() - began
    finally:
        patches.forget(ear)
        ear.recorder.lines.disarm()
    scene.losses = ear.losses
    return scene


class LossError(Exception):
    """What the loss function returned is no loss."""


def _taken(loss: Any) -> tuple[list[Tensor], float]:
    if not isinstance(loss, Tensor):
        raise LossError(f"the loss is a {type(loss).__name__}, not a tensor: no gradient can flow back from it")
    if loss.numel() != 1:
        raise LossError(f"the loss has the shape {tuple(loss.shape)}: it has to be one number, use .mean()")
    if not loss.requires_grad:
        raise LossError("the loss is cut off from the model: no parameter has a part in it (detach, no_grad, numpy?)")
    return list(Graph([loss]).leaves), float(loss.detach())


def _places(error: Exception, model: nn.Module) -> tuple[Spot | None, str | None]:
    names = {id(module): name for name, module in model.named_modules()}
    trace, spot, inside = error.__traceback__, None, None
    while trace is not None:
        frame = trace.tb_frame
        if is_users(frame.f_code.co_filename):
            spot = Spot(frame.f_code, trace.tb_lasti)
        inside = names.get(id(frame.f_locals.get("self")), inside)
        trace = trace.tb_next
    return spot or caller(), inside


def _nothing(*_args: Any, **_kwargs: Any) -> None: ...
