"""Traces the user's own run for a few steps, where a bad one could not be run again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from seismograd import patches
from seismograd.places import caller
from seismograd.records import Origin
from seismograd.replay.lines import lines_noted
from seismograd.replay.numbers import is_bad, tensors_in
from seismograd.replay.second_runs import known_tensors, module_names
from seismograd.replay.tracer import Known, Tracer, storage_of

STEPS = 8
"""So many steps are traced at most."""


class Live:
    """A tracer in the user's own forward and backward passes. It looks, and changes nothing."""

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self.left = STEPS
        self._models = dict(models)
        self._stack: ExitStack | None = None
        self._outputs: list[Tensor] = []
        self._begin()

    def _begin(self) -> None:
        self._outputs = []
        self._inside = False
        self._tracer = Tracer(
            module_names(self._models), known_tensors(self._models.items()), base=patches.engine, live=True
        )

    def step_over(self) -> bool:
        """The next step begins; says whether it is to be traced, too."""
        self.leave()
        self.left -= 1
        self._begin()
        return self.left > 0

    def module_starts(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        for path, tensor in tensors_in({"args": args, "kwargs": kwargs}):
            name = path.replace("['args']", "args").replace("['kwargs']", "kwargs")
            self._tracer.knows(storage_of(tensor), Known(name, "argument", tensor.detach()))
        self._tracer.default = caller()
        self._tracer.module_starts(module)
        self._inside = True
        self._enter()

    def module_ended(self, output: Any = None) -> None:
        self.leave()
        if not self._inside:  # an evaluation, or it began before this step: of neither the beginning was heard
            return
        self._inside = False
        self._tracer.module_ended()
        self._outputs += [tensor.detach() for _, tensor in tensors_in(output)]

    def backward_starts(self) -> None:
        self._enter()

    @property
    def entered(self) -> bool:
        return self._stack is not None

    def _enter(self) -> None:
        self.leave()
        self._stack = ExitStack()
        self._stack.enter_context(lines_noted(self._tracer.note_node))
        self._stack.enter_context(self._tracer)

    def leave(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def origin(self, gradients: Iterable[Tensor], losses: Sequence[Tensor]) -> Origin | None:
        """What was seen of the present step, if that tells where it went bad."""
        self.leave()
        for tensors in (self._outputs, list(losses), list(gradients)):
            source, known = self._tracer.source_of([one for one in tensors if is_bad(one)])
            if source is not None and source.birth is not None and known is None:
                return source.birth
        return None


def can_trace() -> bool:
    """Whether a dispatch mode leaves the run as it is: compiled code would not run under one."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return (dynamo is None or not dynamo.counters["frames"]) and not torch.compiler.is_compiling()
