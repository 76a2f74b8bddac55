"""Looks at everything that the components of a pipeline give back, and names the first that is not finite."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seismograd.complaints import complain
from seismograd.integrations.diffusion.calls import Taken
from seismograd.integrations.diffusion.components import models_of, parts_of
from seismograd.replay.numbers import tensors_in
from seismograd.stats.tensors import all_finite, bad_counts

if TYPE_CHECKING:
    from seismograd.integrations.diffusion.debugger import DiffusionModelDebugger

_METHODS = ("decode", "encode")
"""What pipelines call of an autoencoder, past its forward hooks."""

_MOST_OPEN = 16
"""Calls that have begun: one that raised never ends."""


class PipelineWatch:
    """A context in which the calls of a pipeline's components are looked at. Nothing is left attached after it."""

    def __init__(self, debugger: DiffusionModelDebugger, pipeline: Any) -> None:
        self._debugger, self.pipeline = debugger, pipeline
        self._models = models_of(pipeline)
        self._scheduler = parts_of(pipeline).get("scheduler")
        self._undo: list[Callable[[], Any]] = []
        self._open: list[Taken] = []
        self._thread = 0
        self._busy = self._broken = self._over = False
        self.step = 0
        """Of the denoising loop: how often the scheduler has stepped since its timesteps were set."""

    def __enter__(self) -> PipelineWatch:
        self._thread, self._over = threading.get_ident(), False
        self._debugger.watched.append(self)
        seen: set[int] = set()
        for name, module in self._models.items():
            if id(module) in seen or getattr(module, "_compiled_call_impl", None) is not None:
                continue  # hooks of ours would be compiled into it
            seen.add(id(module))
            self._undo.append(
                module.register_forward_pre_hook(functools.partial(self._begins, name), with_kwargs=True).remove
            )
            self._undo.append(
                module.register_forward_hook(functools.partial(self._ends, name), with_kwargs=True).remove
            )
            for method in _METHODS:
                if hasattr(type(module), "encode") and callable(getattr(module, method, None)):
                    self._wrap(name, module, method)
        if self._scheduler is not None:
            for method in ("set_timesteps", "step"):
                if callable(getattr(self._scheduler, method, None)):
                    self._wrap("scheduler", self._scheduler, method)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over = True
        while self._undo:
            self._undo.pop()()
        self._open.clear()
        if self in self._debugger.watched:
            self._debugger.watched.remove(self)

    # -- calls ---------------------------------------------------------------------------------------------------

    def _begins(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._listens():
            self._guarded(self._take, name, module, None, args, kwargs)

    def _ends(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._listens():
            self._guarded(self._look, module, None, output)

    def _wrap(self, name: str, owner: Any, method: str) -> None:
        """Has a method looked at. It is the class's that is replaced: a copy of the owner then has its own."""
        kind = type(owner)
        original = owner.__dict__.get(method) or getattr(kind, method)
        own = method in owner.__dict__

        @functools.wraps(original)
        def looked_at(*given: Any, **kwargs: Any) -> Any:
            mine = own or (bool(given) and given[0] is owner)
            if not mine or not self._listens():
                return original(*given, **kwargs)
            args = given if own else given[1:]
            self._guarded(self._take, name, owner, method, args, kwargs)
            output = original(*given, **kwargs)
            self._guarded(self._look, owner, method, output)
            return output

        holder = owner if own else kind
        looked_at.__dict__.update(before=vars(holder).get(method), over=False)
        setattr(holder, method, looked_at)

        def undo() -> None:
            looked_at.__dict__["over"] = True
            now = first = vars(holder).get(method)
            while getattr(first, "over", False):  # ours, and that of a watch which ended while ours lay over it
                first = vars(first)["before"]
            if first is None and now is not None:
                delattr(holder, method)
            elif first is not now:
                setattr(holder, method, first)

        self._undo.append(undo)

    def _listens(self) -> bool:
        return not (
            self._busy
            or self._broken
            or self._over
            or threading.get_ident() != self._thread
            or torch.compiler.is_compiling()
        )

    def _guarded(self, function: Callable[..., None], *args: Any) -> None:
        """An error of ours is told once, and ends the watching."""
        self._busy = True
        try:
            function(*args)
        except Exception as error:
            self._broken = True
            complain(
                f"seismograd: watching the pipeline failed, it goes on unwatched ({type(error).__name__}: {error})",
                stacklevel=4,
            )
        finally:
            self._busy = False

    def _take(self, name: str, owner: Any, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del self._open[:-_MOST_OPEN]
        self._open.append(Taken.now(name, owner, method, args, kwargs))

    def _look(self, owner: Any, method: str | None, output: Any) -> None:
        taken = self._taken(owner, method)
        if taken is None:
            return
        if method == "set_timesteps":
            self.step = 0
            self._debugger.loop_begins(owner)
            return
        if method == "step":
            self._stepped(taken, output)
            return
        tensors = [tensor for _, tensor in tensors_in(output, "output") if _has_values(tensor)]
        self._debugger.component_called(taken.shown, tensors, self.step)
        if not all_finite(tensors) and any(any(bad_counts(tensor)) for tensor in tensors):
            self._debugger.component_failed(taken, output, self._models, self.step)
            return
        self._debugger.component_passed(taken.shown)
        if method == "decode" and tensors:
            self._debugger.image_decoded(taken.name, tensors[0], self.step)

    def _stepped(self, taken: Taken, output: Any) -> None:
        latents = next((tensor for _, tensor in tensors_in(output, "output")), None)
        timestep = taken.args[1] if len(taken.args) > 1 else taken.kwargs.get("timestep")
        if latents is not None:
            record = self._debugger.note_latents(self._scheduler, self.step, latents, timestep)
            if record["has_nan"] or record["has_inf"]:
                self._debugger.component_failed(taken, output, self._models, self.step)
            self._debugger.judge_latents(record, self._scheduler, latents.dtype)
        self.step += 1

    def _taken(self, owner: Any, method: str | None) -> Taken | None:
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at].owner is owner and self._open[at].method == method:
                taken = self._open[at]
                del self._open[at:]
                return taken
        return None


def _has_values(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_meta and tensor.numel() > 0
