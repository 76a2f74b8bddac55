"""Follows the training loop: knows the moment when gradients are complete, and which step they belong to."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from threading import get_ident
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from seismograd import patches
from seismograd.by_hand import scalar
from seismograd.errands import Errands
from seismograd.governor import Governor
from seismograd.lookout import Lookout
from seismograd.memory import cuda_history
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.resources.holders import Holders
from seismograd.onlookers.resources.loading import Loading
from seismograd.onlookers.resources.pace import Pace
from seismograd.onlookers.resources.traps import Traps
from seismograd.probes.gradients import fingerprints
from seismograd.probes.shares import Share, accumulates, share_of, whole_of
from seismograd.probes.validation import Evaluations, Validation
from seismograd.probes.watched import Watched
from seismograd.reader import Measured, Moment, Reader, scale_of
from seismograd.records import DebugLevel, Origin, Reading
from seismograd.recovery.recovery import Recovery
from seismograd.replay.exhaustion import Exhaustion
from seismograd.replay.recorder import Call, Recorder, Step
from seismograd.replay.replayer import Capture, Replayer
from seismograd.replay.second_look import SecondLook
from seismograd.stats.tensors import norms

P = ParamSpec("P")
T = TypeVar("T")


_LONG_ACCUMULATION = 512
"""So many backwards before the first step ever: the loop may never step, and is read all the same."""

_NOBODY = -1
"""The owner of gradients that no optimizer of torch's holds."""


def _safely(method: Callable[Concatenate[Loop, P], None]) -> Callable[Concatenate[Loop, P], None]:
    """Runs a listener so that no error of ours reaches the training loop, and its time is accounted for.

    Only on the thread that trains: another one's gradients are not ours to touch while it works on them.
    """

    @wraps(method)
    def run(self: Loop, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._asleep or self._busy or self._closed or get_ident() != self._thread:
            return
        if self._replayer is not None:
            self._replayer.look_away()  # here: with modes disabled, ours could not be taken from the stack
        if _modes():
            if self._replayer is not None:
                self._replayer.look_away(for_good=True)  # among the user's own modes there is no place for one
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                work(self, *args, **kwargs)
        else:
            work(self, *args, **kwargs)

    def work(self: Loop, *args: P.args, **kwargs: P.kwargs) -> None:
        self._timing.ours_begins()
        grad_enabled = torch.is_grad_enabled()
        try:  # from the first change on: a signal's exception may come at any call
            self._busy = True
            torch._C._set_grad_enabled(False)
            method(self, *args, **kwargs)
        except Exception as error:
            self._fail(f"the watch's {method.__name__.strip('_')}", error)
        finally:
            torch._C._set_grad_enabled(grad_enabled)
            self._busy = False
            spent = self._timing.ours_ended()
            self.governor.spend(spent - min(spent, self._set_up))
            self._set_up = 0.0

    return run  # type: ignore[return-value]


def _modes() -> bool:
    """Whether a mode of the user's sees every op: ours are not for it to count."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def _said(method: Callable[Concatenate[Loop, P], None]) -> Callable[Concatenate[Loop, P], None]:
    """What the user says is heard at any time, and from any thread."""

    @wraps(method)
    def run(self: Loop, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._asleep:
            self._asleep = False
            self._moments.clear()  # they are of long ago
        self._thread = get_ident()
        method(self, *args, **kwargs)

    return run  # type: ignore[return-value]


class Loop:
    """Listens to backward, step, scaler and forward, and has a reading made when a step closes.

    A backward opens a *moment* for each optimizer whose gradients it changed, or adds to it; that optimizer's step
    closes it. A backward that changed none of our gradients is not ours.
    """

    _recovery: Recovery | None = None
    """What acts on findings before an update, if the user has asked for it."""

    def __init__(  # noqa: PLR0915 (its state, one by one)
        self,
        models: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer] | None,
        *,
        governor: Governor,
        take: Callable[[Reading], object],
        fail: Callable[[str, Exception], None],
        blind: Callable[[str, str], None],
        scaler: Any = None,
        loss_fn: Any = None,
        lag: int = 0,
        rank: int = 0,
        loose: Sequence[Tensor] = (),
        newest_step: int = -1,
        evaluations: Evaluations | None = None,
        recorder: Recorder | None = None,
        capture: Capture | None = None,
        errands: Errands,
    ) -> None:
        self.governor, self._errands = governor, errands
        self._fail, self._blind = fail, blind
        self._given_scaler, self._lag = scaler, lag
        self._watched = Watched(models, optimizers, loose)
        self._reader = Reader(self._watched, governor, take=take, fail=fail, lag=lag, rank=rank)
        self._lookout = Lookout(self._watched, governor, take=take, fail=fail, rank=rank)
        self._replayer = None if recorder is None else Replayer(recorder, self._watched, lag=lag, capture=capture)
        if recorder is not None:
            self._reader.investigate, self._reader.insight = self._investigate, self.insight
            self._lookout.add(SecondLook(self._watched, recorder, self.account))
        self._records_history = governor.level is DebugLevel.EXTREME and cuda_history.begin()
        self._lookout.add(Exhaustion(self._watched, recorder, self.account))
        self._lookout.add(Holders(self._watched, self.account))
        self._lookout.add(Loading(self._watched, self.account))
        self._lookout.add(Pace(self._watched, self._reader.timing))
        self._lookout.add(Traps(self._watched, self.account))
        self._callers: set[int] = set()  # threads that have called our modules
        self._known_modules: dict[int, tuple[weakref.ref[nn.Module], bool]] = {}
        self._timing = self._reader.timing
        self._timed = self._timing.last
        self._moments: dict[int, Moment] = {}
        self.step = newest_step
        """The number of the newest step, from 0; -1 before the first."""
        self._round: set[int] = set()  # the optimizers that have stepped in it
        self._resumed = newest_step >= 0  # the newest step is of before, and over
        self._serial = 0  # of the newest backward of ours
        self._told: list[int] = []  # the backwards whose loss stood in the last reading
        self._before: list[tuple[int, int] | None] | None = None
        self._forwards, self._forwards_at_loss = 0, -1
        self._keeps_graph = self._kept_graph = False
        self._inside: dict[int, Tensor] | None = None
        self._scaled: tuple[Any, weakref.ref[Tensor] | None, Tensor | None] | None = None
        self._share: Share | None = None  # of the present backward
        self._made_by: int | None = None  # the node that made its loss
        self._scaled_share: Share | None = None  # of the loss that a scaler has just scaled
        self._divides_by: dict[int, int] = {}  # owner: the number of batches that its losses are divided by
        self._closure: int | None = None
        self._evaluations = 0
        self._last_evaluation: Tensor | None = None
        self._by_scaler: int | None = None
        self._closed_by_hand = False
        self._taken: Tensor | None = None
        self._usual: dict[int, tuple[int, int]] = {}  # owner: backwards of its last step, how often in a row
        self._optimizer_began = False
        self._step_began = perf_counter()
        self._seen_forward = self._unsettled = self._trains = False
        self._steps_by_itself = False  # a torch optimizer has stepped: so others may be expected to
        self._is_said = False  # the user tells of losses by hand
        self._one_by_one = False  # no optimizer of torch's is there, and each backward has been a step
        # the end of the last step is heard from an optimizer of torch's, unless a scaler skipped it
        self._heard_the_end = self._busy = self._closed = self._asleep = False
        self._thread = get_ident()
        self._set_up = 0.0  # seconds that belong to setting up, not to the share of a step
        self._validation: Validation | Evaluations = evaluations or Validation(loss_fn)
        self._validation.follow(models.values(), lambda: max(self.step, 0))
        if recorder is not None:
            for call in recorder.step.calls:
                call.ours = self._is_ours(call.module)

    # -- who listens ---------------------------------------------------------------------------------------------

    @property
    def serial(self) -> int:
        """The number of the newest backward that was ours."""
        return self._serial

    @property
    def awaits_step(self) -> bool:
        """Whether gradients of ours are complete that no step has used yet."""
        return any(not moment.closed for moment in self._moments.values())

    @property
    def recorded(self) -> Sequence[Call]:
        """The calls of models of ours in the present step, as far as they are recorded."""
        return [] if self._replayer is None else [call for call in self._replayer.recorder.step.calls if call.ours]

    @property
    def busy(self) -> bool:
        """Whether a listener of ours is at work."""
        return self._busy

    @property
    def in_closure(self) -> bool:
        """Whether a line search goes on, whose backwards belong to one step."""
        return bool(self._evaluations)

    @property
    def asleep(self) -> bool:
        """Whether only steps are counted at present."""
        return self._asleep

    @property
    def watched(self) -> Watched:
        """What is under watch."""
        return self._watched

    @property
    def thread(self) -> int:
        """The thread that trains."""
        return self._thread

    @property
    def progress(self) -> tuple[int, int, int]:
        """Changes while the training goes on, or an evaluation."""
        return self.step, self._serial, self._forwards

    def add(self, onlooker: Onlooker) -> None:
        """One more that looks on."""
        self._lookout.add(onlooker)

    def about(self) -> dict[str, Any]:
        """What is trained, for the record of the run: the models, their size, where they lie, and who trains them.

        Nothing, once the script has let go of them.
        """
        parameters = [p for p in self._watched.roster.parameters if not is_lazy(p)]
        if not parameters:
            return {}
        return {
            "model": ", ".join(type(model).__name__ for model in self._watched.models.values()),
            "parameters": sum(p.numel() for p in parameters),
            "device": ", ".join(sorted({str(p.device) for p in parameters})),
            "dtype": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
            "optimizer": ", ".join(type(optimizer).__name__ for optimizer in self._watched.optimizers),
        }

    def recover_by(self, recovery: Recovery) -> None:
        """Has it act on what is found, from now on."""
        self._recovery = recovery
        recovery.follow(self._watched, calls=lambda: self.recorded, late=self._lag > 0)
        if self._replayer is not None:
            self._replayer.recorder.keeps_statistics = True

    def holds(self, optimizer: Optimizer) -> bool:
        """Whether any of the watched parameters is the optimizer's."""
        return self._watched.holds(optimizer)

    @property
    def optimizers(self) -> list[Optimizer]:
        """Those under watch."""
        return self._watched.optimizers

    def covers(self, parameters: Iterable[Tensor]) -> bool:
        """Whether any of these is under watch."""
        return any(parameter in self._watched.roster for parameter in parameters)

    @_said
    @_safely
    def join(self, models: Mapping[str, nn.Module], optimizer: Optimizer) -> None:
        """Watches more models, and the optimizer that trains them, from now on."""
        self._watched.join(models, optimizer)
        self._known_modules.clear()
        self._validation.follow(self._watched.models.values(), lambda: max(self.step, 0))

    # -- what the user says by hand ------------------------------------------------------------------------------

    @_said
    @_safely
    def observe(self, loss: Tensor | float) -> None:
        """The gradients are complete now, and `loss` is their loss."""
        self._observed(loss)

    @_said
    @_safely
    def observe_step(self, loss: Tensor | float, step: int) -> None:
        """As `observe`, and the step closes here under the user's own number."""
        for owner, moment in self._observed(loss):
            self._close(owner, moment, step)
            self._closed_by_hand = True

    def _observed(self, loss: Tensor | float) -> list[tuple[int, Moment]]:
        """The moments that this loss belongs to; none if it comes after the step and tells nothing new."""
        value = scalar(loss)
        self._one_by_one, self._is_said = False, True
        self.governor.reads = True
        opened = [(owner, moment) for owner, moment in self._moments.items() if not moment.closed]
        if not opened:
            if any(moment.untouched() for moment in self._moments.values()):
                return []
            self._settle()
            self._serial += 1
            opened = [(owner, self._open(owner)) for owner in (range(len(self._watched.optimizers)) or [_NOBODY])]
            for _, moment in opened:
                moment.marks.add("by-hand")
                moment.backwards.append(self._serial)
        measured: Measured | None = None
        for owner, moment in opened:
            moment.losses = [value]
            if moment.measured is None:
                measured = moment.measured = measured or self._reader.measure()
            self._remember(owner, moment)
        self._closed_by_hand = False
        return opened

    @_said
    @_safely
    def validate(self, loss: Tensor | float) -> None:
        """Takes a validation loss at the current step."""
        self._reader.validated(float(loss), max(self.step, 0))

    def log(self, name: str, value: Tensor | float) -> None:
        """The newest value stands in the next reading."""
        self._reader.logged[name] = value.detach().reshape(()) if isinstance(value, Tensor) else float(value)

    @_said
    @_safely
    def flush(self) -> None:
        """Judges what is still on its way."""
        self._end_validation()
        self._reader.land()

    @_said
    @_safely
    def failed(self, error: BaseException) -> None:
        """The run ends with this error: what it means is told."""
        self._lookout.failed(self.step + 1, error)

    def close(self) -> None:
        """Reads what is still open, and takes every hook and patch away."""
        try:
            self._leave()
        finally:
            self._closed = True
            patches.forget(self)
            if self._replayer is not None:
                self._replayer.close()
            self._lookout.close()
            self._validation.close()
            self._moments, self._taken, self._scaled, self._last_evaluation = {}, None, None, None
            if self._records_history:
                cuda_history.end()
            self._reader.close()
            self._watched.release()

    @_said
    @_safely
    def _leave(self) -> None:
        self._end_validation()
        if self._replayer is not None and (left := self._replayer.abandoned(ended=True)) is not None:
            self._reader.left_alone(self.step + 1, *left)
        for owner, moment in list(self._moments.items()):
            if not moment.closed:
                self._abandon(owner, moment)
        self._reader.land()
        self._settle()
        self._lookout.finish(self.step)
        if self.step >= 0:
            self._reader.look_at_the_end(self.step)
            if self._optimizer_began:  # a step that was never finished
                self.step -= 1

    def idle(self) -> None:
        """Hears nothing from now on: this is a forked child, whose training is not ours."""
        self._closed = True
        self._timing.close()
        if self._replayer is not None:
            self._replayer.close()

    # -- modules -------------------------------------------------------------------------------------------------

    def module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._asleep and not torch.is_grad_enabled() and self._lookout.attends(module):
            self._wake()
        if not self._asleep and not self._closed:
            trains = torch.is_grad_enabled()
            if get_ident() not in self._callers and self._replayer is not None and self._is_ours(module):
                self._callers.add(get_ident())
                if len(self._callers) > 1:
                    self._replayer.forbid_tracing()
            looks_on = self._replayer is not None and self._replayer.looks_on  # there, and has to leave there
            if trains and get_ident() != self._thread and not looks_on and self._is_ours(module):
                self._thread = get_ident()
            self._module_starts(module, args, kwargs, trains)

    @_safely
    def _module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], trains: bool) -> None:
        ours = self._is_ours(module)
        if ours:
            self._seen_forward = True
            self._forwards += 1
            if trains and (self._unsettled or _NOBODY in self._moments):
                self._training_goes_on()
        if trains and self._replayer is not None:
            if ours and not self._evaluations and (left := self._replayer.abandoned()) is not None:
                self._reader.left_alone(self.step + 1, *left)
            if self._evaluations:
                self._replayer.evaluation_over()
            self._replayer.module_starts(module, args, kwargs, ours)
        self._lookout.module_starts(module, args, kwargs, ours, trains)
        self._trains = ours and trains
        if ours:
            self._timing.begin("forward" if trains else "evaluation")

    @_safely
    def module_ended(self, module: nn.Module, output: Any) -> None:
        self._forward_ends()
        if self._trains:
            self._reader.phase_over("forward")
        if self._replayer is not None:
            self._replayer.module_ended(output)
        self._lookout.module_ended(module, output)

    @_safely
    def module_failed(self) -> None:
        self._forward_ends()
        if self._replayer is not None:
            self._replayer.module_failed()
        self._lookout.module_failed()
        if (error := sys.exception()) is not None:
            self._lookout.forward_failed(error)

    def _forward_ends(self) -> None:
        self._timing.end("forward")
        self._timing.end("evaluation")

    def _is_ours(self, module: nn.Module) -> bool:
        """Whether it holds parameters that are under watch."""
        known = self._known_modules.get(id(module))
        if known is None or known[0]() is not module:
            if len(self._known_modules) > 1000:
                self._known_modules.clear()
            ours = any(parameter in self._watched.roster for parameter in module.parameters()) or any(
                module is model for model in self._watched.models.values()
            )
            known = self._known_modules[id(module)] = (weakref.ref(module), ours)
        return known[1]

    # -- backward ------------------------------------------------------------------------------------------------

    @_safely
    def backward_starts(self, roots: Sequence[Any], keeps_graph: bool) -> None:
        self._before = None
        self._keeps_graph = keeps_graph
        self._timing.begin("backward")
        if self._evaluations:  # a line search goes on; its step has been read at the first evaluation
            if self._replayer is not None:
                self._replayer.backward_starts(roots)
            return
        self._settle()
        if self._watched.roster.incomplete:
            self._watched.refresh()
        for owner, moment in list(self._moments.items()):
            if moment.closed:
                continue
            if owner == _NOBODY and self._is_foreign():
                self._close(owner, moment)
                self._settle()
            elif moment.zeroed() or (self.step < 0 and len(moment.backwards) >= _LONG_ACCUMULATION):
                self._abandon(owner, moment)
                self._settle()
        self._end_validation()
        if self._errands.waiting and not self._heard_the_end and not self.awaits_step and self.step >= 0:
            self._do_errands()
        self._lookout.backward_starts(roots)
        if self._replayer is not None:
            self._replayer.backward_starts(roots)
        if self.governor.reads:  # what the graph has saved is gone after the backward
            self._share = share_of(roots[0]) if self._scaled is None and len(roots) == 1 else self._scaled_share
        self._made_by = self._whole(roots[0]) if len(roots) == 1 and self._validation.wonders else None
        self._before = fingerprints(self._watched.roster)

    @_safely
    def backward_ended(self, roots: Sequence[Any], seconds: float) -> None:
        self._timing.end("backward")
        if self._evaluations:
            self._evaluations += 1
            self._last_evaluation = _loss_of(roots)
            if self._replayer is not None:
                self._replayer.backward_ended()
                if self._last_evaluation is not None:  # whoever searches a line looks at each loss, too: no extra wait
                    self._reader.look_at_evaluation(max(self.step, 0), self._last_evaluation)
            return
        if self._replayer is not None:
            self._replayer.backward_ended()
        inside, self._inside = self._inside, None
        owners = self._owners_of_change() if inside is None else [_NOBODY]
        self._lookout.backward_ended(owners)
        if not owners:
            if self._replayer is not None:
                self._replayer.not_ours()
            return
        self._reader.phase_over("backward")
        self._validation.used(roots, self._made_by)
        self._serial += 1
        self._closed_by_hand = False
        scaler, loss = self._scaling(roots)
        share, self._share, self._scaled_share = self._share, None, None
        same_forward = self._is_same_forward()
        if loss is not None and self.governor.reads:
            loss = loss.clone()  # some loops go on with it in place: `loss *= accumulate`, for their log
        for owner in owners:
            moment = self._open(owner)
            moment.backwards.append(self._serial)
            moment.scaler = scaler
            if loss is not None and self.governor.reads:
                if same_forward and moment.losses:  # two losses of one forward pass: their sum is what is minimised
                    moment.losses[-1] = moment.losses[-1] + loss
                    if moment.shares and (share is None or moment.shares[-1] is None):
                        moment.shares[-1] = None
                else:
                    moment.losses.append(loss)
                    moment.shares.append(share)
        if self.governor.reads and (inside is not None or self._is_time_to_measure(owners)):
            measured = self._reader.measure() if inside is None else self._reader.measure_inside(inside)
            for owner in owners:
                self._moments[owner].measured = measured
        for owner in owners:
            self._remember(owner, self._moments[owner])
        if inside is not None:
            self._moments[_NOBODY].marks.add("inside-backward")
            self._close(_NOBODY, self._moments[_NOBODY])
        elif self._closure is not None and self._closure in owners:
            self._steps_by_itself = self._optimizer_began = True
            self._close(self._closure, self._moments[self._closure])
            self._evaluations = 1
            self._recover(self._closure, self._watched.optimizers[self._closure])
        elif self._one_by_one and owners == [_NOBODY] and self._is_foreign():
            self._close(_NOBODY, self._moments[_NOBODY])  # now: by the next forward the weights have moved on

    def _whole(self, root: Any) -> int | None:
        """The number of the node that made this loss, if nothing but the batches of a step divides it."""
        found = whole_of(root)
        if found is None or found[1] not in {1, *self._divides_by.values()}:
            return None
        return None if found[0].name().endswith("AccumulateGrad") else int(found[0]._sequence_nr())

    def _is_same_forward(self) -> bool:
        """Whether this backward and the one before it come from one forward pass; else as the graph tells."""
        same = self._forwards == self._forwards_at_loss if self._seen_forward else self._kept_graph
        self._forwards_at_loss, self._kept_graph = self._forwards, self._keeps_graph
        return same

    @_safely
    def backward_failed(self) -> None:
        self._timing.end("backward")
        if self._replayer is not None:
            self._replayer.backward_ended()
        self._inside = self._scaled = self._before = None
        if (error := sys.exception()) is not None:
            self._lookout.backward_failed(self.step + 1, error)

    @_safely
    def gradients_start(self, roots: Sequence[Any]) -> None:
        if self._replayer is not None:
            self._replayer.gradients_start(roots)

    @_safely
    def gradients_taken(self, roots: Sequence[Any]) -> None:
        self._taken, self._scaled = _loss_of(roots), None

    def _owners_of_change(self) -> list[int]:
        """The optimizers whose gradients this backward changed."""
        if self._before is None:
            return []
        roster, before = self._watched.roster, self._before
        self._before = None
        after = fingerprints(roster)
        if len(before) != len(after):
            return []
        if not roster.members:
            return [_NOBODY] if after != before else []
        if len(roster.members) == 1:
            return [0] if after != before else []
        changed = {at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
        return [index for index, members in enumerate(roster.members) if not members.isdisjoint(changed)]

    def _is_time_to_measure(self, owners: Sequence[int]) -> bool:
        """Under steady accumulation only the last backward need be measured. Not under a scaler: if the step came
        early after all, there would be no telling whether the gradients are still scaled."""
        if self._closure is not None:
            return True
        for owner in owners:
            usual, times = self._usual.get(owner, (1, 0))
            moment = self._moments[owner]
            if times < 3 or moment.scaler is not None or len(moment.backwards) >= usual:
                return True
        return False

    def _scaling(self, roots: Sequence[Any]) -> tuple[Any, Tensor | None]:
        """The scaler that this backward passed through, if any, and the unscaled loss, if it is one number."""
        (scaler, scaled, unscaled), self._scaled = self._scaled or (None, None, None), None
        if scaler is None:
            given = self._given_scaler
            if given is not None and not isinstance(given, torch.amp.GradScaler):  # torch's own tell us by themselves
                enabled = getattr(given, "is_enabled", None)
                scaler = given if enabled is None or enabled() else None
        elif scaled is not None and len(roots) == 1 and roots[0] is scaled():
            return scaler, unscaled
        loss = _loss_of(roots)
        return scaler, loss if loss is None or scaler is None else loss / scale_of(scaler)

    # -- step ----------------------------------------------------------------------------------------------------

    def step_starts(self, optimizer: Optimizer, has_closure: bool) -> Optimizer | None:
        if self._asleep and optimizer is self._watched.optimizers[0]:
            self._count_asleep(has_closure)
            if self._asleep or not has_closure:
                return None
        if self._closed or not self._watched.holds(optimizer):
            return None
        if self._asleep:  # an optimizer that was not there before
            self._asleep = False
            self._timing.restart()
            self._lookout.restart()
        self._thread = get_ident()
        self._step_starts(optimizer, has_closure)
        return None if self._recovery is None else self._recovery.stand_in(optimizer)

    @_safely
    def _step_starts(self, optimizer: Optimizer, has_closure: bool) -> None:
        if patches.inside_backward():
            self._read_inside(optimizer)
            return
        index = self._index(optimizer)
        by_scaler = self._by_scaler == index
        if has_closure:
            self._settle()  # now, and not in the middle of the step
            if self._asleep:
                self._count(index)
                return
            self._closure, self._evaluations = index, 0
        elif by_scaler:
            self._by_scaler = None
        else:
            self._step_closes(index)
        self._reader.before_step(index)
        self._lookout.happens("step_starts", optimizer)
        if self._replayer is not None:
            self._replayer.before_update()
        if self._recovery is not None:
            self._recovery.keep_state(max(self.step, 0))
            if not has_closure:
                self._recover(index, optimizer, decided=by_scaler)
        self._optimizer_began = not has_closure  # which counts it at its first backward
        self._timing.begin("optimizer")

    def _recover(self, index: int, optimizer: Optimizer, *, decided: bool = False, acts: bool = True) -> None:
        """What the user's policies ask for is decided, and done, before the update, with its gradients complete."""
        if self._recovery is not None:
            moment, step = self._moments.get(index), max(self.step, 0)
            backwards = moment.backwards if moment is not None else ()
            if not decided:
                self._recovery.decide(index, optimizer, step, backwards)
            if acts:
                self._recovery.before_update(optimizer, step, backwards, in_closure=self.in_closure)
            if self._recovery.holds_back:
                self._reader.forget_step()  # there will be no update to be measured

    def step_ended(self, optimizer: Optimizer) -> None:
        if self._recovery is not None:
            self._recovery.give_back(optimizer)
        self._step_ended(optimizer)
        if self._errands.waiting and self._is_between_steps(optimizer):
            self._do_errands()

    @_safely
    def _step_ended(self, optimizer: Optimizer) -> None:
        if patches.inside_backward() or optimizer not in self._watched.optimizers:
            return
        index = self._index(optimizer)
        self._optimizer_began, self._heard_the_end = False, True
        self._timing.end("optimizer")
        self._reader.phase_over("step")
        if self._closure == index:
            if self._evaluations == 0:  # the closure called no backward
                self._step_closes(index)
            elif self._evaluations > 1 and self._last_evaluation is not None:
                self._reader.look_at_the_end(max(self.step, 0), self._last_evaluation)
            self._closure, self._evaluations, self._last_evaluation = None, 0, None
        self._reader.after_step(index, max(self.step, 0))
        self._lookout.happens("step_ended", optimizer)
        if index in self._moments:
            self._remember(index, self._moments[index])
        if self._replayer is not None and not self.awaits_step:  # another optimizer may use the same gradients
            self._replayer.after_update()

    @_safely
    def loss_scaled(self, scaler: Any, loss: Any, scaled: Any) -> None:
        reference = weakref.ref(scaled) if isinstance(scaled, Tensor) else None
        self._scaled = (scaler, reference, _loss_of([loss]))
        self._scaled_share = share_of(loss)
        self._validation.used([loss], self._whole(loss) if self._validation.wonders else None)
        self._lookout.happens("scaled", scaler)

    @_safely
    def scaler_steps(self, scaler: Any, optimizer: Optimizer) -> None:
        inner = getattr(optimizer, "optimizer", optimizer)
        if self._watched.holds(inner):
            index = self._index(inner)
            self._step_closes(index)
            if self._recovery is not None:
                self._recovery.scaled_by(scaler)
            self._by_scaler = index  # the optimizer's own hook comes next, unless the scaler skips
            self._recover(index, inner, acts=False)
            self._lookout.happens("scaler_steps", inner)

    def turns(self, phase: str) -> None:
        if not (self._asleep or self._busy or self._closed) and get_ident() == self._thread:
            self._timing.begin(phase)

    def turned(self, phase: str) -> None:
        if not (self._asleep or self._busy or self._closed) and get_ident() == self._thread:
            self._timing.end(phase)

    def data_waited(self, source: int, over: bool) -> None:
        self._validation.data_came(source, over)

    def loss_computed(self, name: str, output: Any, args: tuple[Any, ...]) -> None:
        if not self._closed and get_ident() == self._thread and not _modes():
            self._validation.loss_computed(name, output, args)
            self.happens("loss_computed", name, output, args)

    @_said
    @_safely
    def loss_failed(self, name: str, args: tuple[Any, ...], error: Exception) -> None:
        self._lookout.loss_failed(self.step + 1, name, args, error)

    @_said
    @_safely
    def evaluated(self, model: Any, loss: float | None) -> None:
        """A framework has evaluated a model, and says what its validation loss is, if it is one."""
        if not isinstance(model, nn.Module) or not self._is_ours(model):
            return
        self._validation.drop()
        if loss is not None:
            self._reader.validated(float(loss), max(self.step, 0))

    @_safely
    def happens(self, what: str, *args: Any) -> None:
        if what == "clips":
            return self._measure_what_is_left()
        if what == "steps_in":
            self._reader.surroundings = args[0]
        self._lookout.happens(what, *args)
        if what == "scheduled" and self._recovery is not None:
            self._recovery.scheduled(args[0])

    def _measure_what_is_left(self) -> None:
        """The step comes earlier than usual (an epoch's last), and its gradients are about to be clipped."""
        left = [moment for moment in self._moments.values() if not moment.closed and moment.measured is None]
        if left and self.governor.reads:
            measured = self._reader.measure()
            for moment in left:
                moment.measured = measured

    def _index(self, optimizer: Optimizer) -> int:
        """Which of ours it is; makes the roster anew if need be."""
        watched = self._watched
        if not watched.optimizers:
            began = perf_counter()
            watched.search()  # there may be more of them that step later
            self._set_up += perf_counter() - began
        index = watched.index_of(optimizer)
        assert index is not None  # it holds some of our parameters
        if watched.groups_changed():
            watched.refresh()
        self._rehome()
        return index

    def _rehome(self) -> None:
        """Gradients that belonged to nobody go to the optimizers that have been found since."""
        orphan = self._moments.get(_NOBODY)
        roster = self._watched.roster
        if orphan is None or orphan.closed or not roster.members:
            return
        del self._moments[_NOBODY]
        for owner, members in enumerate(roster.members):
            if any(roster.parameters[at].grad is not None for at in members):
                moment = self._moments[owner] = Moment(
                    list(orphan.losses), list(orphan.backwards), orphan.measured, orphan.scaler
                )
                moment.shares = list(orphan.shares)
                self._remember(owner, moment)

    def _read_inside(self, optimizer: Optimizer) -> None:
        """An optimizer steps inside backward: its gradients are complete now and gone a moment later."""
        if not self._watched.optimizers:
            self._watched.speak_for(optimizer)
        if self._inside is None:
            self._inside = {}
        if self.governor.reads:
            held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            for parameter, norm in zip(held, norms([p.grad for p in held if p.grad is not None]), strict=True):
                self._inside[id(parameter)] = norm

    # -- closing a step ------------------------------------------------------------------------------------------

    def _open(self, owner: int) -> Moment:
        moment = self._moments.get(owner)
        if moment is None or moment.closed:
            moment = self._moments[owner] = Moment()
        return moment

    def _remember(self, owner: int, moment: Moment) -> None:
        roster = self._watched.roster
        moment.remember(roster, roster.members[owner] if 0 <= owner < len(roster.members) else None)

    def _step_closes(self, index: int) -> None:
        if self._closed_by_hand:
            return
        moment = self._moments.get(index)
        if moment is None or moment.closed:
            roster = self._watched.roster
            if not any(roster.parameters[at].grad is not None for at in roster.members[index]):
                return
            if moment is not None and moment.untouched():
                return  # a second step on the same gradients
            self._settle()
            moment = self._open(index)  # gradients that never passed a backward
            moment.marks.add("pre-step")
            if self._taken is not None:
                moment.losses.append(self._taken)
        self._taken = None
        self._steps_by_itself = True
        self._close(index, moment)

    def _close(self, owner: int, moment: Moment, step: int | None = None) -> None:
        """The step that uses the gradients of `moment` takes place now."""
        moment.closed = True
        self._heard_the_end = False
        backwards = len(moment.backwards)
        if backwards:
            usual, times = self._usual.get(owner, (1, 0))
            self._usual[owner] = (backwards, times + 1 if backwards == usual else 0)
        self._count(owner)
        if (batches := accumulates(moment.shares)) is not None:
            self._divides_by[owner] = batches
        moment.divides_by = self._divides_by.get(owner)
        if self.governor.reads:
            told = bool(moment.backwards) and moment.backwards == self._told  # by another optimizer's reading
            self._told = moment.backwards
            self._reader.read(owner, moment, self.step if step is None else step, with_loss=not told)
            if self._timing.last is not self._timed:  # another optimizer's reading of the same moment has no times
                self._timed = self._timing.last
                self._lookout.happens("timed", self._timed)
        else:
            self._timing.pass_over()
            self._lookout.happens("passed_over")
        self._unsettled = True
        if owner == _NOBODY and self._recovery is not None and "not-stepped" not in moment.marks:
            self._recovery.cannot_act()

    def _count(self, owner: int) -> None:
        """A step is over when an optimizer steps for the second time: a GAN's two halves are one."""
        if self.step < 0 or self._resumed or owner in self._round:
            self.step += 1
            self._round = {owner}
            self._resumed = False
        else:
            self._round.add(owner)

    def _abandon(self, owner: int, moment: Moment) -> None:
        """The gradients were cleared and no step used them."""
        moment.marks.add("not-stepped")
        self._lookout.happens("abandoned")
        if self._steps_by_itself:
            # The loop steps at other times, so this was meant (an attack, a skipped batch): only what is broken counts.
            moment.closed = True
            if self._recovery is None or not self._recovery.has_just_skipped(self.step):  # it left them as they were
                self._reader.glance(moment, self.step + 1)
        else:
            self._close(owner, moment)

    def _is_foreign(self) -> bool:
        """Whether the optimizer is none of torch's, so that no hook will tell of its step."""
        began = perf_counter()
        found = bool(self._watched.optimizers) or self._watched.search()
        self._set_up += perf_counter() - began
        self._rehome()
        return not found

    def _settle(self) -> None:
        """A step is over and the next one begins: the governor decides about it."""
        if not self._unsettled:
            return
        self._unsettled = False
        now = perf_counter()
        seconds, self._step_began = now - self._step_began, now
        self.governor.stepped(self.step, seconds)
        self._reader.forget_step()
        self._lookout.step_over(self.step)
        if self.step & (self.step - 1) == 0:  # what logs may be imported by now
            patches.watch_loggers()
        if self._replayer is not None:
            self._replayer.step_over(self.governor.reads)
        if self.governor.takes_tables and self._watched.has_new():
            self._watched.refresh()
        if not self.governor.reads and self._is_plain():
            self._asleep = True

    def _is_between_steps(self, optimizer: Optimizer) -> bool:
        """Whether a step of ours has just ended with that of the optimizer."""
        if self._closed or self.awaits_step or get_ident() != self._thread or patches.inside_backward():
            return False
        return self._watched.holds(optimizer)

    def _do_errands(self) -> None:
        """What somebody asked for, between two steps; a stop leaves from here."""
        began = perf_counter()
        try:
            self._errands.step_over()
        except Exception as error:
            self._fail("what was asked for", error)
        finally:
            if self._busy:
                self._set_up += perf_counter() - began

    def _is_plain(self) -> bool:
        """One optimizer, and every step like the one before: such a loop need not be followed between readings."""
        moment = self._moments.get(0)
        if moment is None or moment.scaler is not None or self._closure is not None:
            return False
        return len(self._watched.optimizers) == 1 and self._usual.get(0, (1, 0))[1] >= 3

    def _count_asleep(self, has_closure: bool) -> None:
        """Between readings only the steps are counted, which costs next to nothing.

        What is to be read begins after the step that begins now, or in its closure: then it is not counted here.
        """
        now = perf_counter()
        if not has_closure:
            self._count(0)
        seconds, self._step_began = now - self._step_began, now
        self.governor.stepped(self.step, seconds)
        if self.governor.reads:
            self._asleep = False
            self._timing.restart()
            self._lookout.restart()
            if self._replayer is not None:
                self._replayer.resume(True)
        elif has_closure:
            self._count(0)
        self.governor.spend(perf_counter() - now)

    def _wake(self) -> None:
        """An evaluation begins that is to be seen: the loop is followed until the next step is over."""
        if get_ident() == self._thread and not self._closed:
            self._asleep = False
            self._moments.clear()  # they are of long ago
            self._timing.restart()
            self._lookout.restart()

    def _training_goes_on(self) -> None:
        """A forward pass with gradients begins: what came before it is over."""
        self._settle()
        if not isinstance(self._validation, Evaluations):  # those wait until it is known what is trained next
            self._end_validation()
        moment = self._moments.get(_NOBODY)
        if moment is not None and not moment.closed and self._is_foreign():
            self._close(_NOBODY, moment)
            self._one_by_one = not self._is_said

    def _investigate(self, reading: Reading) -> Origin | None:
        """Where what is not finite in this reading was made: the step is run again, the weights being as they were."""
        began = perf_counter()
        assert self._replayer is not None
        try:
            return self._replayer.investigate(reading, self._reader.last_sound)
        finally:
            self._set_up += perf_counter() - began

    def account(self, seconds: float) -> None:
        """What is done once in a run belongs to setting up."""
        self._set_up += seconds

    def with_step(self, reading: Reading, act: Callable[[Step, Mapping[str, nn.Module], Reading], T]) -> T | None:
        """What `act` makes of the step that was just read; `None` if it was not recorded. It may raise."""
        if self._replayer is None or self._closed:
            return None
        began = perf_counter()
        try:
            return self._replayer.with_step(reading, act)
        finally:
            self._set_up += perf_counter() - began

    def insight(self) -> dict[str, Any]:
        """How the gradient of the present step changes from module to module, and which samples carry its loss."""
        if self._replayer is None or self._closed:
            return {}
        began = perf_counter()
        try:
            return self._replayer.insight()
        except Exception as error:
            self._fail("the replay", error)
            return {}
        finally:
            self._set_up += perf_counter() - began

    def _end_validation(self) -> None:
        if self._validation.waiting:
            for step, loss in self._validation.take():
                self._reader.validated(loss, step)


def _loss_of(roots: Iterable[Any]) -> Tensor | None:
    """The scalar that backward was called on; `None` where it was called on something else."""
    scalars = []
    for root in roots:
        if not isinstance(root, Tensor) or root.numel() != 1 or root.is_complex():
            return None
        scalars.append(root.detach() if root.ndim == 0 else root.detach().reshape(()))
    if len(scalars) < 2:
        return scalars[0] if scalars else None
    return torch.stack([one.float() for one in scalars]).sum()
