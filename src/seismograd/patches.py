"""What Seismograd changes in torch while a watch is open, all of it, and how it is put back.

| what | why |
|---|---|
| `torch.autograd._engine_run_backward` | every `backward` and `autograd.grad` passes it: gradients are complete |
| global optimizer step hooks (public) | the moment before and after `optimizer.step()` |
| `torch.amp.GradScaler.scale`, `.step` | which backward is scaled, and a step that the scaler may skip |
| `nn.Module.__call__` | what goes into the outermost module, and what comes out: no hook is set on any module |
| `DataLoader` iterators' `__next__` | how long the loop waits for data, and whose data it is |
| the losses in `torch._C._nn` | what goes into the loss; the training loss, met again in an evaluation |
| `Optimizer.zero_grad`, `nn.Module.zero_grad` | when gradients are cleared |
| `clip_grad_norm_`, `clip_grad_value_`, `GradScaler.unscale_` | what is done to gradients before the step |
| `step` of the learning rate schedulers | whether it comes in its turn |
| `torch.save` | how long the loop takes for its checkpoints |
| `Work.wait` of `torch.distributed` | how long it waits for other ranks |
| what writes, of `logging`, TensorBoard, wandb and mlflow (`LOGGERS`), once imported | how long it takes |
| `CallbackHandler.call_event` of transformers, once imported | its evaluation losses; whether it hides bad ones |
| `torch.manual_seed` | whether the same random numbers are drawn at every step |
| `gc.freeze` | models and optimizers are looked for among all objects, which it hides |

Nothing here runs while `torch.compile` traces, and TorchScript gets the originals.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from itertools import count
from time import perf_counter
from types import CodeType
from typing import Any, Protocol

import torch
import torch.jit._builtins
import torch.nn.utils
import torch.optim.lr_scheduler
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from seismograd import interrupts, living, places


class Listener(Protocol):
    """Hears what the training loop does. None of these may raise."""

    def backward_starts(self, roots: Sequence[Any], keeps_graph: bool) -> None: ...
    def backward_ended(self, roots: Sequence[Any], seconds: float) -> None: ...
    def backward_failed(self) -> None: ...
    def gradients_start(self, roots: Sequence[Any]) -> None: ...
    def gradients_taken(self, roots: Sequence[Any]) -> None: ...
    def step_starts(self, optimizer: Optimizer, has_closure: bool) -> Optimizer | None:
        """What is to step in its place, if its update is not to take place."""

    def step_ended(self, optimizer: Optimizer) -> None: ...
    def loss_scaled(self, scaler: GradScaler, loss: Any, scaled: Any) -> None: ...
    def scaler_steps(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def module_ended(self, module: nn.Module, output: Any) -> None: ...
    def module_failed(self) -> None: ...
    def turns(self, phase: str) -> None:
        """The loop does something else from here on, until it has `turned` back: `data`, `checkpoint`, `logging`,
        `collective`."""
        ...

    def turned(self, phase: str) -> None: ...
    def data_waited(self, source: int, over: bool) -> None:
        """A `DataLoader` has handed out a batch of the data set with this number, or there was none left."""

    def loss_computed(self, name: str, output: Any, args: tuple[Any, ...]) -> None: ...
    def loss_failed(self, name: str, args: tuple[Any, ...], error: Exception) -> None: ...
    def evaluated(self, model: Any, loss: float | None) -> None:
        """A framework has evaluated this model, and says what its validation loss is, if it was an evaluation of that
        kind."""

    def happens(self, what: str, *args: Any) -> None:
        """`cleared(owner)`, `clips()`, `clipped(parameters, limit, kind)`, `unscaled(optimizer)`,
        `scheduled(scheduler)`, `data_came(batch, iterator)`, `seeded(seed)`, `steps_in(surroundings)`."""
        ...

    def covers(self, parameters: Sequence[Any]) -> bool: ...
    def idle(self) -> None: ...


LOSSES = {
    **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "binary_cross_entropy"), 3),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "kl_div"), 2),
    "binary_cross_entropy_with_logits": 4,
}
"""The losses that are listened to: what `torch.nn.functional` calls, and which argument says how to reduce.

Not the functions of `torch.nn.functional` themselves: their warnings name the line that called them."""

_OF_TENSORBOARD = ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_figure", "add_text")
LOGGERS = {
    ("logging", "Logger"): ("handle",),
    ("torch.utils.tensorboard.writer", "SummaryWriter"): _OF_TENSORBOARD,
    ("tensorboardX.writer", "SummaryWriter"): _OF_TENSORBOARD,
    ("wandb.sdk.wandb_run", "Run"): ("log",),
    ("mlflow.tracking.client", "MlflowClient"): ("log_metric", "log_batch", "log_artifact"),
}
"""Classes that write what a loop tells them, by their module, and the methods that do."""

_UNCOUNTED = f"{__file__} (like importlib._bootstrap)"
"""The file name of our frames: `warnings` leaves out such frames when it counts to the line that it names."""


class Follower(Protocol):
    """Hears of every module that is called, in a second run of ours."""

    def module_starts(self, module: nn.Module) -> None: ...
    def module_ended(self, output: Any = None) -> None: ...


class _Inside(threading.local):
    """What goes on on this thread."""

    module = False
    """Whether some module's forward is at work: those that it calls are part of it."""
    follower: Follower | None = None
    schedules = False
    """Whether a scheduler steps: those that it steps are part of it."""
    phase = False
    """Whether the loop waits for a batch, or writes: what does so inside is part of it."""
    muted = False
    """Whether what runs is a second run of ours, of which nobody is told."""


_inside = _Inside()
_listeners: list[Listener] = []
_undo: list[Callable[[], None]] = []
_logged: set[tuple[str, str]] = set()  # those of `LOGGERS` that are watched
_lock = threading.RLock()


def listen(listener: Listener) -> None:
    """Tells `listener` of everything from now on; the first one sets the patches."""
    with _lock:
        if not _listeners:
            _install()
        _listeners.append(listener)
        watch_frameworks()


def listeners() -> tuple[Listener, ...]:
    """Those who are told at present."""
    return tuple(_listeners)


def forget(listener: Listener) -> None:
    """Stops telling `listener`; the last one takes the patches away."""
    with _lock:
        if listener not in _listeners:
            return
        _listeners.remove(listener)
        if not _listeners:
            while _undo:
                _undo.pop()()


class _Deaf:
    """Hears nothing; stands for those who do not listen at present."""

    def __getattr__(self, event: str) -> Callable[..., None]:
        return _nothing


def _nothing(*_args: Any, **_kwargs: Any) -> None: ...


@contextmanager
def apart() -> Iterator[None]:
    """What we train ourselves, to see how it goes: those who listen now hear nothing of it."""
    deaf: Any = _Deaf()
    with _lock:
        if not _listeners:
            _install()
        before, _listeners[:] = list(_listeners), [deaf]
    inside = _inside.module, _inside.follower
    _inside.module, _inside.follower = False, None
    try:
        yield
    finally:
        _inside.module, _inside.follower = inside
        with _lock:
            _listeners[:] = before
            if not _listeners:
                while _undo:
                    _undo.pop()()


def _forget_all() -> None:
    """In a forked child (a loader's worker, say) nothing is watched."""
    for listener in _listeners:
        listener.idle()
    _listeners.clear()
    while _undo:
        _undo.pop()()


os.register_at_fork(after_in_child=_forget_all)


def inside_backward() -> bool:
    """Whether autograd is at work on this thread: what runs now was called by a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


@contextmanager
def muted(follower: Follower | None = None) -> Iterator[None]:
    """A second run of ours: listeners are told nothing, `follower` of every module that is called."""
    before = _inside.module, _inside.follower, _inside.muted
    _inside.module, _inside.follower, _inside.muted = True, follower, True
    try:
        yield
    finally:
        _inside.module, _inside.follower, _inside.muted = before


def follow(follower: Follower) -> bool:
    """Has `follower` hear of the modules that the present outermost one calls; False if someone else does already."""
    if _inside.follower is not None:
        return False
    _inside.follower = follower
    return True


def unfollow(follower: Follower) -> None:
    if _inside.follower is follower:
        _inside.follower = None


engine: CodeType | None = None
"""The code of our frame below autograd's engine: what stands above it in a stack runs in backward."""


def _install() -> None:
    _undo.append(interrupts.heed())
    _replace_module_call()
    _replace(torch.autograd, "_engine_run_backward", _watched_engine)
    _replace(GradScaler, "scale", _watched_scale)
    _replace(GradScaler, "step", _watched_scaler_step)
    _replace(GradScaler, "unscale_", _watched_unscale)
    _replace(_BaseDataLoaderIter, "__next__", _watched_next)
    for name in LOSSES:
        owner: Any = torch._C._nn if hasattr(torch._C._nn, name) else torch
        _replace(owner, name, partial(_watched_loss, name), scripted=f"aten::{name}")
    for owner in (Optimizer, nn.Module):
        _replace(owner, "zero_grad", _watched_zero_grad)
    if hasattr(clip_grad, "_clip_grads_with_norm_"):
        _replace(clip_grad, "_clip_grads_with_norm_", partial(_watched_clip, "norm"))
    else:  # an older torch
        for owner in (clip_grad, torch.nn.utils):
            _replace(owner, "clip_grad_norm_", partial(_watched_clip, "norm"))
    for owner in (clip_grad, torch.nn.utils):
        _replace(owner, "clip_grad_value_", partial(_watched_clip, "value"))
    for owner in (torch, torch.serialization):
        _replace(owner, "save", partial(_watched_phase, "checkpoint"))
    if torch.distributed.is_available():
        _replace(torch._C._distributed_c10d.Work, "wait", partial(_watched_phase, "collective"))
    for owner in (torch, torch.random):
        _replace(owner, "manual_seed", _watched_seed)
    _replace(gc, "freeze", _watched_freeze)
    for kind in vars(torch.optim.lr_scheduler).values():
        if isinstance(kind, type) and issubclass(kind, LRScheduler) and "step" in vars(kind):
            _replace(kind, "step", _watched_schedule)
    for handle in (register_optimizer_step_pre_hook(_before_step), register_optimizer_step_post_hook(_after_step)):
        _undo.append(handle.remove)


def watch_loggers() -> None:
    """Times those loggers, too, that have been imported since the last time."""
    with _lock:
        for place, methods in LOGGERS.items() if _listeners else ():
            kind = getattr(sys.modules.get(place[0]), place[1], None)
            if kind is None or place in _logged:
                continue
            _logged.add(place)
            _undo.append(partial(_logged.discard, place))
            for name in methods:
                if hasattr(kind, name):
                    _replace(kind, name, partial(_watched_phase, "logging"))


_TRAINER = ("transformers.trainer_callback", "CallbackHandler")


def watch_frameworks() -> None:
    """Listens to the Trainer of transformers, too, if it has been imported by now."""
    with _lock:
        kind = getattr(sys.modules.get(_TRAINER[0]), _TRAINER[1], None) if _listeners else None
        if kind is not None and _TRAINER not in _logged and hasattr(kind, "call_event"):
            _logged.add(_TRAINER)
            _undo.append(partial(_logged.discard, _TRAINER))
            _replace(kind, "call_event", _watched_event)


def _replace(
    owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]], *, scripted: str | None = None
) -> None:
    original = getattr(owner, name)
    watching: Any = wrapper(original)
    live = True

    @wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return watching(*args, **kwargs) if live else original(*args, **kwargs)

    frames: tuple[Any, ...] = (ours, watching)
    for frame in frames:
        frame.__code__ = frame.__code__.replace(co_filename=_UNCOUNTED)
    if scripted is not None:
        torch.jit._builtins._register_builtin(ours, scripted)
    setattr(owner, name, ours)

    def undo() -> None:
        nonlocal live
        live = False  # someone who patched after us keeps theirs, which calls ours: that is idle from now on
        if getattr(owner, name) is ours:
            setattr(owner, name, original)

    _undo.append(undo)


def _replace_module_call() -> None:
    """As `_replace`, with one frame less: this one is paid for by every module."""
    original: Any = nn.Module.__call__
    live = True

    @wraps(original)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if _is_compiling():
            return original(self, *args, **kwargs)
        inside = _inside
        if inside.module:
            if inside.follower is None or callable(_compiles()):  # what follows would be compiled, too
                return original(self, *args, **kwargs)
            inside.follower.module_starts(self)
            output = None
            try:
                output = original(self, *args, **kwargs)
                return output
            finally:
                inside.follower.module_ended(output)
        if not live or _is_tracing() is not None or inside_backward():  # a checkpoint's: it has been told of
            return original(self, *args, **kwargs)
        listeners = tuple(_listeners)
        inside.module = True
        try:
            for listener in listeners:
                listener.module_starts(self, args, kwargs)
            output = original(self, *args, **kwargs)
        except BaseException:
            for listener in listeners:
                listener.module_failed()
            raise
        finally:
            inside.module = False
            inside.follower = None
        for listener in listeners:
            listener.module_ended(self, output)
        return output

    ours: Any = __call__
    ours.__code__ = ours.__code__.replace(co_filename=_UNCOUNTED)
    with suppress(AttributeError, TypeError):  # `torch.compile` begins at the user's frames, and never at ours
        dynamo: Any = torch._C._dynamo.eval_frame
        only_ours = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT)
        dynamo.set_code_exec_strategy(ours.__code__, only_ours)
    owner: Any = nn.Module
    owner.__call__ = ours

    def undo() -> None:
        nonlocal live
        live = False
        if owner.__call__ is ours:
            owner.__call__ = original

    _undo.append(undo)


_is_compiling = torch.compiler.is_compiling
_compiles: Callable[[], Any] = torch._C._dynamo.eval_frame.get_eval_frame_callback
_is_tracing = torch._C._get_tracing_state  # TorchScript's


def _watched_engine(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not _listeners or _inside.muted or inside_backward():
            return original(roots, *args, **kwargs)
        if not kwargs.get("accumulate_grad", False):
            creates_graph = args[2] if len(args) > 2 else False
            if creates_graph:
                return original(roots, *args, **kwargs)
            for listener in tuple(_listeners):
                listener.gradients_start(roots)
            result = original(roots, *args, **kwargs)
            for listener in tuple(_listeners):
                listener.gradients_taken(roots)
            return result
        listeners = tuple(_listeners)
        for listener in listeners:
            listener.backward_starts(roots, bool(args[1]) if len(args) > 1 else False)
        began = perf_counter()
        try:
            result = original(roots, *args, **kwargs)
        except BaseException:
            for listener in listeners:
                listener.backward_failed()
            raise
        seconds = perf_counter() - began
        for listener in listeners:
            listener.backward_ended(roots, seconds)
        return result

    global engine  # noqa: PLW0603
    engine = run.__code__
    return run


def _watched_scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: GradScaler, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if not torch.compiler.is_compiling() and self.is_enabled() and not _inside.muted:
            for listener in tuple(_listeners):
                listener.loss_scaled(self, outputs, scaled)
        return scaled

    return scale


def _watched_scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and self.is_enabled():
            for listener in tuple(_listeners):
                listener.scaler_steps(self, optimizer)
        return original(self, optimizer, *args, **kwargs)

    return step


def _watched_next(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any) -> Any:
        if not _listeners or _inside.muted:
            return original(self)
        over = True
        try:
            batch = _in_phase("data", original, self)
            over = False
        finally:
            source = _number_of(getattr(self, "_dataset", None))
            for listener in tuple(_listeners):
                listener.data_waited(source, over)
        _tell("data_came", batch, self)
        return batch

    return step


_numbers: dict[int, tuple[weakref.ref[Any], int]] = {}  # by the id of a data set
_number = count()


def _number_of(dataset: Any) -> int:
    """A number that only this data set has ever had: its id is soon another one's. One that cannot be referred to
    weakly (a list) goes by its id, below 0."""
    known = _numbers.get(id(dataset))
    if known is not None and known[0]() is dataset:
        return known[1]
    try:
        reference = weakref.ref(dataset)
    except TypeError:
        return -id(dataset)
    for gone in [at for at, (other, _) in _numbers.items() if other() is None]:
        del _numbers[gone]
    return _numbers.setdefault(id(dataset), (reference, next(_number)))[1]


def _in_phase(phase: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls, and says what the loop does meanwhile."""
    if _inside.phase:
        return original(*args, **kwargs)
    _inside.phase = True
    try:
        for listener in tuple(_listeners):
            listener.turns(phase)
        return original(*args, **kwargs)
    finally:
        _inside.phase = False
        for listener in tuple(_listeners):
            listener.turned(phase)


def _watched_phase(phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if _inside.muted else _in_phase(phase, original, *args, **kwargs)

    return run


def _tell(what: str, *args: Any) -> None:
    if not torch.compiler.is_compiling() and not _inside.muted:
        for listener in tuple(_listeners):
            listener.happens(what, *args)


def _watched_zero_grad(original: Callable[..., Any]) -> Callable[..., Any]:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(self, "optimizer", None)  # Lightning's wrappers clear by themselves what they wrap
        _tell("cleared", inner if isinstance(self, Optimizer) and isinstance(inner, Optimizer) else self)
        return original(self, *args, **kwargs)

    return zero_grad


_LIMITS = {"norm": "max_norm", "value": "clip_value"}
"""What the limit of each kind of clipping is called."""


def _watched_clip(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.pop("parameters", None)  # an iterator can be gone through once
        if not isinstance(given, torch.Tensor) and isinstance(given, Iterable):
            given = list(given)
        held = [given] if isinstance(given, torch.Tensor) else given
        _tell("clips")
        result = original(given, *args[1:], **kwargs)
        with suppress(TypeError, ValueError, IndexError, KeyError):
            _tell("clipped", held, float(args[1] if len(args) > 1 else kwargs[_LIMITS[kind]]), kind)
        return result

    return clip


def _watched_event(original: Callable[..., Any]) -> Callable[..., Any]:
    def call_event(self: Any, event: str, args: Any, *others: Any, **kwargs: Any) -> Any:
        evaluates = _evaluating.setdefault(self, _Evaluates())
        if event == "on_pre_optimizer_step":
            _tell("steps_in", {"framework": "transformers", "hides_bad_losses": _hides(args)})
        elif event in ("on_train_begin", "on_train_end"):
            evaluates.trains = event == "on_train_begin"
        elif event in ("on_evaluate", "on_predict"):
            loss = evaluates.loss(kwargs.get("metrics"), args) if event == "on_evaluate" else None
            for listener in () if _inside.muted else tuple(_listeners):
                listener.evaluated(getattr(self, "model", None), loss)
        return original(self, event, args, *others, **kwargs)

    return call_event


def _hides(args: Any) -> bool:
    """Whether a loss that is not finite is left out of what is logged."""
    return bool(getattr(args, "logging_nan_inf_filter", False))


class _Evaluates:
    """What is known of one Trainer's evaluations."""

    trains = True
    """Whether it trains: a test set comes afterwards, and so does the best model of all."""
    data: str | None = None
    """The data set whose loss is the validation loss, as the prefix of its metrics."""

    def loss(self, metrics: Any, args: Any) -> float | None:
        """The validation loss, if it is among these metrics: of several data sets that by which the best model is
        chosen, or else the first."""
        if not isinstance(metrics, dict) or not self.trains:
            return None
        prefix = next((name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime")), "eval")
        best = str(getattr(args, "metric_for_best_model", None) or "").removeprefix("eval_")
        if prefix != "eval" and best:
            self.data = prefix if f"eval_{best}" in metrics else self.data
        elif self.data is None and prefix.partition("_")[0] == "eval":
            self.data = prefix
        loss = metrics.get(f"{prefix}_loss")
        return loss if self.data == prefix and isinstance(loss, float) else None


_evaluating: weakref.WeakKeyDictionary[Any, _Evaluates] = weakref.WeakKeyDictionary()
"""By the `CallbackHandler` of each Trainer."""


def _watched_seed(original: Callable[..., Any]) -> Callable[..., Any]:
    def manual_seed(seed: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(seed, *args, **kwargs)
        _tell("seeded", seed)
        return result

    return manual_seed


def _watched_freeze(original: Callable[..., Any]) -> Callable[..., Any]:
    def freeze() -> None:
        living.note((Tensor, nn.Module, Optimizer, LRScheduler))
        original()

    return freeze


def _watched_unscale(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale_(self: GradScaler, optimizer: Optimizer) -> Any:
        result = original(self, optimizer)
        if self.is_enabled():
            _tell("unscaled", optimizer)
        return result

    return unscale_


def _watched_schedule(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _inside.schedules:  # by one that steps others
            return original(self, *args, **kwargs)
        if not _is_built(self):  # the first step, made by its constructor
            places.note_maker(self)
            return original(self, *args, **kwargs)
        _inside.schedules = True
        try:
            result = original(self, *args, **kwargs)
        finally:
            _inside.schedules = False
        _tell("scheduled", self)
        return result

    return step


def _is_built(scheduler: Any) -> bool:
    """Whether its constructor is through: `_initial_step` leaves the count at 1, later steps find it there."""
    return bool(getattr(scheduler, "_step_count", 1) >= 1)


def _watched_loss(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or _inside.muted:
            return original(*args, **kwargs)
        try:
            output = original(*args, **kwargs)
        except Exception as error:
            for listener in tuple(_listeners):
                listener.loss_failed(name, args, error)
            raise
        for listener in tuple(_listeners):
            listener.loss_computed(name, output, args)
        return output

    return loss


def _before_step(
    optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    if torch.compiler.is_compiling():
        return None
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    stand_in: Optimizer | None = None
    for listener in tuple(_listeners):
        stand_in = listener.step_starts(optimizer, callable(closure)) or stand_in
    return None if stand_in is None else ((stand_in, *args[1:]), kwargs)


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if torch.compiler.is_compiling():
        return
    for listener in tuple(_listeners):
        listener.step_ended(optimizer)
