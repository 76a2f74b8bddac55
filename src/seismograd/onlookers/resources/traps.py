"""Traps on the host's side of a step: waits for the device, too many threads, tensors made elsewhere, wide numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from seismograd.detectors.running import Window
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.resources.habits import Habit, habits
from seismograd.onlookers.resources.processors import allowed_processors
from seismograd.places import Spot, chain
from seismograd.probes.pack import Values
from seismograd.probes.watched import Watched

AFTER = 12
"""So many steps are heard before anything is said."""

_REST = 0.3
_LEAST = 0.001
_MANY_SHAPES = 4
_LARGE = 1_000_000
_LONG = 0.05


class Traps(Onlooker):
    """Looks once at the code around `optimizer.step()` and at torch's settings. On a CPU few of these matter."""

    topic: ClassVar[str] = "traps"
    dear = True

    def __init__(self, watched: Watched, account: Callable[[float], None]) -> None:
        super().__init__(watched)
        self._account = account
        self._spots: tuple[Spot, ...] = ()
        self._rest, self._steps, self._computes = Window(AFTER), Window(AFTER), Window(AFTER)
        self._shapes: set[tuple[int, ...]] = set()
        self._narrow = self._done = False

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if self._done or not ours or not trains:
            return
        for tensor in tensors_in(args):
            if len(self._shapes) < 64:
                self._shapes.add(tuple(tensor.shape))
            self._narrow |= torch.is_autocast_enabled(tensor.device.type)
            break

    def step_starts(self, optimizer: Optimizer) -> None:
        if not self._done and not self._spots:
            self._spots = chain(sys._getframe(), most=4)

    def timed(self, phases: Mapping[str, float]) -> None:
        if self._done or phases["step"] <= 0:
            return
        self._rest.add(phases["rest"] / phases["step"])
        self._computes.add((phases.get("forward", 0.0) + phases["backward"]) / phases["step"])
        self._steps.add(phases["step"])

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        if self._done or len(self._steps) < AFTER:
            return None
        self._done = True
        began = perf_counter()
        found = list(self._found())
        self._spots = ()
        self._account(perf_counter() - began)
        return {"found": found} if found else None

    def close(self) -> None:
        self._spots = ()

    # -- inside --------------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[dict[str, Any]]:
        parameters = self.watched.roster.parameters
        device = parameters[0].device.type if parameters else "cpu"
        rest = self._rest.median
        seconds = rest * self._steps.median
        for habit in habits(self._spots):
            told = told_of(habit, device, slow=rest >= _REST and seconds >= _LEAST)
            if told is not None:
                yield told | {"share": rest}
        threads, allowed = torch.get_num_threads(), allowed_processors()
        if threads > allowed:
            yield _trap(
                "threads",
                f"torch works with {threads} threads, and this process may use {allowed} cores: they get in each"
                " other's way.",
                f"torch.set_num_threads({allowed}), or OMP_NUM_THREADS={allowed}",
            )
        if device == "cuda":
            yield from self._of_cuda(parameters)
        elif device == "cpu":
            yield from self._of_cpu(parameters)

    def _of_cuda(self, parameters: Sequence[torch.Tensor]) -> Iterator[dict[str, Any]]:
        convolves = any(parameter.ndim >= 4 for parameter in parameters)
        if torch.backends.cudnn.benchmark and convolves and len(self._shapes) >= _MANY_SHAPES:
            yield _trap(
                "cudnn-benchmark",
                f"cudnn.benchmark tries every algorithm anew for each shape, and the first {AFTER} steps had"
                f" {len(self._shapes)} shapes.",
                "torch.backends.cudnn.benchmark = False, or batches of a few sizes",
            )
        wide = all(parameter.dtype == torch.float32 for parameter in parameters) and not self._narrow
        if wide and torch.get_float32_matmul_precision() == "highest" and torch.cuda.get_device_capability()[0] >= 8:
            told = _trap(
                "fp32-matmul",
                "Matrices are multiplied in full fp32, and this device has TF32 and bf16, which are several times as"
                " fast.",
                'torch.set_float32_matmul_precision("high"), or torch.autocast("cuda", dtype=torch.bfloat16)',
            )
            yield told | {"share": self._computes.median}

    def _of_cpu(self, parameters: Sequence[torch.Tensor]) -> Iterator[dict[str, Any]]:
        """Only where matrices are large and steps long: bf16 has a price, too."""
        large = sum(p.numel() for p in parameters if p.ndim == 2 and p.dtype == torch.float32) >= _LARGE
        if large and not self._narrow and self._steps.median >= _LONG and has_narrow_matrices():
            told = _trap(
                "fp32-matmul",
                "Matrices are multiplied in fp32, and this CPU multiplies bf16 in tiles (AMX), several times as fast.",
                'torch.autocast("cpu", dtype=torch.bfloat16)',
            )
            yield told | {"share": self._computes.median}


def told_of(habit: Habit, device: str, *, slow: bool) -> dict[str, Any] | None:
    """What is to be said of a habit on this device: on a CPU nothing waits, but a loop over elements is slow."""
    if device == "cpu":
        if not (habit.inner and slow and habit.kind == "sync" and habit.name in {".item()", "float()", "int()"}):
            return None
        message = f"`{habit.name}` in a loop inside the step takes the elements of a tensor out one by one."
        remedy = "work on the whole tensor, or take all of it out once with .tolist()"
    elif habit.kind == "sync":
        message = f"`{habit.name}` at every step waits until the device has done all that it was given."
        remedy = "keep the value on the device, and look at it every N-th step"
    else:
        message = f"`{habit.name}(...)` is made on the CPU and copied to the device at every step."
        remedy = f"{habit.name}(..., device=device)"
    return _trap(habit.kind, message, remedy) | {"file": habit.file, "line": habit.line, "code": habit.code}


def _trap(kind: str, message: str, remedy: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "message": message,
        "file": None,
        "line": None,
        "code": None,
        "share": None,
        "try": remedy,
    }


def has_narrow_matrices() -> bool:
    """Whether the CPU multiplies bf16 faster than fp32."""
    known: Any = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(known is not None and known())
