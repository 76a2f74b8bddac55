"""Out of memory: what was alive when it happened, how much was asked for, and what would fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from types import FrameType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seismograd import folders
from seismograd.memory import accelerator, cuda_history, snapshots
from seismograd.memory.exhaustion import asked_for, is_out_of_memory
from seismograd.memory.room import room
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.resources.inventory import alive, still_to_come
from seismograd.onlookers.resources.variables import with_graph
from seismograd.places import Spot, is_users, nearest
from seismograd.probes.pack import Values
from seismograd.probes.watched import Watched
from seismograd.replay.fitting import Pass, fit
from seismograd.replay.recorder import Recorder
from seismograd.replay.second_runs import module_names
from seismograd.replay.surroundings import Autocast

_PHASES = (
    (os.path.join("torch", "optim"), "optimizer"),
    (os.path.join("torch", "autograd"), "backward"),
    (os.path.join("torch", "utils", "data"), "data"),
    (os.path.join("torch", "nn", "modules"), "forward"),
)


class Exhaustion(Onlooker):
    """Tells of errors that say that there is no memory left, once they are known not to be caught, or to be.

    It allocates next to nothing: bytes are added up, and only when the run has ended with the error are a few samples
    run again, to say how many would have fitted.
    """

    topic: ClassVar[str] = "exhaustion"

    def __init__(self, watched: Watched, recorder: Recorder | None, account: Callable[[float], None]) -> None:
        super().__init__(watched)
        self._recorder, self._account = recorder, account
        self._heard: tuple[int, dict[str, Any]] | None = None
        """The error's identity, and what was seen of it."""
        self._pass: Pass | None = None

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        self._pass = None

    def forward_failed(self, error: BaseException) -> None:
        self._hear(error, "forward")

    def backward_failed(self, error: BaseException) -> Mapping[str, Any] | None:
        self._hear(error, "backward")
        return None

    def failed(self, error: BaseException) -> Mapping[str, Any] | None:
        if not is_out_of_memory(error):
            return None
        began = perf_counter()
        try:
            if self._heard is None or self._heard[0] != id(error):
                self._hear(error, None)
            assert self._heard is not None
            (_, seen), self._heard = self._heard, None
            return {**seen, "caught": False, "fit": self._fit(seen)}
        finally:
            self._pass = None
            self._account(perf_counter() - began)

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        heard, self._heard = self._heard, None
        if heard is None:
            return None
        ended = id(getattr(sys, "last_value", None)) == heard[0]  # by it: the watch is closed while Python leaves
        return {**heard[1], "caught": not ended, "fit": None}

    def close(self) -> None:
        self._heard = self._pass = None

    # -- inside --------------------------------------------------------------------------------------------------

    def _fit(self, seen: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._pass is None:
            return None
        try:
            found = fit(self._pass, seen["left"] + seen["activations"] - seen["to_come"], seen["left"])
        except Exception:  # memory is out: what is known without it is worth telling
            return None
        return None if found is None else found.to_dict()

    def _hear(self, error: BaseException, phase: str | None) -> None:
        if not is_out_of_memory(error):
            return
        frames = list(_frames(error))
        device = self._device(error)
        self._pass = self._last_pass([frame for frame, _ in frames])
        at_hand = [tensor for frame, _ in frames for tensor in _tensors(frame) if tensor.grad_fn is not None]
        at_hand += [tensor for _, tensor in with_graph(sys._getframe(1))]
        held = alive(self.watched, at_hand, device)
        if device.type == "cpu":
            now = room()
            left, limit, of, whole = now.left, now.limit, now.of, snapshots.rss()
        else:
            left, limit, whole = _on_device(device)
            of = str(device)
        history = folders.home() / "memory" / f"cuda-{os.getpid()}.pickle"
        written = cuda_history.write(history) if device.type == "cuda" else None
        spot, module = self._place(frames)
        seen = {
            "error": type(error).__name__,
            "message": (str(error).strip() or type(error).__name__).splitlines()[0][:300],
            "asked": asked_for(error),
            "phase": phase or _phase(frames),
            "module": module,
            "line": None if spot is None else {"file": spot.file, "line": spot.line, "code": _code(spot)},
            "device": str(device),
            **held,
            "other": max(0, whole - sum(held.values())),
            "held": whole,
            "left": left,
            "limit": limit,
            "limit_of": of,
            "to_come": still_to_come(self.watched, held),
            "batch": 0 if self._pass is None else self._pass.batch,
            "history": None if written is None else folders.shown(written),
        }
        self._heard = (id(error), seen)

    def _device(self, error: BaseException) -> torch.device:
        """Where memory ran out: the allocators of accelerators have an error of their own."""
        first = next((p.device for p in self.watched.roster.parameters), torch.device("cpu"))
        if isinstance(error, torch.OutOfMemoryError) or "CUDA" in str(error) or "MPS" in str(error):
            return first
        return torch.device("cpu")

    def _last_pass(self, frames: list[FrameType]) -> Pass | None:
        """The call that was at work, else the last one of the step."""
        for frame in frames:
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and frame.f_code.co_name in ("_call_impl", "_wrapped_call_impl"):
                held = frame.f_locals
                return Pass(module, tuple(held.get("args", ())), dict(held.get("kwargs", {})), Autocast.now())
        calls = [] if self._recorder is None else [call for call in self._recorder.step.calls if call.ours]
        return Pass(calls[-1].module, calls[-1].args, calls[-1].kwargs, calls[-1].autocast) if calls else None

    def _place(self, frames: list[tuple[FrameType, int]]) -> tuple[Spot | None, str | None]:
        """The deepest line of the user's own code, and the innermost module that was at work."""
        names = module_names(self.watched.models)
        spot: Spot | None = None
        module: str | None = None
        for frame, instruction in frames:
            if is_users(frame.f_code.co_filename):
                spot = Spot(frame.f_code, instruction)
            module = names.get(id(frame.f_locals.get("self")), module)
        return spot or nearest(sys._getframe(1))[0], module or None


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Where the error passed, outermost first; the loop's own lines are still at work where it was only heard of."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _tensors(frame: FrameType) -> Iterator[Tensor]:
    for value in list(frame.f_locals.values()):
        yield from tensors_in(value, 2)


def _phase(frames: list[tuple[FrameType, int]]) -> str:
    for frame, _ in frames:
        for part, phase in _PHASES:
            if part in frame.f_code.co_filename:
                return phase
    return "loop"


def _code(spot: Spot) -> str | None:
    return (spot.source or "").strip() or None


def _on_device(device: torch.device) -> tuple[int, int, int]:
    """What is left on it, its whole memory, and what this process holds there."""
    held, reserved = accelerator.allocated(), accelerator.reserved()
    if device.type != "cuda":
        return 0, 0, held
    free, whole = torch.cuda.mem_get_info(device)
    return int(free) + reserved - held, int(whole), held
