"""Finds every training of a process by itself, and watches each as a run of its own."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from inspect import CO_OPTIMIZED
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd import patches
from seismograd.memory.exhaustion import is_out_of_memory
from seismograd.onlookers.weights.history import has_no_history
from seismograd.run.discovery import Found, discover, held_by, leaves_of
from seismograd.stats.tensors import there

if TYPE_CHECKING:  # what watches is only imported when a training begins
    from seismograd.loop import Loop
    from seismograd.replay.recorder import Recorder
    from seismograd.training import TrainingDebugger

P = ParamSpec("P")

_FREE = 1.0
_SHARE = 0.02
"""Looking for trainings may take a second, and this share of the time that passes."""

_MOST = 500
"""So many trainings of one process are watched; each keeps what was found."""

_BEFORE = 8
"""So many calls of modules are remembered before the first backward pass of a training."""

_WITHOUT_BACKWARD = 200
"""After so many calls of modules without a backward pass no more are recorded, until there is one."""

_SAMPLED = 8
"""Of so many weights from either end a few elements are kept, to see whether a training begins again where it began."""

_BEGUN = 4
"""After so many steps some weight has moved, though the first few have no learning rate yet."""

_FRUITLESS = 3
"""So many steps of an optimizer that has no gradient at all, each after a backward: what it trains is watched."""

_CLEARED = 4
"""So often an optimizer that does not step clears gradients: it belongs to what is trained."""

_UNANSWERED = 64
"""So many backwards without a step of ours: another training may be going on."""


class Training:
    """One training: its debugger, and weak references to what it trains.

    It is *open* while a loop watches it, which holds its models. It *rests* when it is over, or when another training
    begins: then nothing of the user's is held, and it can be opened again.
    """

    def __init__(self, debugger: TrainingDebugger, found: Found) -> None:
        self.debugger = debugger
        self.loop: Loop | None = None
        self.step = -1
        self.began_after: Training | None = None
        """The training that rested when this one began."""
        self.serial_before = -1
        """The loop's newest backward when the present one began."""
        self.unanswered = 0
        """Backwards since the last step."""
        self.minded: list[weakref.ref[Optimizer]] = []
        self._models: dict[str, weakref.ref[nn.Module]] = {}
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._loose: list[weakref.ref[Tensor]] = []
        self._parameters: dict[int, weakref.ref[Tensor]] = {}
        self._began_with: list[tuple[weakref.ref[Tensor], _Few]] = []
        from seismograd.probes.validation import Evaluations

        self._evaluations = Evaluations(patches.LOSSES)
        self.include(found.models, found.optimizers, found.loose)

    @property
    def models(self) -> dict[str, nn.Module]:
        found = {name: reference() for name, reference in self._models.items()}
        return {name: model for name, model in found.items() if model is not None}

    @property
    def optimizers(self) -> list[Optimizer]:
        return [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]

    @property
    def loose(self) -> list[Tensor]:
        return [tensor for reference in self._loose if (tensor := reference()) is not None]

    def include(
        self, models: Mapping[str, nn.Module], optimizers: Iterable[Optimizer], loose: Iterable[Tensor] = ()
    ) -> None:
        """Belongs to this training too, from now on."""
        known = [id(model) for model in self.models.values()]
        for name, model in models.items():
            if id(model) not in known:
                self._models[self._free(name or type(model).__name__) if self._models else name] = weakref.ref(model)
        self._optimizers += [
            weakref.ref(optimizer) for optimizer in optimizers if not any(optimizer is one for one in self.optimizers)
        ]
        self._loose += [weakref.ref(tensor) for tensor in loose]
        self.learn()

    def _free(self, name: str) -> str:
        number, free = 2, name
        while free in self._models:
            free, number = f"{name}{number}", number + 1
        return free

    def learn(self) -> None:
        """Notes which parameters are this training's."""
        found = Found(self.models, self.optimizers, self.loose)
        self._parameters = {id(parameter): weakref.ref(parameter) for parameter in found.parameters()}

    def covers(self, parameters: Iterable[Tensor]) -> bool:
        """Whether any of these is this training's, and it goes on with them."""
        if self.loop is None and not self.optimizers and self._is_put_back():
            self._parameters = {}
        for parameter in parameters:
            reference = self._parameters.get(id(parameter))
            if reference is not None and reference() is parameter:
                return True
        return self.loop is not None and self.loop.covers(parameters)

    def _is_put_back(self) -> bool:
        """Whether the weights have been made what they were before this training (Lightning's `lr_find` does): what
        begins with them and an optimizer of its own is another training."""
        if self.step < _BEGUN or not self._began_with:
            return False
        now = [(reference(), then) for reference, then in self._began_with]
        return all(tensor is not None and there(tensor) and _few(tensor) == then for tensor, then in now)

    def _sample(self) -> list[tuple[weakref.ref[Tensor], _Few]]:
        """A few elements of some of the weights that are trained."""
        held = [tensor for reference in self._parameters.values() if (tensor := reference()) is not None]
        plain = [tensor for tensor in held if type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided]
        trained = [t for t in plain if t.requires_grad and t.numel() and t.is_contiguous() and not t.is_meta]
        trained = [t for t in trained if there(t)]
        ends = [*trained[:_SAMPLED], *trained[_SAMPLED:][-_SAMPLED:]]
        return [(weakref.ref(tensor), _few(tensor)) for tensor in ends]

    def open(self, recorder: Recorder | None = None) -> Loop:
        from seismograd import attach

        models = self.models
        if not self._began_with:
            self._began_with = self._sample()
        self.loop = attach.loop_for(
            self.debugger,
            models,
            self.optimizers or None,
            lag=attach.check_lag(None, models),
            loose=self.loose,
            newest_step=self.step,
            evaluations=self._evaluations,
            replay=self.debugger.replays,
            recorder=recorder,
        )
        self.debugger._loop = self.loop
        return self.loop

    def rest(self) -> None:
        """Lets go of everything that is the user's."""
        if self.loop is not None:
            loop, self.loop = self.loop, None
            self.learn()
            loop.close()
            self.step = loop.step

    def take_over(self, other: Training) -> None:
        """What seemed another training turns out to be part of this one."""
        self.include(other.models, other.optimizers, other.loose)
        self.step += max(0, other.step)
        for finding in other.debugger.findings:
            self.debugger._judge.add(finding)


def _guarded(method: Callable[Concatenate[Scout, P], None]) -> Callable[Concatenate[Scout, P], None]:
    """No error of the scout's reaches the script."""

    @wraps(method)
    def run(self: Scout, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._closed:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._fail("finding what trains", error)

    return run  # type: ignore[return-value]


class Scout:
    """Listens for all trainings of the process, and tells each of its own events.

    A training is met at a backward pass whose leaves no other training has, or at the step of an optimizer that nobody
    knows. It is taken for another run than the one before it. If that one goes on later, the two were one all along:
    a GAN whose halves take turns, a policy and its critic.
    """

    def __init__(
        self,
        new_run: Callable[[], TrainingDebugger],
        *,
        fail: Callable[[str, Exception], None],
        stop_if_wanted: Callable[[], None],
        replay: bool = True,
        preflight: bool = False,
    ) -> None:
        self._replay = replay
        self._preflight = preflight
        self._first_loss: dict[int, tuple[str, Any, tuple[Any, ...]]] = {}  # by thread, for the preflight
        self._recorders: dict[int, Recorder] = {}  # by thread, before the first backward of a training
        self.trainings: list[Training] = []
        self.backwards = 0
        """How many backward passes were heard of."""
        self.unwatched = 0
        """How many trainings there was no time to look for."""
        self._new_run, self._fail = new_run, fail
        self._stop_if_wanted = stop_if_wanted
        self._active: dict[int, Training] = {}  # by thread
        self._scaled: dict[int, list[Callable[[], Any]]] = {}  # by thread, as what comes next
        self._computed: dict[int, list[Callable[[], Any]]] = {}
        self._source: dict[int, int] = {}
        self._scheduled: dict[int, deque[weakref.ref[Any]]] = {}
        self._strange: list[weakref.ref[Tensor]] = []  # the leaves of the last backward that was nobody's
        self._over: list[Training] = []
        self._refused: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._cleared: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._fruitless: weakref.WeakKeyDictionary[Optimizer, list[int]] = weakref.WeakKeyDictionary()
        self._spent, self._began = 0.0, perf_counter()
        self._closed = False
        if replay:
            self._recorder().arm()
        patches.listen(self)

    # -- events --------------------------------------------------------------------------------------------------

    @_guarded
    def backward_starts(self, roots: Sequence[Any], keeps_graph: bool) -> None:
        self._stop_if_wanted()
        self.backwards += 1
        self._finish_those_over()
        training = self._active.get(get_ident())
        if training is None:
            known = len(self.trainings)
            training = self._meet(roots)
            if self._preflight and training is not None and len(self.trainings) > known:
                self._check_before(training, roots)
        self._first_loss.pop(get_ident(), None)
        self._computed.pop(get_ident(), None)
        self._scaled.pop(get_ident(), None)
        if training is not None and training.loop is not None:
            training.serial_before = training.loop.serial
            training.loop.backward_starts(roots, keeps_graph)

    @_guarded
    def backward_ended(self, roots: Sequence[Any], seconds: float) -> None:
        training = self._active.get(get_ident())
        if training is None or training.loop is None:
            return
        loop = training.loop
        loop.backward_ended(roots, seconds)
        training.unanswered += 1
        if loop.asleep:
            if training.unanswered > _UNANSWERED:
                training.unanswered = 0
                self._look_at(roots, training)
        elif loop.serial == training.serial_before and not loop.in_closure:
            self._look_at(roots, training)

    @_guarded
    def backward_failed(self) -> None:
        if (loop := self._loop()) is not None:
            loop.backward_failed()

    @_guarded
    def gradients_start(self, roots: Sequence[Any]) -> None:
        if (loop := self._loop()) is not None:
            loop.gradients_start(roots)

    @_guarded
    def gradients_taken(self, roots: Sequence[Any]) -> None:
        self.backwards += 1
        if (loop := self._loop()) is not None:
            loop.gradients_taken(roots)

    @_guarded
    def step_starts(self, optimizer: Optimizer, has_closure: bool) -> None:
        if (loop := self._loop_of(optimizer, has_closure)) is not None:
            loop.step_starts(optimizer, has_closure)

    def step_ended(self, optimizer: Optimizer) -> None:
        if not self._closed and (loop := self._loop()) is not None:
            loop.step_ended(optimizer)
        self._stop_if_wanted()

    @_guarded
    def loss_scaled(self, scaler: Any, loss: Any, scaled: Any) -> None:
        if (loop := self._loop()) is not None:
            loop.loss_scaled(scaler, loss, scaled)
        else:
            self._scaled[get_ident()] = _weakly((scaler, loss, scaled))

    @_guarded
    def scaler_steps(self, scaler: Any, optimizer: Optimizer) -> None:
        inner = getattr(optimizer, "optimizer", optimizer)
        if isinstance(inner, Optimizer) and (loop := self._loop_of(inner)) is not None:
            loop.scaler_steps(scaler, optimizer)

    def module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if (loop := self._loop()) is not None:
            loop.module_starts(module, args, kwargs)
        elif self._replay and torch.is_grad_enabled():
            self._record(module, args, kwargs)

    @_guarded
    def _record(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Nothing is known to train on this thread yet: the first step of a training begins like this."""
        recorder = self._recorder()
        recorder.calls_seen += 1
        if recorder.calls_seen > _WITHOUT_BACKWARD:  # nothing is trained here
            recorder.close()
            return
        with torch.no_grad():
            recorder.module_starts(module, args, kwargs, True)

    def _recorder(self) -> Recorder:
        recorder = self._recorders.get(get_ident())
        if recorder is None:
            from seismograd.replay.recorder import Recorder

            recorder = self._recorders[get_ident()] = Recorder(_BEFORE)
        return recorder

    @_guarded
    def module_ended(self, module: nn.Module, output: Any) -> None:
        if (loop := self._loop()) is not None:
            loop.module_ended(module, output)
        elif (recorder := self._recorders.get(get_ident())) is not None:
            with torch.no_grad():
                recorder.module_ended(output)

    @_guarded
    def module_failed(self) -> None:
        if (loop := self._loop()) is not None:
            loop.module_failed()
        elif (recorder := self._recorders.get(get_ident())) is not None:
            recorder.module_failed()

    def turns(self, phase: str) -> None:
        if (loop := self._loop()) is not None:
            loop.turns(phase)

    def turned(self, phase: str) -> None:
        if (loop := self._loop()) is not None:
            loop.turned(phase)

    def data_waited(self, source: int, over: bool) -> None:
        if (loop := self._loop()) is not None:
            loop.data_waited(source, over)
        elif not over:
            self._source[get_ident()] = source

    def loss_computed(self, name: str, output: Any, args: tuple[Any, ...]) -> None:
        if (loop := self._loop()) is not None:
            loop.loss_computed(name, output, args)
        elif torch.is_grad_enabled() and getattr(output, "requires_grad", False):
            self._computed[get_ident()] = _weakly((name, output, None, *args[1:]))
            if self._preflight:
                self._first_loss[get_ident()] = (name, output, args)

    @_guarded
    def loss_failed(self, name: str, args: tuple[Any, ...], error: Exception) -> None:
        """The script may end here, before its first backward pass: what it was about to train is met now."""
        if self._loop() is None and torch.is_grad_enabled():
            self._meet(args[:1])
        if (loop := self._loop()) is not None:
            loop.loss_failed(name, args, error)

    @_guarded
    def failed(self, error: Exception) -> None:
        """The script ends with this error. Memory often runs out before the first backward pass, and that of a loss
        without a history is nobody's: what was about to be trained is met now."""
        told = is_out_of_memory(error) or has_no_history(error)
        if self._loop() is None and told and (parameters := _at_work(error)):
            try:
                self._begin(parameters)
            except MemoryError:  # for us, too: the script is over, what its frames hold is not needed any more
                _clear(error)
                self._begin(parameters)
        if (loop := self._loop()) is not None:
            loop.failed(error)

    def evaluated(self, model: Any, loss: float | None) -> None:
        if (loop := self._loop()) is not None:
            loop.evaluated(model, loss)

    def happens(self, what: str, *args: Any) -> None:
        if (loop := self._loop()) is not None:
            loop.happens(what, *args)
            if what == "cleared" and not isinstance(args[0], nn.Module):
                self._note_cleared(args[0])
        elif what == "scheduled":  # before the first backward: maybe too early
            self._scheduled.setdefault(get_ident(), deque(maxlen=_BEFORE)).append(weakref.ref(args[0]))

    def covers(self, parameters: Iterable[Tensor]) -> bool:
        return any(training.covers(parameters) for training in self.trainings)

    def idle(self) -> None:
        """This is a forked child: what it trains is not ours."""
        self._closed = True
        self._forget_calls()
        for training in self.trainings:
            if training.loop is not None:
                training.loop.idle()

    def _forget_calls(self) -> None:
        while self._recorders:
            self._recorders.popitem()[1].close()

    def close(self) -> None:
        """Ends every watch and takes every patch away."""
        self._closed = True
        patches.forget(self)
        self._forget_calls()
        for training in self.trainings:
            training.rest()
        self._active.clear()

    def _loop(self) -> Loop | None:
        training = self._active.get(get_ident())
        return None if training is None else training.loop

    # -- who is it -----------------------------------------------------------------------------------------------

    def _meet(self, roots: Sequence[Any]) -> Training | None:
        """Nothing is watched on this thread: whose backward is this?"""
        leaves = self._leaves(roots)
        if not leaves or self._watched_by_user(leaves):
            return None
        for training in self.trainings:
            if training.covers(leaves):
                return self._go_on(training, leaves)
        return self._begin(leaves)

    @_guarded
    def _check_before(self, training: Training, roots: Sequence[Any]) -> None:
        """The first backward pass of a training: what can be checked on its batch is checked, and put back."""
        from seismograd.preflight.running import check_first

        assert training.loop is not None
        calls = training.loop.recorded
        loss = self._first_loss.get(get_ident())
        check_first(training.debugger, training.models, training.optimizers, roots=roots, calls=calls, loss=loss)

    def _look_at(self, roots: Sequence[Any], current: Training) -> None:
        """A backward that changed nothing of the current training's: whose was it?"""
        leaves = self._leaves(roots)
        if not leaves or current.covers(leaves) or self._watched_by_user(leaves):
            return
        for training in self.trainings:
            if training.covers(leaves):
                self._go_on(training, leaves)
                return
        self._begin(leaves, current)

    def _leaves(self, roots: Sequence[Any]) -> list[Tensor]:
        """The leaves of a graph; none where too much time went into looking already."""
        now = perf_counter()
        if self._spent > _FREE + _SHARE * (now - self._began):
            return []
        leaves = leaves_of(roots)
        self._spent += perf_counter() - now
        return leaves

    def _loop_of(self, optimizer: Optimizer, has_closure: bool = False) -> Loop | None:
        """The loop that this optimizer's step belongs to; maybe a new one."""
        current = self._active.get(get_ident())
        if current is not None and current.loop is not None and current.loop.holds(optimizer):
            current.unanswered = 0
            return current.loop
        if patches.inside_backward() or torch.compiler.is_compiling():
            return None
        parameters = held_by(optimizer)
        for training in self.trainings:
            if training is not current and training.covers(parameters):
                return self._go_on(training).loop
        if self._watched_by_user(parameters):
            return None
        if not has_closure and all(parameter.grad is None for parameter in parameters):
            if not self._is_fruitless(optimizer):
                return None
            if current is not None and current.loop is not None and current.unanswered < _FRUITLESS:
                return self._join(current, optimizer)
        if current is not None and current.loop is not None and current.loop.awaits_step:
            return self._join(current, optimizer)
        begun = self._begin([], current, optimizer)
        return None if begun is None else begun.loop

    @_guarded
    def _note_cleared(self, optimizer: Optimizer) -> None:
        """One that nobody has seen stepping clears gradients, again and again: its step may be what is missing."""
        current = self._active.get(get_ident())
        if current is None or current.loop is None or any(each is optimizer for each in current.loop.optimizers):
            return
        parameters = held_by(optimizer)
        ours = {id(parameter) for each in current.loop.optimizers for parameter in held_by(each)}
        if any(id(p) in ours for p in parameters) or all(p.grad is None for p in parameters):
            return
        others = any(each is not current and each.covers(parameters) for each in self.trainings)
        if others or self._watched_by_user(parameters):
            return
        self._cleared[optimizer] = self._cleared.get(optimizer, 0) + 1
        if self._cleared[optimizer] == _CLEARED:
            self._join(current, optimizer)

    def _is_fruitless(self, optimizer: Optimizer) -> bool:
        """Whether it has stepped several times after backwards that gave it nothing: its loss may be cut off."""
        known = self._fruitless.setdefault(optimizer, [0, 0])
        if self.backwards > known[1]:
            known[:] = [known[0] + 1, self.backwards]
        return known[0] >= _FRUITLESS

    def _watched_by_user(self, parameters: Sequence[Tensor]) -> bool:
        """Whether the script watches them with `sg.watch` itself."""
        return any(other is not self and other.covers(parameters) for other in patches.listeners())

    def _begin(
        self, leaves: Sequence[Tensor], current: Training | None = None, optimizer: Optimizer | None = None
    ) -> Training | None:
        """A training that nobody knew, if it can be afforded to look for it."""
        now = perf_counter()
        bare = optimizer is None and not any(isinstance(leaf, nn.Parameter) for leaf in leaves)
        if bare and not self._met_twice(leaves):
            return None
        if len(self.trainings) >= _MOST or self._spent > _FREE + _SHARE * (now - self._began):
            if optimizer is not None and optimizer not in self._refused:
                self._refused.add(optimizer)
                self.unwatched += 1
            return None
        found = discover(leaves, optimizer)
        self._spent += perf_counter() - now
        training = Training(self._new_run(), found)
        if bare and not found.optimizers:
            training.step = 0  # the step that they were first met at
        training.began_after = current
        if current is not None:
            current.rest()
        self.trainings.append(training)
        self._activate(training)
        return training

    def _met_twice(self, leaves: Sequence[Tensor]) -> bool:
        """Bare tensors are trained if they come again; otherwise they are inputs that someone wants a gradient of."""
        before = [reference() for reference in self._strange]
        self._strange = [weakref.ref(leaf) for leaf in leaves]
        return len(before) == len(leaves) and all(old is new for old, new in zip(before, leaves, strict=True))

    def _go_on(self, training: Training, leaves: Sequence[Tensor] = ()) -> Training:
        """A training that rested goes on. What began after it, and is not over, was part of it all along."""
        current = self._active.get(get_ident())
        if current is training:
            return training
        if leaves and not training.optimizers:  # the one before is gone: there will be another
            now = perf_counter()
            found = discover(leaves)
            self._spent += perf_counter() - now
            training.include(found.models, found.optimizers)
        while current is not None and current is not training and self._is_after(current, training):
            current.rest()
            earlier = current.began_after
            training.take_over(current)
            self.trainings.remove(current)
            current = earlier
        if current is not None and current is not training:
            current.rest()
        self._activate(training)
        return training

    def _is_after(self, later: Training, earlier: Training) -> bool:
        before = later.began_after
        while before is not None:
            if before is earlier:
                return True
            before = before.began_after
        return False

    def _join(self, training: Training, optimizer: Optimizer) -> Loop | None:
        """The backward before this step went through the current training too: the two belong together."""
        found = discover([], optimizer)
        loop = training.loop
        assert loop is not None
        known = [id(model) for model in training.models.values()]
        fresh = {name: model for name, model in found.models.items() if id(model) not in known}
        training.include(fresh, [optimizer])
        loop.join({name: model for name, model in training.models.items() if id(model) not in known}, optimizer)
        self._mind(training, [optimizer])
        return loop

    def _activate(self, training: Training) -> None:
        recorder = self._recorders.pop(get_ident(), None)
        if recorder is not None:
            recorder.on = True
        loop = training.loop or training.open(recorder)
        patches.watch_frameworks()
        self._active[get_ident()] = training
        self._mind(training, training.optimizers)
        if (source := self._source.pop(get_ident(), None)) is not None:
            loop.data_waited(source, False)
        if (computed := _strongly(self._computed.pop(get_ident(), []))) is not None:
            name, output, *args = computed
            loop.loss_computed(name, output, tuple(args))
        if (scaled := _strongly(self._scaled.pop(get_ident(), []))) is not None:
            loop.loss_scaled(*scaled)
        for reference in self._scheduled.pop(get_ident(), ()):
            if (scheduler := reference()) is not None:
                loop.happens("scheduled", scheduler)

    # -- when it is over -----------------------------------------------------------------------------------------

    def _mind(self, training: Training, optimizers: Iterable[Optimizer]) -> None:
        """When the user lets go of the last optimizer, the training is over, and nothing of it is held any more."""
        scout = weakref.ref(self)

        def gone(_: Any) -> None:
            this = scout()
            if this is None or this._closed or training.loop is None or training.optimizers:
                return
            this._over.append(training)
            if not torch.compiler.is_compiling() and not patches.inside_backward() and not training.loop.busy:
                this._finish_those_over()

        training.minded = [weakref.ref(optimizer, gone) for optimizer in optimizers]

    @_guarded
    def _finish_those_over(self) -> None:
        while self._over:
            training = self._over.pop()
            if training.optimizers:
                continue
            training.rest()
            for thread in [thread for thread, other in self._active.items() if other is training]:
                del self._active[thread]


def _at_work(error: Exception) -> list[Tensor]:
    """The parameters of the outermost model that the error came through, else of one that its frames know."""
    trace, itself, known = error.__traceback__, None, None
    while trace is not None and itself is None:
        frame = trace.tb_frame
        held = frame.f_locals
        itself = _parameters_of(held.get("self"))
        known = known or next(filter(None, map(_parameters_of, held.values())), None)
        if frame.f_code.co_flags & CO_OPTIMIZED and type(held) is dict:
            held.clear()  # a copy, which the frame would keep even where it is cleared
        trace = trace.tb_next
    return itself or known or []


def _clear(error: Exception) -> None:
    """Lets go of what the frames hold that the error came through, ours among them, which its traceback leaves out."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    frame = None if trace is None else trace.tb_frame
    while frame is not None:
        with suppress(RuntimeError):  # it is at work
            frame.clear()
        frame = frame.f_back


def _parameters_of(value: Any) -> list[Tensor] | None:
    return (list(value.parameters()) or None) if isinstance(value, nn.Module) else None


_Few = tuple[torch.device, torch.dtype, bytes]


def _few(tensor: Tensor) -> _Few:
    """Some elements from all over it; not as a tensor, since scripts count those that are left."""
    flat = tensor.detach().view(-1)
    some = flat[:: max(1, len(flat) // 64)].contiguous().cpu()
    return tensor.device, tensor.dtype, some.view(torch.uint8).numpy().tobytes()


def _weakly(values: Iterable[Any]) -> list[Callable[[], Any]]:
    """Ways to get the values again, which keep no tensor alive."""
    return [weakref.ref(value) if isinstance(value, Tensor) else partial(_same, value) for value in values]


def _strongly(references: Sequence[Callable[[], Any]]) -> list[Any] | None:
    """The values again, if there were any and all tensors among them are still there."""
    values = [reference() for reference in references]
    gone = any(isinstance(reference, weakref.ref) and reference() is None for reference in references)
    return values if values and not gone else None


def _same(value: Any) -> Any:
    return value
