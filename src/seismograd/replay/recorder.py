"""Keeps references to what a step was made of, so that it can be run again should it turn out bad."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from seismograd.places import Spot, chain
from seismograd.replay.glue import Glue
from seismograd.replay.lines import Lines
from seismograd.replay.numbers import tensors_in
from seismograd.replay.surroundings import Autocast, Randomness, differ, generators_of

MOST_BYTES = 256 * 2**20
"""So much may be kept alive of one step's outputs, and of the gradients that arrived at them."""

_MOST_OF_GLUE = 64 * 2**20
"""So much is kept, for all of a step, of what autograd frees in backward."""

_MOST_CALLS = 64
"""Of one step: of a cell that the user's own loop calls more often, only the last calls are kept."""

_SMALL = 4 * 2**20
"""Buffers up to this size, all together, are copied before a forward pass that may change them."""

_LEARNS = 4
"""After so many calls it is known whether a module draws from Python's and NumPy's random numbers."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Output:
    """One tensor that came out of a call, where it stands in the output, and what arrived there in backward."""

    path: str
    tensor: Tensor | None
    number: int = 0
    """Which of its node's outputs it is."""
    arrived: list[Tensor] = field(default_factory=list)
    """The gradients that came to it, one for each backward pass: the first, and the last two."""
    reached: bool = False
    counted: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class Call:
    """One call of an outermost module: everything that is needed to make it again."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]
    randomness: Randomness
    autocast: Autocast
    training: list[bool]
    buffers: list[tuple[Tensor, Tensor]]
    spots: tuple[Spot, ...]
    """The user's frames that made the call, the deepest first."""
    ours: bool
    """Whether it holds parameters that are under watch; the others are losses, and models that are not trained."""
    outputs: list[Output] = field(default_factory=list)
    age: int = 0
    size: int = 0
    """In bytes, of what it keeps alive."""
    backward: int = -1
    """The number, within the step, of the backward pass that first went through it."""

    @property
    def spot(self) -> Spot | None:
        return self.spots[0] if self.spots else None

    def changed(self) -> bool:
        """Whether an input was changed in place since."""
        return any(not tensor.is_inference() and tensor._version != version for tensor, version in self.versions)


@dataclass(slots=True)
class Step:
    """What one step was made of: the calls of modules, and a graph for each backward pass."""

    calls: list[Call] = field(default_factory=list)
    glues: list[Glue] = field(default_factory=list)
    taken: Glue | None = None
    """That of the last `autograd.grad`."""
    dropped: int = 0
    """Backward passes that are no longer kept."""


class _Habits:
    """What is known of a module from its calls so far."""

    __slots__ = ("buffers", "calls", "changing", "generators", "module", "modules", "numpy", "python")

    def __init__(self, module: nn.Module) -> None:
        self.module = weakref.ref(module)
        modules = list(module.modules())
        self.modules = [weakref.ref(each) for each in modules]
        self.generators = generators_of(modules)
        self.calls = 0
        self.python = self.numpy = True
        self.buffers = [
            buffer
            for buffer in module.buffers()
            if not (isinstance(buffer, UninitializedTensorMixin) or buffer.is_meta or buffer.is_inference())
        ]
        small = sum(buffer.numel() * buffer.element_size() for buffer in self.buffers) <= _SMALL
        self.changing: list[Tensor] = self.buffers if small else []


class Recorder:
    """Records the calls of one step and what lies between them and the loss. A step that is over is forgotten."""

    def __init__(self, most: int = _MOST_CALLS) -> None:
        self._most = most
        self._mark = f"seismograd {id(self)}"  # under this name the node that made an output knows its call
        self.on = True
        """Whether the present step is recorded."""
        self.keeps_statistics = False
        """Whether running statistics are kept, too: a second run does not need them, who undoes a step does."""
        self.calls_seen = 0
        """By whoever waits for a training to begin."""
        self.step = Step()
        self.before = Step()
        """The step before, where that is kept."""
        self._bytes = self._glue_bytes = 0
        self.lines = Lines()
        self._habits: dict[int, _Habits] = {}
        self._open: tuple[Call, _Habits, list[int]] | None = None

    # -- modules -------------------------------------------------------------------------------------------------

    def module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], ours: bool) -> None:
        self.lines.disarm()
        self._open = None
        if not self.on:
            return
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            return  # a checkpoint calls it: what it saves on purpose is not to be kept by us
        if len(self.step.calls) >= self._most:
            self._bytes -= self.step.calls.pop(0).size
        habits = self._habits.get(id(module))
        if habits is None or habits.module() is not module:
            if len(self._habits) > 1000:
                self._habits.clear()
            habits = self._habits[id(module)] = _Habits(module)
        given = [tensor for _, tensor in tensors_in((args, kwargs))]
        size = sum(tensor.numel() * tensor.element_size() for tensor in given if tensor.layout == torch.strided)
        while self._bytes + size > MOST_BYTES and self.step.calls:
            self._bytes -= self.step.calls.pop(0).size
        self._bytes += size
        args, kwargs = tuple(_kept(value) for value in args), {name: _kept(value) for name, value in kwargs.items()}
        call = Call(
            module,
            args,
            kwargs,
            [(tensor, -1 if tensor.is_inference() else tensor._version) for tensor in given],
            Randomness.now(habits.python, habits.numpy, habits.generators),
            Autocast.now(),
            [bool(each.training) for ref in habits.modules if (each := ref()) is not None],
            [(buffer, buffer.detach().clone()) for buffer in habits.changing],
            chain(sys._getframe(1)),
            ours,
            size=size,
        )
        self._open = (call, habits, [buffer._version for buffer in habits.buffers])

    def module_ended(self, output: Any) -> None:
        if self._open is not None:
            (call, habits, versions), self._open = self._open, None
            self._learn(call, habits, versions)
            for path, tensor in tensors_in(output, "output"):
                if not tensor.requires_grad or tensor.grad_fn is None:
                    call.outputs.append(Output(path, self._afford(tensor.detach(), call)))
                    continue
                one = Output(path, self._afford(tensor.detach(), call), tensor.output_nr)
                call.outputs.append(one)
                node: Any = tensor.grad_fn
                # weakly: the graph lives as long as a loss is kept, and no garbage collector looks into it
                node.metadata.setdefault(self._mark, (weakref.ref(call), {}))[1][one.number] = weakref.ref(one)
                node.register_prehook(_Arrival(one))
            self.step.calls.append(call)
        self.arm()

    def module_failed(self) -> None:
        self._open = None
        self.arm()

    def _afford(self, tensor: Tensor, call: Call) -> Tensor | None:
        size = tensor.numel() * tensor.element_size()
        if self._bytes + size > MOST_BYTES:
            return None
        self._bytes += size
        call.size += size
        return tensor

    def _learn(self, call: Call, habits: _Habits, versions: Sequence[int]) -> None:
        """Which buffers a forward pass changes, and from which generators it draws."""
        habits.calls += 1
        if habits.calls > _LEARNS and habits.calls & (habits.calls - 1):
            return
        if habits.calls == 1:
            # batch norm writes its running statistics without raising their version
            known = {id(buffer) for buffer in _statistics(call.module)} if self.keeps_statistics else set()
            changing = [
                b
                for b, version in zip(habits.buffers, versions, strict=True)
                if b._version != version or id(b) in known
            ]
            if len(changing) < len(habits.changing) or not habits.changing:
                small = sum(b.numel() * b.element_size() for b in changing) <= _SMALL
                habits.changing = changing if small else []
        before, after = call.randomness, Randomness.now()
        if habits.calls >= _LEARNS:
            habits.python = before.python is None or before.python != after.python
            habits.numpy = before.numpy is None or differ(before.numpy, after.numpy)
        elif before.python != after.python or differ(before.numpy, after.numpy):
            habits.calls = 0  # it draws: goes on being read

    # -- backward ------------------------------------------------------------------------------------------------

    def backward_starts(self, roots: Sequence[Any]) -> None:
        self.lines.disarm()
        if self.on:
            self.step.glues.append(self.glue_of(roots))
            if len(self.step.glues) > self._most:
                del self.step.glues[0]
                self.step.dropped += 1

    def gradients_start(self, roots: Sequence[Any]) -> None:
        """As a backward pass, whose gradients go somewhere else."""
        if self.on:
            self.step.taken = self.glue_of(roots)

    def glue_of(self, roots: Sequence[Any]) -> Glue:
        return Glue(roots, self._mark, self._afford_glue)

    def _afford_glue(self, size: int) -> bool:
        if self._glue_bytes + size > _MOST_OF_GLUE:
            return False
        self._glue_bytes += size
        return True

    def backward_ended(self) -> None:
        for call in self.step.calls:
            if call.backward < 0 and any(output.reached for output in call.outputs):
                call.backward = len(self.step.glues) - 1
            for output in call.outputs:
                if output.arrived and not output.counted:
                    output.counted = True
                    if output.arrived[-1].numel() > 1 and self._afford(output.arrived[-1], call) is None:
                        output.arrived = []
        self.arm()

    def forget_newest(self) -> None:
        """The newest backward pass was not of what is recorded."""
        if not self.step.glues:
            return
        glue = self.step.glues.pop()
        gone = [call for call in self.step.calls if call in glue.into and not call.ours]
        self.step.calls = [call for call in self.step.calls if call not in gone]

    def forget_used(self) -> None:
        """The optimizer has stepped and the step has been judged: what its backward went through is let go at once."""
        self.step = Step([call for call in self.step.calls if not any(output.reached for output in call.outputs)])
        self._bytes = sum(call.size for call in self.step.calls)
        self._glue_bytes = 0

    def step_over(self, *, keeps: bool = False) -> None:
        """What a backward went through is forgotten, and what came before the last step but one.

        `keeps`: it stays for one step more, at `before`.
        """
        over, self.step = self.step, Step()
        for call in over.calls:
            call.age += 1
            if call.age < 2 and not any(output.reached for output in call.outputs):
                self.step.calls.append(call)
        self._bytes = sum(call.size for call in self.step.calls)
        self._glue_bytes = 0
        self.lines.step_over()
        if keeps:
            self.before = over

    def arm(self) -> None:
        """Outside of modules, on steps that are recorded, lines are noted."""
        if self.on:
            self.lines.arm()

    def close(self) -> None:
        self.lines.disarm()
        self.on = False
        self.step, self.before, self._open = Step(), Step(), None
        self._habits.clear()


class _Arrival:
    """A hook that keeps the gradient which arrives at an output."""

    __slots__ = ("_output",)

    def __init__(self, output: Output) -> None:
        self._output = weakref.ref(output)

    def __call__(self, gradients: Sequence[Tensor | None]) -> None:
        output = self._output()
        if output is None:
            return
        output.reached = True
        gradient = gradients[output.number] if output.number < len(gradients) else None
        if gradient is not None:
            del output.arrived[1:-1]
            output.arrived.append(gradient)


def _statistics(module: nn.Module) -> list[Tensor]:
    norms = [one for one in module.modules() if isinstance(one, nn.modules.batchnorm._NormBase)]
    return [buffer for norm in norms for buffer in norm.buffers(recurse=False)]


def _kept(value: Any) -> Any:
    """A list or dict as it is now: forward may take out of it what it uses."""
    return value.copy() if type(value) in (dict, list) else value
