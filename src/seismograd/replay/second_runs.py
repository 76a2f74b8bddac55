"""Runs a recorded call a second time, forward and backward, and puts everything back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from seismograd import patches
from seismograd.replay.glue import Glue
from seismograd.replay.lines import lines_noted
from seismograd.replay.numbers import mapped, same, tensors_in
from seismograd.replay.recorder import Call, Output
from seismograd.replay.rewind import Rewind, as_it_was, silenced
from seismograd.replay.surroundings import Autocast
from seismograd.replay.tracer import CollectiveError, Known, Tracer, storage_of

_COLLECTIVE = ("FSDP", "FullyShardedDataParallel")


class CannotReplayError(Exception):
    """The step cannot be run again; the message says why."""


class _ReentrantError(Exception):
    """A reentrant checkpoint refuses `autograd.grad`."""


@dataclass
class Rerun:
    """What a second run of one call brought to light."""

    call: Call
    tracer: Tracer
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    into: dict[int, Tensor | None] = field(default_factory=dict)
    """The gradients of its inputs, by the identity of what the loop gave it."""
    reproduced: bool = True


class SecondRuns:
    """Makes the calls of one step again. `scale` is what a `GradScaler` multiplied the loss with: it is taken out."""

    def __init__(self, models: Mapping[str, nn.Module], glues: Sequence[Glue], scale: float) -> None:
        self.names = module_names(models)
        """Every module's path, by its identity."""
        self._models, self._glues, self._scale = dict(models), glues, scale

    def of(
        self,
        call: Call,
        *,
        turn: int | None = None,
        accumulate: bool = False,
        traced: bool = True,
        reduction: str | None = None,
        graph: bool = True,
    ) -> Rerun:
        """Makes the call again, and the backward pass from the gradients that arrived at its outputs.

        `turn` says from which of them, the last one being 0; `None`: only forward. `accumulate` has gradients put where
        the user's are, which reentrant checkpoints need. `traced` has every op looked at. `reduction` is given to a
        loss module for the time being. Without a `graph` there is no backward, and the run needs no more memory than
        the first.
        """
        self._check(call)
        module = unwrapped(call.module)
        tensors = [tensor for tensor, _ in call.versions]
        tracer = Tracer(self.names_with(module), self._known(call, module), base=SecondRuns.of.__code__)
        tracer.default = call.spot
        rerun = Rerun(call, tracer)
        with self.stage(tracer, call.autocast, [module], tensors):
            for each, training in zip(call.module.modules(), call.training, strict=False):
                each.training = training
            with torch.no_grad():
                for buffer, copy in call.buffers:
                    buffer.copy_(copy)
            call.randomness.restore()
            aliases: dict[int, Tensor] = {}

            def alias(tensor: Tensor) -> Tensor:
                known = aliases.get(id(tensor))
                if known is None:
                    known = tensor.detach()
                    if tensor.requires_grad:
                        known.requires_grad_()
                    aliases[id(tensor)] = known
                return known

            try:
                args, kwargs = mapped(call.args, alias), mapped(call.kwargs, alias)
                noted = lines_noted(tracer.note_node) if traced and graph else nullcontext()
                with torch.set_grad_enabled(graph), noted, tracer:
                    tracer.looks = traced
                    if reduction is not None:
                        module.__dict__["reduction"] = reduction  # put back with all other attributes
                    output = module(*args, **kwargs)
                    rerun.outputs = tensors_in(output, "output")
                    self._compare(rerun)
                    if turn is not None:
                        wanted: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
                        wanted += [one for one in aliases.values() if one.requires_grad]
                        found = self._gradients(rerun, turn, wanted, accumulate)
                        rerun.gradients = [one for one in found if one is not None]
                        by_alias = dict(zip(map(id, wanted), found, strict=False))
                        rerun.into = {key: by_alias.get(id(one)) for key, one in aliases.items()}
            except CollectiveError as why:
                raise CannotReplayError(f"the step was not run again: {why}") from None
            except (CannotReplayError, _ReentrantError):
                raise
            except torch.OutOfMemoryError:
                raise CannotReplayError("there was not enough memory to run the step again") from None
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # of the user's own kind, too
                raise CannotReplayError(f"the second run of the step raised {type(error).__name__}: {error}") from None
        return rerun

    def evaluated(
        self, call: Call, change: Callable[[Tensor], Tensor], around: AbstractContextManager[object] | None = None
    ) -> list[tuple[str, Tensor]]:
        """What the call gives in evaluation, without gradients, with `change(tensor)` in the place of every argument.

        `around` is entered for the time of the call.
        """
        self._check(call)
        module = unwrapped(call.module)
        tracer = Tracer(self.names_with(module), {})
        tracer.looks = False
        with self.stage(tracer, call.autocast, [module], [tensor for tensor, _ in call.versions]):
            for each in module.modules():
                each.training = False
            with torch.no_grad():
                for buffer, copy in call.buffers:
                    buffer.copy_(copy)
                call.randomness.restore()
                args, kwargs = mapped(call.args, change), mapped(call.kwargs, change)
                try:
                    with around or nullcontext(), tracer:
                        output = module(*args, **kwargs)
                except torch.OutOfMemoryError:
                    raise CannotReplayError("there was not enough memory to run the model again") from None
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # of the user's own kind, too
                    why = f"the second run of the model raised {type(error).__name__}: {error}"
                    raise CannotReplayError(why) from None
        return [(path, tensor.detach()) for path, tensor in tensors_in(output, "output")]

    @contextmanager
    def stage(
        self, tracer: Tracer, autocast: Autocast, modules: Iterable[nn.Module], tensors: Iterable[Tensor]
    ) -> Iterator[None]:
        """Where user code may run a second time: nobody hears of it, and everything of torch's is put back."""
        rewind = Rewind([*modules, *self._models.values()], tensors)
        with ExitStack() as stack:
            stack.enter_context(rewind)
            stack.callback(rewind.kept.update, tracer.kept)
            stack.enter_context(silenced())
            stack.enter_context(patches.muted(tracer))
            stack.enter_context(as_it_was(autocast))
            if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:  # the user's own: not again
                stack.enter_context(saved_tensors_hooks(_same, _same))
            yield

    def with_backward(self, call: Call, turn: int, *, traced: bool = True) -> Rerun:
        try:
            return self.of(call, turn=turn, traced=traced)
        except _ReentrantError:
            return self.of(call, turn=turn, traced=traced, accumulate=True)

    def _check(self, call: Call) -> None:
        if call.changed():
            raise CannotReplayError("an input of the model was changed in place since, so the step cannot be run again")
        if _uses_up(call):
            raise CannotReplayError("an iterator went into the model: running it again would use up what is in it")
        for each in call.module.modules():
            kind = type(each).__name__
            if kind.startswith(_COLLECTIVE) or hasattr(each, "_fsdp_state") or hasattr(each, "_get_fsdp_state"):
                raise CannotReplayError("the model is sharded (FSDP): running it again would need the other ranks")
            if kind == "SyncBatchNorm" and each.training and _ranks() > 1:
                raise CannotReplayError("synchronised batch norm would need the other ranks to run again")
            if any(hasattr(parameter, "placements") for parameter in each.parameters(recurse=False)):
                raise CannotReplayError("the model is split over ranks: running it again would need the others")
        if isinstance(unwrapped(call.module), torch.jit.ScriptModule):
            raise CannotReplayError("a scripted module has no Python code that could be traced")

    def _compare(self, rerun: Rerun) -> None:
        now = dict(rerun.outputs)
        for output in rerun.call.outputs:
            if output.tensor is None:
                continue
            other = now.get(output.path)
            if other is None or not same(output.tensor, other):
                rerun.reproduced = False

    def _gradients(
        self, rerun: Rerun, turn: int, wanted: Sequence[Tensor], accumulate: bool
    ) -> Sequence[Tensor | None]:
        now = dict(rerun.outputs)
        outputs: list[Tensor] = []
        arriving: list[Tensor] = []
        for output in rerun.call.outputs:
            tensor = now.get(output.path)
            if tensor is not None and turn < len(output.arrived) and tensor.requires_grad:
                gradient = self.arriving(rerun.call, output, turn)
                outputs.append(tensor)
                arriving.append((gradient / self._scale if self._scale != 1.0 else gradient).to(tensor.dtype))
        if not outputs or not wanted:
            return []
        if accumulate:
            if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in wanted):
                raise CannotReplayError("a reentrant checkpoint with hooks on the parameters cannot be run again")
            for one in wanted:
                one.grad = None
            torch.autograd.backward(outputs, arriving)
            return [one.grad for one in wanted]
        try:
            return torch.autograd.grad(outputs, wanted, arriving, allow_unused=True)
        except RuntimeError as error:
            if "checkpoint" in str(error).lower():
                raise _ReentrantError from None
            raise

    def recompute(self, call: Call, glue: Glue) -> None:
        """Has a loss module say once more which gradient came to an output, where that was too large to be kept."""
        for output in call.outputs:
            if not output.reached or output.arrived:
                continue
            for loss, given in glue.into.items():
                inputs = [tensor for tensor, _ in loss.versions if tensor.grad_fn is not None]
                for tensor, (_, edge) in zip(inputs, given, strict=False):
                    if edge[0] == "call" and edge[1][1] is output:
                        gradient = self.of(loss, turn=0, traced=False).into.get(id(tensor))
                        output.arrived = [] if gradient is None else [gradient * self._scale]

    def arriving(self, call: Call, output: Output, turn: int) -> Tensor:
        """The gradient that came to an output from outside: what arrives at its node holds also what came back through
        the module's other outputs, if they were made from this one."""
        whole = output.arrived[-1 - turn].detach()
        if turn or sum(one.reached for one in call.outputs) < 2:
            return whole
        glue = self._glues[-1] if call.backward < 0 or call.backward >= len(self._glues) else self._glues[call.backward]
        parts = [
            node.left[at]
            for node in glue.nodes
            for at, edge in enumerate(node.edges)
            if edge[0] == "call" and edge[1][1] is output and at < len(node.left)
        ]
        elsewhere = [edge for given in glue.into.values() for _, edge in given] + glue.starts
        if (
            not parts
            or any(one is None for one in parts)
            or any(edge[0] == "call" and edge[1][1] is output for edge in elsewhere)
        ):
            return whole
        total = torch.zeros_like(whole)
        for one in parts:
            total = total + one  # type: ignore[operator]
        return total

    def _known(self, call: Call, module: nn.Module) -> dict[int, Known]:
        """Tensors that are there before the run, by their storage."""
        known: dict[int, Known] = {}
        for path, tensor in tensors_in({"args": call.args, "kwargs": call.kwargs}):
            name = path.replace("['args']", "args").replace("['kwargs']", "kwargs")
            known[storage_of(tensor)] = Known(name, "argument", tensor.detach())
        known |= known_tensors([("", module), *self._models.items()])
        return known

    def names_with(self, module: nn.Module) -> dict[int, str]:
        if id(module) in self.names:
            return self.names
        return {**module_names({type(module).__name__: module}), **self.names}


def known_tensors(models: Iterable[tuple[str, nn.Module]]) -> dict[int, Known]:
    """The parameters and buffers of models, by their storage."""
    known: dict[int, Known] = {}
    for prefix, model in models:
        dot = f"{prefix}." if prefix else ""
        for name, tensor in model.named_buffers():
            known[storage_of(tensor)] = Known(_clean(dot + name), "buffer", tensor.detach())
        for name, tensor in model.named_parameters():
            known[storage_of(tensor)] = Known(_clean(dot + name), "parameter", tensor.detach())
    known.pop(0, None)
    return known


def module_names(models: Mapping[str, nn.Module]) -> dict[int, str]:
    """Every module's path, by its identity."""
    found: dict[int, str] = {}
    for prefix, model in models.items():
        for name, module in model.named_modules():
            found.setdefault(id(module), _clean(".".join(part for part in (prefix, name) if part)))
    return found


def _clean(name: str) -> str:
    """Without what wrappers add."""
    parts = [part for part in name.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module")]
    return ".".join(parts)


def unwrapped(module: nn.Module) -> nn.Module:
    """The user's module inside of `torch.compile`'s and DDP's."""
    while True:
        if isinstance(inner := getattr(module, "_orig_mod", None), nn.Module) or (
            type(module).__name__ in ("DistributedDataParallel", "DataParallel")
            and isinstance(inner := getattr(module, "module", None), nn.Module)
        ):
            module = inner
        else:
            return module


def _uses_up(call: Call) -> bool:
    """Whether an argument, or something that a module holds, is gone through only once."""
    held = [*call.args, *call.kwargs.values()]
    held += [one for each in call.module.modules() for one in each.__dict__.values()]
    held += [inner for one in held if type(one) in (list, tuple) for inner in one[:8]]
    return any(isinstance(one, Iterator) for one in held)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _ranks() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())
