"""NaN and infinite values in outputs replaced by a number: only where it is asked for, and always on record."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Self

import torch
from torch import Tensor, nn

from seismograd.complaints import complain
from seismograd.logger import LogLevel
from seismograd.patches import inside_backward
from seismograd.recovery.recording import logger, tell
from seismograd.replay.numbers import mapped

_KEPT = 1000
"""So many of the last replacements are kept one by one."""


@dataclass(frozen=True)
class Replacement:
    """Values that were replaced in the output of one call of a module."""

    module: str
    call: int
    """Which call of this module it was, from 0."""
    nan: int
    infinite: int
    elements: int

    def __str__(self) -> str:
        where = self.module or "the model"
        return f"{where}, call {self.call}: {self.nan} NaN and {self.infinite} Inf of {self.elements} values"


def replace_nonfinite(
    model: nn.Module,
    value: float = 0.0,
    modules: Iterable[str | nn.Module] | str | nn.Module | None = None,
    record: Any = None,
) -> Replacing:
    """From here on NaN and infinite values in what modules give are replaced by `value`, until it is removed or left.

        with sg.replace_nonfinite(model, modules=["encoder.*"], record=watch) as replaced:
            train()
        print(replaced.counts)

    - `modules`: names, with `*`, or modules; all of the model if left out.
    - `record`: a watch, a debugger, or a function of an event, which is told when a module is first met, and how many
      there were in the end. The first one is also a warning.

    No gradient flows back through what was replaced. The op before it may still make a NaN of a zero (0 / 0).
    """
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"value is {value!r}: it takes a finite number to put in the place of those that are not")
    return Replacing(model, float(value), _chosen(model, modules), record)


class Replacing:
    """Replaces what is not finite in outputs while it lasts."""

    def __init__(self, model: nn.Module, value: float, modules: dict[str, nn.Module], record: Any) -> None:
        self.value = value
        self.counts: Counter[str] = Counter()
        """How many values were replaced, by the name of the module."""
        self.replacements: deque[Replacement] = deque(maxlen=_KEPT)
        self._record, self._calls = record, Counter[str]()
        self._handles = [
            # before hooks of the user's, which see what the next module sees
            module.register_forward_hook(self._hook(name), prepend=True)
            for name, module in modules.items()
        ]

    @property
    def total(self) -> int:
        """How many values were replaced so far."""
        return self.counts.total()

    def remove(self) -> None:
        """Takes the hooks away; what was replaced is told in sum."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        if handles and self.total:
            by_module = ", ".join(f"{name or 'the model'}: {count}" for name, count in self.counts.most_common(5))
            self._tell("nonfinite_replaced", f"{self.total} values were replaced by {self.value:g} ({by_module})")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.remove()

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            again = inside_backward()  # a checkpoint computes it a second time: replaced as before, and counted already
            found: list[tuple[int, int, int]] = []
            changed = mapped(output, lambda tensor: self._finite(tensor, found))
            if not again:
                call = self._calls[name]
                self._calls[name] += 1
                if found:
                    self._noted(Replacement(name, call, *(sum(column) for column in zip(*found, strict=True))))
            return changed if found else None

        return hook

    def _finite(self, tensor: Tensor, found: list[tuple[int, int, int]]) -> Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout != torch.strided:
            return tensor
        with torch.no_grad():
            bad = ~torch.isfinite(tensor)
            many = int(bad.sum())
            if not many:
                return tensor
            nan = int(torch.isnan(tensor).sum())
        found.append((nan, many - nan, tensor.numel()))
        return tensor.masked_fill(bad, self.value)

    def _noted(self, one: Replacement) -> None:
        first, new = not self.counts, one.module not in self.counts
        self.counts[one.module] += one.nan + one.infinite
        self.replacements.append(one)
        if new:
            self._tell("nonfinite_replaced", f"{one}, replaced by {self.value:g}", one)
        if first:
            complain(
                f"seismograd: {one} were replaced by {self.value:g}, as replace_nonfinite was asked to: the model goes"
                " on with made-up values, and what made them is still there",
                stacklevel=6,
            )

    def _tell(self, event_type: str, message: str, one: Replacement | None = None) -> None:
        logger.warning("%s", message)
        data: dict[str, Any] = {"total": self.total, "value": self.value}
        if one is not None:
            data |= {"module": one.module, "call": one.call, "nan": one.nan, "infinite": one.infinite}
        tell(self._record, event_type, message, LogLevel.WARNING, data)


def _chosen(model: nn.Module, asked: Any) -> dict[str, nn.Module]:
    """The modules that are meant, by name."""
    everything = dict(model.named_modules())
    if asked is None:
        return everything
    names = {id(module): name for name, module in everything.items()}
    chosen: dict[str, nn.Module] = {}
    for one in [asked] if isinstance(asked, (str, nn.Module)) else asked:
        if isinstance(one, nn.Module):
            found = [names[id(one)]] if id(one) in names else []
        else:
            found = [name for name in everything if fnmatchcase(name, one)]
        if not found:
            some = ", ".join(repr(name) for name in list(everything)[1:6])
            raise ValueError(f"modules has {one!r}, which is no module of the model: it has {some} and so on")
        chosen |= {name: everything[name] for name in found}
    return chosen
