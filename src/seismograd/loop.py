"""Follows the training loop: knows the moment when gradients are complete, and which step they belong to."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd import patches
from seismograd.governor import Governor
from seismograd.probes.gradients import Gradients
from seismograd.probes.learning_rates import LearningRates
from seismograd.probes.memory import Memory
from seismograd.probes.pack import Fetch, Pack
from seismograd.probes.parameters import Parameters, Updates
from seismograd.probes.timing import Timing
from seismograd.probes.watched import Watched
from seismograd.protocols import Probe
from seismograd.readings import Draft, complete
from seismograd.records import Reading
from seismograd.stats.tensors import norms

P = ParamSpec("P")

_LONG_ACCUMULATION = 32
"""So many backwards before the first step ever: the loop may never step, and is read all the same."""

_SURE_BY = 8
"""What has not been seen by this step will not be seen."""


@dataclass(slots=True)
class Moment:
    """The gradients as the last outermost backward left them, until a step uses them."""

    losses: list[Tensor] = field(default_factory=list)
    backwards: int = 0
    pack: Pack | None = None
    """The gradients' statistics, still on the device; `None` where they have not been measured."""
    places: list[int] = field(default_factory=list)
    scaler: Any = None
    sentinel: tuple[Tensor, int, int] | None = None
    """A parameter, its gradient's id and version: tells whether gradients were zeroed or replaced since."""
    closed: set[int] = field(default_factory=set)
    """The optimizers that have stepped on these gradients."""
    values: dict[str, list[float]] | None = None
    marks: set[str] = field(default_factory=set)


def _safely(method: Callable[Concatenate[Loop, P], None]) -> Callable[Concatenate[Loop, P], None]:
    """Runs a listener so that no error of ours reaches the training loop, and its time is accounted for."""

    @wraps(method)
    def run(self: Loop, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._busy or self._closed:
            return
        self._busy = True
        began = perf_counter()
        try:
            with torch.no_grad():
                method(self, *args, **kwargs)
        except Exception as error:
            self._fail(f"the watch's {method.__name__}", error)
        finally:
            self._busy = False
            spent = perf_counter() - began
            self._timing.own += spent
            self.governor.spend(spent)

    return run


class Loop:
    """Listens to backward, step, scaler and forward; builds a reading when a step closes and hands it to `take`."""

    def __init__(
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
    ) -> None:
        self.governor = governor
        self.lag = lag
        self.rank = rank
        self._take, self._fail, self._blind = take, fail, blind
        self._scaler = scaler
        self._finds_optimizers = optimizers is None
        self._watched = Watched(models, optimizers or ())
        self._gradients = Gradients(self._watched)
        self._parameters = Parameters(self._watched)
        self._updates = Updates(self._watched)
        self._rates = LearningRates(self._watched)
        self._timing = Timing()
        self._probes: list[Probe] = [
            self._gradients,
            self._parameters,
            self._updates,
            self._rates,
            self._timing,
            Memory(),
        ]
        self._strangers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._counts: dict[int, int] = {}
        self._moment: Moment | None = None
        self._inside: dict[int, Tensor] | None = None
        self._scaled_by: tuple[Any, Tensor | None] | None = None
        self._closure: int | None = None
        self._line_search = False
        self._by_scaler: int | None = None
        self._by_hand = False
        self._taken: Tensor | None = None
        self._usual_backwards = 1
        self._steady = 0
        self._scan_at = 1
        self._optimizer_began = 0.0
        self._forward_began = 0.0
        self._step_began = perf_counter()
        self._in_flight: tuple[Fetch, list[tuple[Draft, Fetch | None]]] | None = None
        self._logged: dict[str, float | Tensor] = {}
        self._validation: tuple[Tensor, int] | None = None
        self._trained_loss_fn = False
        self._seen_forward = self._unsettled = False
        self._busy = self._closed = False
        self._handles = [self._hook(model) for model in models.values()]
        if isinstance(loss_fn, nn.Module):
            self._handles.append((loss_fn.register_forward_hook(_guarded(self._loss_evaluated)),))
        patches.listen(self)

    # -- what the user says by hand ------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of the newest step, from 0; -1 before the first."""
        return max(self._counts.values(), default=0) - 1

    @_safely
    def observe(self, loss: Tensor | float) -> None:
        """The gradients are complete now, and `loss` is their loss."""
        self._observed(loss)

    @_safely
    def observe_step(self, loss: Tensor | float, step: int) -> None:
        """As `observe`, and the step closes here under the user's own number."""
        moment = self._observed(loss)
        if not moment.closed:
            self._close(None, moment, step)
            self._by_hand = True

    def _observed(self, loss: Tensor | float) -> Moment:
        moment = self._moment
        if moment is None or (moment.closed and (moment.sentinel is None or _zeroed(moment))):
            self._settle()
            moment = self._moment = Moment(marks={"by-hand"})
        if not moment.closed:  # else it comes after the step, and tells nothing new
            if moment.pack is None and self.governor.reads:
                self._measure(moment)
            moment.sentinel = self._sentinel()
            moment.losses = [torch.as_tensor(loss).detach().reshape(())]
            moment.backwards = max(1, moment.backwards)
            self._by_hand = False
        return moment

    @_safely
    def log(self, name: str, value: float | Tensor) -> None:
        self._logged[name] = value.detach().reshape(()) if isinstance(value, Tensor) else float(value)

    @_safely
    def flush(self) -> None:
        """Judges what is still on its way."""
        self._finish_validation()
        self._land()

    def close(self) -> None:
        """Reads what is still open, and takes every hook and patch away."""
        self._leave()
        self._closed = True
        patches.forget(self)
        for handles in self._handles:
            for handle in handles:
                handle.remove()
        for probe in self._probes:
            probe.close()
        self._moment = None

    @_safely
    def _leave(self) -> None:
        self._finish_validation()
        moment = self._moment
        if moment is not None and not moment.closed:
            self._abandon(moment)
        self._land()

    # -- what the loop does --------------------------------------------------------------------------------------

    @_safely
    def backward_starts(self, roots: Sequence[Any]) -> None:
        self._settle()
        self._finish_validation()
        if self._watched.incomplete:
            self._watched.refresh()
        moment = self._moment
        if self._line_search:
            return  # the step has been read at its first evaluation
        if moment is None or moment.closed:
            self._moment = Moment()
        elif not self._watched.optimizers and not self._find_optimizers():
            self._close(None, moment)
            self._moment = Moment()
        elif _zeroed(moment):
            self._abandon(moment)
            self._moment = Moment()
        elif not self._counts and moment.backwards >= _LONG_ACCUMULATION:
            self._abandon(moment)
            self._moment = Moment()

    @_safely
    def backward_ended(self, roots: Sequence[Any], seconds: float) -> None:
        self._timing.spend("backward", seconds)
        moment = self._moment
        if self._line_search:
            return
        if moment is None:
            moment = self._moment = Moment()
        if moment.closed:
            return
        moment.backwards += 1
        self._by_hand = False
        moment.scaler, unscaled = self._scaling()
        if not self.governor.reads:
            moment.sentinel = self._sentinel()
            inside, self._inside = self._inside, None
            if inside is not None:
                self._close(None, moment)
            return
        loss = unscaled if unscaled is not None else _loss_of(roots)
        if loss is not None:
            if moment.scaler is not None and unscaled is None:
                loss = loss / _scale_of(moment.scaler)
            moment.losses.append(loss)
        if self._inside is not None:
            self._measure_inside(moment, self._inside)
            self._inside = None
            self._close(None, moment)
            return
        in_closure = self._closure is not None
        if in_closure or self._steady < 3 or moment.backwards >= self._usual_backwards:
            self._measure(moment)
        moment.sentinel = self._sentinel()
        if self._closure is not None:
            self._close(self._closure, moment)
            self._line_search = True

    @_safely
    def backward_failed(self) -> None:
        self._inside = None
        if self._moment is not None and not self._moment.closed:
            self._moment = None

    @_safely
    def gradients_taken(self, roots: Sequence[Any]) -> None:
        self._taken = _loss_of(roots)

    @_safely
    def step_starts(self, optimizer: Optimizer, has_closure: bool) -> None:
        if patches.inside_backward():
            self._read_inside(optimizer)
            return
        index = self._index(optimizer)
        if index is None:
            return
        if self._watched.changed():
            self._watched.refresh()
            if self._moment is not None and not self._moment.closed:
                self._moment.pack = None  # its places speak of the old list
        if has_closure:
            self._closure = index
        elif self._by_scaler == index:
            self._by_scaler = None
        else:
            self._step_closes(index)
        if self.governor.takes_tables and self._updates in self._probes:
            with _Tables(self.governor):
                self._try(self._updates, lambda: self._updates.before(self._owner(index), max(self.step, 0)))
        self._optimizer_began = perf_counter()

    @_safely
    def step_ended(self, optimizer: Optimizer) -> None:
        if patches.inside_backward():
            return
        index = self._index(optimizer)
        if index is None:
            return
        if self._optimizer_began:
            self._timing.spend("optimizer", perf_counter() - self._optimizer_began)
            self._optimizer_began = 0.0
        if self._closure == index:
            if not self._line_search:  # the closure called no backward
                self._step_closes(index)
            self._closure, self._line_search = None, False
        if self._updates in self._probes:
            with _Tables(self.governor):
                self._try(self._updates, self._updates.after)

    @_safely
    def loss_scaled(self, scaler: Any, loss: Any) -> None:
        self._scaled_by = (scaler, _loss_of([loss]))

    @_safely
    def scaler_steps(self, scaler: Any, optimizer: Optimizer) -> None:
        index = self._index(getattr(optimizer, "optimizer", optimizer))
        if index is not None:
            self._step_closes(index)
            self._by_scaler = index  # the optimizer's own hook comes next, unless the scaler skips

    @_safely
    def data_waited(self, seconds: float) -> None:
        self._timing.spend("data", seconds)

    @_safely
    def forward_starts(self) -> None:
        self._seen_forward = True
        self._forward_began = perf_counter()
        if not torch.is_grad_enabled():
            return
        self._settle()
        self._finish_validation()
        moment = self._moment
        if moment is not None and not moment.closed and not self._watched.optimizers and not self._find_optimizers():
            self._close(None, moment)

    @_safely
    def forward_ended(self) -> None:
        if self._forward_began:
            self._timing.spend("forward", perf_counter() - self._forward_began)
            self._forward_began = 0.0

    # -- closing a step ------------------------------------------------------------------------------------------

    def _step_closes(self, index: int) -> None:
        if self._by_hand:
            return
        moment = self._moment
        if moment is not None and index in moment.closed and not _replaced(moment):
            return  # a second step on the same gradients
        if moment is None or moment.backwards == 0 or index in moment.closed:
            if not any(p.grad is not None for g in self._watched.optimizers[index].param_groups for p in g["params"]):
                return
            self._settle()
            moment = self._moment = Moment(marks={"pre-step"}, sentinel=self._sentinel())
            if self._taken is not None:
                moment.losses.append(self._taken)
            self._taken = None
        self._close(index, moment)

    def _close(self, index: int | None, moment: Moment, step: int | None = None) -> None:
        """The step that belongs to `moment` takes place now (or, with `None`, at a place that torch does not see)."""
        owner = -1 if index is None else index
        first = not moment.closed
        moment.closed.add(owner)
        if first and moment.backwards:
            self._learn_accumulation(moment.backwards)
        self._counts[owner] = self._counts.get(owner, 0) + 1
        if self.governor.reads:
            self._read(owner, moment, first, max(self.step, 0) if step is None else step)
        self._unsettled = True

    def _settle(self) -> None:
        """A step is over and the next one begins: the governor decides about it."""
        if not self._unsettled:
            return
        self._unsettled = False
        now = perf_counter()
        seconds, self._step_began = now - self._step_began, now
        self.governor.stepped(self.step, seconds)
        self._updates.drop()
        if self.governor.takes_tables and self._watched.replaced():
            self._watched.refresh()
        if self.step == _SURE_BY and not self._seen_forward:
            self._blind("forward", "the model's forward pass is not seen (compiled after the watch began?)")

    def _read(self, owner: int, moment: Moment, first: bool, step: int) -> None:
        several = len(self._watched.optimizers) > 1 and owner >= 0
        if moment.values is None and moment.pack is None:
            if first and moment.backwards:
                moment.marks.add("pre-step")
            self._measure(moment)
        pack = moment.pack if first and moment.pack is not None else Pack()
        self._rates.owner = owner if several else None
        for probe in (self._rates, self._timing, *self._probes[5:]):
            if probe in self._probes and (first or probe is self._rates):
                self._try(probe, lambda probe=probe: probe.read(pack))
        if first:
            self._add_scalars(pack, moment)
        if self.governor.takes_tables and first:
            with _Tables(self.governor):
                self._try(self._parameters, lambda: self._parameters.read(pack))
        if first:
            self._try(self._updates, lambda: self._updates.read(pack))
        draft = Draft(
            step=step,
            rank=self.rank,
            series=owner if several else None,
            marks=frozenset(moment.marks),
            watched=self._watched,
            places=moment.places,
            update_places=self._updates.places,
            update_decay=self._updates.decay,
            host=pack.host,
            scaled=moment.scaler is not None,
            confirm=self.lag == 0,
        )
        fetch = pack.send()
        if not first:  # another optimizer steps on the same gradients: they are fetched already, or on their way
            if self._in_flight is not None:
                self._in_flight[1].append((draft, fetch))
            elif moment.values is not None:
                self._take(complete(draft, {**moment.values, **fetch.values()}, own_only=True))
            return
        self._land()
        if self.lag:
            fetch.start()
            self._in_flight = (fetch, [(draft, None)])
            return
        moment.values = fetch.values()
        self._take(complete(draft, moment.values))

    def _add_scalars(self, pack: Pack, moment: Moment) -> None:
        losses = moment.losses
        if losses:
            loss = losses[0] if len(losses) == 1 else torch.stack([loss.float() for loss in losses]).mean()
            pack.add("loss", [loss])
        if moment.scaler is not None:
            scale = _scale_of(moment.scaler)
            if isinstance(scale, Tensor):
                pack.add("amp/scale", [scale.detach().clone().reshape(())])  # `update()` changes it in place
            else:
                pack.host["amp/scale"] = scale
        for name, value in self._logged.items():
            if isinstance(value, Tensor):
                pack.add(name, [value])
            else:
                pack.host[name] = value
        self._logged.clear()

    def _land(self) -> None:
        """Judges the reading that was on its way (`lag=1`)."""
        if self._in_flight is not None:
            (fetch, drafts), self._in_flight = self._in_flight, None
            values = fetch.values()
            for draft, more in drafts:
                self._take(complete(draft, {**values, **(more.values() if more else {})}, own_only=more is not None))

    def _abandon(self, moment: Moment) -> None:
        """The gradients were zeroed and no step used them."""
        moment.marks.add("not-stepped")
        if not self._stepping():
            self._close(None, moment)
            return
        moment.closed.add(-1)
        if moment.pack is None:
            return
        # The loop steps at other times, so this was meant (an attack, a skipped batch): only what is broken matters.
        fetch = moment.pack
        self._add_scalars(fetch, moment)
        values = fetch.send().values()
        if all(math.isfinite(v) for name in ("loss", "gradient/norm") for v in values.get(name, ())):
            return
        draft = Draft(
            step=self.step + 1,
            rank=self.rank,
            marks=frozenset(moment.marks),
            watched=self._watched,
            places=moment.places,
            host={},
            scaled=moment.scaler is not None,
            confirm=False,
        )
        self._take(complete(draft, values))

    def _stepping(self) -> bool:
        return any(owner >= 0 for owner in self._counts)

    def _learn_accumulation(self, backwards: int) -> None:
        self._steady = self._steady + 1 if backwards == self._usual_backwards else 0
        self._usual_backwards = backwards

    # -- measuring -----------------------------------------------------------------------------------------------

    def _measure(self, moment: Moment) -> None:
        pack = moment.pack = Pack()
        if self._gradients not in self._probes:
            return
        self._try(self._gradients, lambda: self._gradients.read(pack))
        if self.governor.takes_tables:
            with _Tables(self.governor):
                self._try(self._gradients, lambda: self._gradients.read_more(pack))
        moment.places = self._gradients.places

    def _sentinel(self) -> tuple[Tensor, int, int] | None:
        for parameter in self._watched.parameters:
            if parameter.grad is not None:
                return (parameter, id(parameter.grad), parameter.grad._version)
        return None

    def _read_inside(self, optimizer: Optimizer) -> None:
        """An optimizer steps inside backward: its gradients are complete now and gone a moment later."""
        if optimizer in self._strangers:
            return
        if not self._watched.holds_any(optimizer):
            self._strangers.add(optimizer)
            return
        if not self._watched.optimizers:
            self._watched.optimizers.append(optimizer)  # one of maybe hundreds speaks for their learning rates
        if self._inside is None:
            self._inside = {}
        if not self.governor.reads:
            return
        held = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for parameter, norm in zip(held, norms([p.grad for p in held if p.grad is not None]), strict=True):
            self._inside[id(parameter)] = norm

    def _measure_inside(self, moment: Moment, found: dict[int, Tensor]) -> None:
        pack = moment.pack = Pack()
        moment.marks.add("inside-backward")
        moment.places = [at for at, p in enumerate(self._watched.parameters) if id(p) in found]
        pack.add("gradient/norm", [found[id(self._watched.parameters[at])] for at in moment.places])

    def _try(self, probe: Probe, read: Callable[[], None]) -> None:
        """Runs part of a probe; one that fails is dropped, and the rest goes on."""
        if probe not in self._probes:
            return
        try:
            read()
        except Exception as error:
            self._probes.remove(probe)
            self._fail(f"probe {probe.name}", error)

    # -- whose optimizer, scaler, loss it is ---------------------------------------------------------------------

    def _owner(self, index: int) -> int | None:
        return index if len(self._watched.optimizers) > 1 else None

    def _index(self, optimizer: Optimizer) -> int | None:
        for at, known in enumerate(self._watched.optimizers):
            if known is optimizer:
                return at
        if not self._finds_optimizers or optimizer in self._strangers:
            return None
        if not self._watched.holds_any(optimizer) and self._watched.replaced():
            self._watched.refresh()
        if not self._watched.holds_any(optimizer):
            self._strangers.add(optimizer)
            return None
        return self._adopt(optimizer)

    def _adopt(self, optimizer: Optimizer) -> int:
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        optimizers = self._watched.optimizers
        for at, known in enumerate(optimizers):
            theirs = {id(p) for group in known.param_groups for p in group["params"]}
            if theirs & mine:  # it took the place of one that was there before
                optimizers[at] = optimizer
                break
        else:
            optimizers.append(optimizer)
            at = len(optimizers) - 1
        self._watched.refresh()
        if self._moment is not None and not self._moment.closed and self._inside is None:
            self._measure(self._moment)
        return at

    def _find_optimizers(self) -> bool:
        """Looks, rarely, for an optimizer that holds our parameters and has not stepped yet."""
        self._scan_at -= 1
        if not self._finds_optimizers or self._scan_at > 0:
            return False
        self._scan_at = max(8, 4 * (self.step + 1))
        for thing in gc.get_objects():
            if issubclass(type(thing), Optimizer) and self._watched.holds_any(getattr(thing, "optimizer", thing)):
                self._adopt(getattr(thing, "optimizer", thing))
        return bool(self._watched.optimizers)

    def _scaling(self) -> tuple[Any, Tensor | None]:
        """The scaler that this backward passed through, if any, and the loss before it was scaled, if known."""
        if self._scaled_by is not None:
            found, self._scaled_by = self._scaled_by, None
            return found
        given = self._scaler
        if given is None or isinstance(given, torch.amp.GradScaler):
            return None, None  # torch's own tells us by itself which losses it scaled
        enabled = getattr(given, "is_enabled", None)
        return (given if enabled is None or enabled() else None), None

    # -- validation ----------------------------------------------------------------------------------------------

    @_safely
    def validate(self, loss: Tensor | float) -> None:
        """Takes a validation loss at the current step."""
        value = float(loss.detach()) if isinstance(loss, Tensor) else float(loss)
        self._land()
        self._take(Reading(step=max(self.step, 0), scalars={"val_loss": value}, rank=self.rank))

    @_safely
    def _loss_evaluated(self, output: Any, grad_enabled: bool) -> None:
        if not isinstance(output, Tensor) or output.numel() != 1:
            return
        if grad_enabled:
            self._trained_loss_fn = True
        elif self._trained_loss_fn and not any(model.training for model in self._watched.models.values()):
            value = output.detach().reshape(()).float()
            total, count = self._validation or (torch.zeros_like(value), 0)
            self._validation = (total + value, count + 1)

    def _finish_validation(self) -> None:
        if self._validation is not None:
            (total, count), self._validation = self._validation, None
            self._land()
            value = float(total / count)
            self._take(Reading(step=max(self.step, 0), scalars={"val_loss": value}, rank=self.rank))

    # -- hooks ---------------------------------------------------------------------------------------------------

    def _hook(self, model: nn.Module) -> tuple[Any, ...]:
        """Hooks on the root only. Under `torch.compile` they are traced to nothing."""

        def before(module: nn.Module, args: Any) -> None:
            if not torch.compiler.is_compiling():
                self.forward_starts()

        def after(module: nn.Module, args: Any, output: Any) -> None:
            if not torch.compiler.is_compiling():
                self.forward_ended()

        return (model.register_forward_pre_hook(before), model.register_forward_hook(after))

class _Tables:
    """Accounts the time inside it to the dear tables."""

    __slots__ = ("_began", "_governor")

    def __init__(self, governor: Governor) -> None:
        self._governor = governor

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._governor.spend_on_tables(perf_counter() - self._began)


def _guarded(listener: Callable[[Any, bool], None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            listener(output, torch.is_grad_enabled())

    return hook


def _loss_of(roots: Iterable[Any]) -> Tensor | None:
    """The scalar that backward was called on; `None` where it was called on something else."""
    scalars = []
    for root in roots:
        if not isinstance(root, Tensor) or root.numel() != 1 or root.is_complex():
            return None
        scalars.append(root.detach().reshape(()))
    if not scalars:
        return None
    return scalars[0] if len(scalars) == 1 else torch.stack([s.float() for s in scalars]).sum()


def _scale_of(scaler: Any) -> Tensor | float:
    """The scale, still on the device where it lies there."""
    scale = getattr(scaler, "_scale", None)
    return scale if isinstance(scale, Tensor) else float(scaler.get_scale())


def _zeroed(moment: Moment) -> bool:
    if moment.sentinel is None:
        return False
    parameter, _, version = moment.sentinel
    return parameter.grad is None or parameter.grad._version != version


def _replaced(moment: Moment) -> bool:
    """Whether other gradients stand where those of `moment` stood, without a backward in between."""
    if moment.sentinel is None:
        return True
    parameter, identity, _ = moment.sentinel
    return parameter.grad is not None and id(parameter.grad) != identity
