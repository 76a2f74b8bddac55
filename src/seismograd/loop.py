"""Follows the training loop: knows the moment when gradients are complete, and which step they belong to."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import wraps
from time import perf_counter
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd import patches
from seismograd.governor import Governor
from seismograd.probes.validation import Validation
from seismograd.probes.watched import Watched
from seismograd.reader import Moment, Reader, scale_of
from seismograd.records import Reading
from seismograd.stats.tensors import norms

P = ParamSpec("P")

_LONG_ACCUMULATION = 32
"""So many backwards before the first step ever: the loop may never step, and is read all the same."""

_SURE_BY = 8
"""What has not been seen by this step will not be seen."""


def _by_hand(method: Callable[Concatenate[Loop, P], None]) -> Callable[Concatenate[Loop, P], None]:
    """What the user says is heard also between readings."""

    @wraps(method)
    def run(self: Loop, *args: P.args, **kwargs: P.kwargs) -> None:
        self._asleep = False
        method(self, *args, **kwargs)

    return run  # type: ignore[return-value]


def _safely(method: Callable[Concatenate[Loop, P], None]) -> Callable[Concatenate[Loop, P], None]:
    """Runs a listener so that no error of ours reaches the training loop, and its time is accounted for."""

    @wraps(method)
    def run(self: Loop, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._asleep or self._busy or self._closed:
            return
        self._busy = True
        began = perf_counter()
        grad_enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._fail(f"the watch's {method.__name__}", error)
        finally:
            torch._C._set_grad_enabled(grad_enabled)
            self._busy = False
            spent = perf_counter() - began
            self._timing.own += spent
            self.governor.spend(spent - self._set_up)
            self._set_up = 0.0

    return run  # type: ignore[return-value]


class Loop:
    """Listens to backward, step, scaler and forward, and has a reading made when a step closes.

    A backward opens a *moment* or adds to it; a step closes it. With several optimizers each closes it for itself.
    """

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
        self._fail, self._blind = fail, blind
        self._scaler = scaler
        self._watched = Watched(models, optimizers)
        self._reader = Reader(self._watched, governor, take=take, fail=fail, lag=lag, rank=rank)
        self._timing = self._reader.timing
        self._validation = Validation(loss_fn, models.values())
        self._moment: Moment | None = None
        self._counts: dict[int, int] = {}
        self._inside: dict[int, Tensor] | None = None
        self._scaled_by: tuple[Any, Any] | None = None
        self._closure: int | None = None
        self._line_search = False
        self._by_scaler: int | None = None
        self._by_hand = False
        self._taken: Tensor | None = None
        self._usual_backwards, self._steady = 1, 0
        self._optimizer_began = self._forward_began = 0.0
        self._step_began = perf_counter()
        self._seen_forward = self._unsettled = False
        self._busy = self._closed = self._asleep = False
        self._set_up = 0.0  # seconds that belong to setting up, not to the share of a step
        self._handles = [model.register_forward_pre_hook(_BeforeForward(self)) for model in models.values()]
        self._handles += [model.register_forward_hook(_AfterForward(self)) for model in models.values()]
        patches.listen(self)

    @property
    def step(self) -> int:
        """The number of the newest step, from 0; -1 before the first."""
        return max(self._counts.values(), default=0) - 1

    # -- what the user says by hand ------------------------------------------------------------------------------

    @_by_hand
    @_safely
    def observe(self, loss: Tensor | float) -> None:
        """The gradients are complete now, and `loss` is their loss."""
        self._observed(loss)

    @_by_hand
    @_safely
    def observe_step(self, loss: Tensor | float, step: int) -> None:
        """As `observe`, and the step closes here under the user's own number."""
        moment = self._observed(loss)
        if not moment.closed:
            self._close(None, moment, step)
            self._by_hand = True

    def _observed(self, loss: Tensor | float) -> Moment:
        moment = self._moment
        if moment is None or (moment.closed and (moment.sentinel is None or moment.zeroed())):
            self._settle()
            moment = self._moment = Moment(marks={"by-hand"})
        if not moment.closed:  # else it comes after the step, and tells nothing new
            if moment.pack is None and self.governor.reads:
                self._reader.measure(moment)
            moment.sentinel = self._reader.sentinel()
            moment.losses = [torch.as_tensor(loss).detach().reshape(())]
            moment.backwards = max(1, moment.backwards)
            self._by_hand = False
        return moment

    @_by_hand
    @_safely
    def validate(self, loss: Tensor | float) -> None:
        """Takes a validation loss at the current step."""
        self._reader.validated(float(loss), max(self.step, 0))

    def log(self, name: str, value: Tensor | float) -> None:
        """The newest value stands in the next reading."""
        self._reader.logged[name] = value.detach().reshape(()) if isinstance(value, Tensor) else float(value)

    @_by_hand
    @_safely
    def flush(self) -> None:
        """Judges what is still on its way."""
        self._end_validation()
        self._reader.land()

    def close(self) -> None:
        """Reads what is still open, and takes every hook and patch away."""
        try:
            self._leave()
        finally:
            self._closed = True
            patches.forget(self)
            for handle in self._handles:
                handle.remove()
            self._validation.close()
            self._moment = self._taken = self._scaled_by = None
            self._reader.close()
            self._watched.release()

    def idle(self) -> None:
        """Hears nothing from now on: this is a forked child, whose training is not ours."""
        self._closed = True

    @_by_hand
    @_safely
    def _leave(self) -> None:
        self._end_validation()
        if self._moment is not None and not self._moment.closed and self._moment.backwards:
            self._abandon(self._moment)
        self._reader.land()
        self._settle()

    # -- what the loop does --------------------------------------------------------------------------------------

    @_safely
    def backward_starts(self, roots: Sequence[Any]) -> None:
        self._settle()
        self._end_validation()
        if self._watched.incomplete:
            self._watched.refresh()
        if self._line_search:
            return  # the step has been read at its first evaluation
        moment = self._moment
        if moment is None or moment.closed:
            self._moment = Moment()
        elif self._is_foreign():
            self._close(None, moment)
            self._settle()
            self._moment = Moment()
        elif moment.zeroed() or (not self._counts and moment.backwards >= _LONG_ACCUMULATION):
            self._abandon(moment)
            self._settle()
            self._moment = Moment()
        if self._accumulates() and self.governor.reads and self._moment is not None and len(roots) == 1:
            # Before the graph is gone; and only under accumulation: a saved tensor may have unpack hooks.
            self._moment.divisors.add(_divisor_of(self._scaled_by[1] if self._scaled_by else roots[0]))

    def _accumulates(self) -> bool:
        return self._usual_backwards > 1 or (self._moment is not None and self._moment.backwards > 0)

    @_safely
    def backward_ended(self, roots: Sequence[Any], seconds: float) -> None:
        self._timing.backward += seconds
        moment = self._moment
        if self._line_search or moment is None or moment.closed:
            return
        moment.backwards += 1
        self._by_hand = False
        moment.scaler, unscaled = self._scaling()
        inside, self._inside = self._inside, None
        if self.governor.reads:
            self._add_loss(moment, roots, unscaled)
            if inside is not None:
                self._reader.measure_inside(moment, inside)
            elif moment.backwards >= self._expected_backwards(moment):
                self._reader.measure(moment)
        moment.sentinel = self._reader.sentinel()
        if inside is not None:
            self._close(None, moment)
        elif self._closure is not None:
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

    def step_starts(self, optimizer: Optimizer, has_closure: bool) -> None:
        if self._asleep:
            self._count_asleep(optimizer)
        else:
            self._step_starts(optimizer, has_closure)

    @_safely
    def _step_starts(self, optimizer: Optimizer, has_closure: bool) -> None:
        if patches.inside_backward():
            self._read_inside(optimizer)
            return
        known = len(self._watched.optimizers)
        index = self._watched.index_of(optimizer)
        if index is None:
            return
        if self._watched.changed():
            self._watched.refresh()
            known = -1
        moment = self._moment
        if known != len(self._watched.optimizers) and moment is not None and not moment.closed and moment.pack:
            self._reader.measure(moment)  # the list of parameters is another now
        if has_closure:
            self._closure, self._line_search = index, False
        elif self._by_scaler == index:
            self._by_scaler = None
        else:
            self._step_closes(index)
        several = len(self._watched.optimizers) > 1
        self._reader.before_step(index if several else None, max(self.step, 0))
        self._optimizer_began = perf_counter()

    @_safely
    def step_ended(self, optimizer: Optimizer) -> None:
        if patches.inside_backward():
            return
        index = self._watched.index_of(optimizer)
        if index is None:
            return
        if self._optimizer_began:
            self._timing.optimizer += perf_counter() - self._optimizer_began
            self._optimizer_began = 0.0
        if self._closure == index:
            if not self._line_search:  # the closure called no backward
                self._step_closes(index)
            self._closure, self._line_search = None, False
        self._reader.after_step()

    @_safely
    def loss_scaled(self, scaler: Any, loss: Any) -> None:
        self._scaled_by = (scaler, loss)

    @_safely
    def scaler_steps(self, scaler: Any, optimizer: Optimizer) -> None:
        index = self._watched.index_of(getattr(optimizer, "optimizer", optimizer))
        if index is not None:
            self._step_closes(index)
            self._by_scaler = index  # the optimizer's own hook comes next, unless the scaler skips

    def data_waited(self, seconds: float) -> None:
        self._timing.data += seconds

    @_safely
    def _training_goes_on(self) -> None:
        """A forward pass with gradients begins: what came before it is over."""
        self._settle()
        self._end_validation()
        moment = self._moment
        if moment is not None and not moment.closed and moment.backwards and self._is_foreign():
            self._close(None, moment)

    # -- closing a step ------------------------------------------------------------------------------------------

    def _step_closes(self, index: int) -> None:
        if self._by_hand:
            return
        moment = self._moment
        if moment is not None and index in moment.closed and not moment.replaced():
            return  # a second step on the same gradients
        if moment is None or moment.backwards == 0 or index in moment.closed:
            optimizer = self._watched.optimizers[index]
            if not any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
                return
            self._settle()
            moment = self._moment = Moment(marks={"pre-step"}, sentinel=self._reader.sentinel())
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
            self._steady = self._steady + 1 if moment.backwards == self._usual_backwards else 0
            self._usual_backwards = moment.backwards
        self._counts[owner] = self._counts.get(owner, 0) + 1
        if self.governor.reads:
            self._reader.read(owner, moment, first, max(self.step, 0) if step is None else step)
        self._unsettled = True

    def _abandon(self, moment: Moment) -> None:
        """The gradients were zeroed and no step used them."""
        moment.marks.add("not-stepped")
        if any(owner >= 0 for owner in self._counts):
            # The loop steps at other times, so this was meant (an attack, a skipped batch): only what is broken counts.
            moment.closed.add(-1)
            self._reader.glance(moment, self.step + 1)
        else:
            self._close(None, moment)

    def _is_foreign(self) -> bool:
        """Whether the optimizer is none of torch's, so that no hook will tell of its step."""
        if self._watched.optimizers:
            return False
        began = perf_counter()
        found = self._watched.search()
        self._set_up += perf_counter() - began
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
        if self.governor.takes_tables and self._watched.replaced():
            self._watched.refresh()
        if self.step == _SURE_BY and not self._seen_forward and _compiles():
            self._blind("forward", "the model's forward pass is not seen: it was compiled after the watch began")

        simple = self._steady >= 3 and len(self._watched.optimizers) == 1 and 0 in self._counts and self._moment
        if not self.governor.reads and simple and not simple.scaler and self._closure is None:
            self._asleep = True

    def _count_asleep(self, optimizer: Optimizer) -> None:
        """Between readings a plain loop is not followed, which costs next to nothing: only its steps are counted."""
        if optimizer is not self._watched.optimizers[0]:
            return
        now = perf_counter()
        self._counts[0] += 1
        seconds, self._step_began = now - self._step_began, now
        self.governor.stepped(self.step, seconds)
        if self.governor.reads:
            self._asleep = False
            self._timing.restart()
        self.governor.spend(perf_counter() - now)

    def _end_validation(self) -> None:
        loss = self._validation.take()
        if loss is not None:
            self._reader.validated(loss, max(self.step, 0))

    # -- losses, scalers, optimizers inside backward -------------------------------------------------------------

    def _expected_backwards(self, moment: Moment) -> int:
        """Under steady accumulation only the last backward need be measured. Not under a scaler: if the step came
        early after all, there would be no telling whether the gradients are still scaled."""
        sure = self._steady >= 3 and self._closure is None and moment.scaler is None
        return self._usual_backwards if sure else 1

    def _add_loss(self, moment: Moment, roots: Sequence[Any], unscaled: Tensor | None) -> None:
        loss = unscaled if unscaled is not None else _loss_of(roots)
        if loss is not None:
            if moment.scaler is not None and unscaled is None:
                loss = loss / scale_of(moment.scaler)
            moment.losses.append(loss)

    def _scaling(self) -> tuple[Any, Tensor | None]:
        """The scaler that this backward passed through, if any, and the loss before it was scaled, if known."""
        if self._scaled_by is not None:
            (scaler, loss), self._scaled_by = self._scaled_by, None
            return scaler, _loss_of([loss])
        given = self._scaler
        if given is None or isinstance(given, torch.amp.GradScaler):
            return None, None  # torch's own tells us by itself which losses it scaled
        enabled = getattr(given, "is_enabled", None)
        return (given if enabled is None or enabled() else None), None

    def _read_inside(self, optimizer: Optimizer) -> None:
        """An optimizer steps inside backward: its gradients are complete now and gone a moment later."""
        if not self._watched.holds(optimizer):
            return
        if not self._watched.optimizers:
            self._watched.optimizers.append(optimizer)  # one of maybe hundreds speaks for their learning rates
        if self._inside is None:
            self._inside = {}
        if self.governor.reads:
            held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            for parameter, norm in zip(held, norms([p.grad for p in held if p.grad is not None]), strict=True):
                self._inside[id(parameter)] = norm


class _Hook:
    """A hook on a root module. It pickles and copies as one that does nothing, so that a watched model can be saved,
    and an averaged copy of it is not watched. Under `torch.compile` it is traced to nothing."""

    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __reduce__(self) -> tuple[Any, ...]:
        return (getattr, (nullcontext(), "__exit__"))  # of the standard library: takes anything, returns None


class _BeforeForward(_Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self._loop._asleep:
            return
        loop = self._loop
        loop._seen_forward = True
        moment = loop._moment
        if moment is not None and (loop._unsettled or not moment.closed) and torch.is_grad_enabled():
            loop._training_goes_on()
        loop._forward_began = perf_counter()


class _AfterForward(_Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or self._loop._asleep:
            return
        loop = self._loop
        if loop._forward_began:
            loop._timing.forward += perf_counter() - loop._forward_began
            loop._forward_began = 0.0


def _compiles() -> bool:
    """Whether `torch.compile` has been at work in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def _loss_of(roots: Iterable[Any]) -> Tensor | None:
    """The scalar that backward was called on; `None` where it was called on something else."""
    scalars = []
    for root in roots:
        if not isinstance(root, Tensor) or root.numel() != 1 or root.is_complex():
            return None
        scalars.append(root.detach() if root.ndim == 0 else root.detach().reshape(()))
    if len(scalars) < 2:
        return scalars[0] if scalars else None
    return torch.stack([scalar.float() for scalar in scalars]).sum()


def _divisor_of(loss: Any) -> float:
    """The plain number that a loss was divided by, as people do under accumulation; 1 where it was not."""
    node = getattr(loss, "grad_fn", None)
    kind = type(node).__name__
    if kind not in ("DivBackward0", "MulBackward0"):
        return 1.0
    other = getattr(node, "_saved_other", None)
    if not isinstance(other, Tensor) or other.numel() != 1 or other.device.type != "cpu":
        return 1.0
    number = float(other) if kind == "DivBackward0" else 1 / (float(other) or 1.0)
    whole = math.isfinite(number) and math.isclose(number, round(number), rel_tol=1e-6)
    return float(round(number)) if whole else number
