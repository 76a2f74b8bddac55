"""Validation losses that are seen by themselves: the training loss, met again in an evaluation without gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.multiprocessing import reductions

StorageWeakRef: Any = reductions.StorageWeakRef
"""Of torch's, untyped: knows whether a storage is gone."""


class Validation:
    """Averages what a loss module returns while all models are in evaluation mode and gradients are off.

    Only of a loss module that was used in training too, so that both curves mean the same. An evaluation ends when the
    module is next used in training.
    """

    name: ClassVar[str] = "validation"

    def __init__(self, loss_fn: Any = None) -> None:
        self._models: list[nn.Module] = []
        self._step: Callable[[], int] = int
        self._total: Tensor | None = None
        self._count = 0
        self._ended: list[tuple[int, Tensor]] = []
        self._trained = False
        self._handle = loss_fn.register_forward_hook(self._hook) if isinstance(loss_fn, nn.Module) else None

    def follow(self, models: Iterable[nn.Module], step: Callable[[], int]) -> None:
        """Looks at these models to tell training from evaluation."""
        self._models, self._step = list(models), step

    def data_came(self, source: int, over: bool) -> None:
        """A `DataLoader` has handed out a batch of the data set with this number, or there was none left."""

    def loss_computed(self, name: str, output: Any, args: tuple[Any, ...]) -> None:
        """A loss of `torch.nn.functional` was called."""

    wonders = False
    """Whether it wants to know which loss `backward` is called on."""

    def used(self, losses: Iterable[Any], made_by: int | None = None) -> None:
        """`backward` was called on these; or on one that the node with this number made, divided by what does not
        count: the batches of a step, or 1."""

    def _hook(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            self._see(output)
        except Exception:  # a loss like no other: there is nothing to see
            self.close()

    def _see(self, output: Any) -> None:
        if not isinstance(output, Tensor) or output.numel() != 1 or not output.is_floating_point():
            return
        if torch.is_grad_enabled():
            self._trained = True
            self._end()
        elif self._trained and self._evaluates():
            value = output.detach().reshape(()).float()
            self._total = value.clone() if self._total is None else self._total + value
            self._count += 1

    def _evaluates(self) -> bool:
        return bool(self._models) and not any(model.training for model in self._models)

    def _end(self) -> None:
        if self._total is not None:
            self._ended.append((self._step(), self._total / self._count))
            self._total, self._count = None, 0

    def drop(self) -> None:
        """Somebody else has told the validation loss of this evaluation."""
        self._total, self._count = None, 0
        self._ended.clear()

    def take(self) -> list[tuple[int, float]]:
        """The evaluations since the last call: their steps and mean losses. Waits for the device if there are any."""
        self._end()
        if not self._ended:
            return []
        ended, self._ended = self._ended, []
        return [(step, float(mean)) for step, mean in ended]

    @property
    def waiting(self) -> bool:
        return self._total is not None or bool(self._ended)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._models = []


@dataclass(slots=True)
class _Part:
    """What one source of data gave to an evaluation."""

    step: int
    storage: Any
    total: Tensor
    count: int = 0
    calls: int = 0


class Evaluations(Validation):
    """Finds the validation loss of a script that names no loss: only where it is certain.

    That is: the very function that made the loss which `backward` was called on, with the same settings, called while
    gradients are off and all models are in evaluation mode, on data of one source that was never trained on. Two such
    sources in one evaluation (the training set again, a test set) leave it open which is meant, and nothing is taken.
    The source that was taken first is kept to. Another takes its place if it is as large, the first does not come any
    more, and it is met twice with training after it, which a test set is not: the data were loaded anew.
    """

    def __init__(self, reductions: Mapping[str, int]) -> None:
        """`reductions` says for each loss which of its arguments tells how to reduce."""
        super().__init__()
        self._reductions = reductions
        self._recent: dict[int, tuple[weakref.ref[Tensor], str, tuple[Any, ...], int]] = {}
        self._proven: dict[str, tuple[Any, ...]] = {}  # name: settings
        self._dataset: int | None = None
        self._ahead: dict[int, int] = {}  # batches of each data set whose loss is still to come
        self._trained_on: dict[tuple[str, int], Any] = {}
        self._gap: dict[tuple[str, int], _Part] = {}
        self._chosen: tuple[str, int] | None = None
        self._size = 0  # of what was chosen: its targets
        self._others = 0  # evaluations in a row on something else of this size
        self._learned = 0  # how much was trained on since the last evaluation
        self._blind = False

    def data_came(self, source: int, over: bool) -> None:
        if not over:
            self._dataset = source
            if len(self._ahead) > 64:
                self._ahead.clear()
            self._ahead[source] = self._ahead.get(source, 0) + 1
        elif self._ahead.get(source) == 1:  # who fetches a batch ahead (Accelerate) has one left
            self._dataset = source
        else:
            self._ahead.pop(source, None)

    def _source(self, target: Tensor) -> tuple[str, int]:
        """Where this batch comes from: a data set, or else a place in memory."""
        dataset, self._dataset = self._dataset, None
        if dataset is None:
            return "storage", target.untyped_storage().data_ptr()
        self._ahead[dataset] = self._ahead.get(dataset, 0) - 1
        return "set", dataset

    def loss_computed(self, name: str, output: Any, args: tuple[Any, ...]) -> None:
        if self._blind or type(output) is not Tensor or len(args) <= self._reductions[name]:
            return
        try:
            if torch.is_grad_enabled():
                if self._gap:
                    self._end(goes_on=True)
                self._trains(name, output, args)
            elif name in self._proven and self._evaluates():
                self._evaluated(name, output, args)
        except Exception:  # a loss like no other: there is nothing to see
            self._blind = True

    def _trains(self, name: str, output: Tensor, args: tuple[Any, ...]) -> None:
        source = self._source(args[1])
        if source[0] == "set":
            self._trained_on.setdefault(source)
        else:
            if len(self._trained_on) >= 64:
                kept = {source: held for source, held in self._trained_on.items() if held is None or not held.expired()}
                self._trained_on = kept
            if len(self._trained_on) < 64:
                self._trained_on[source] = StorageWeakRef(args[1].untyped_storage())
        self._learned += args[1].numel()
        if name not in self._proven and output.requires_grad:
            if len(self._recent) > 16:
                self._recent.clear()
            number = -1 if output.grad_fn is None else output.grad_fn._sequence_nr()
            self._recent[id(output)] = (weakref.ref(output), name, self._settings(name, args), number)

    @property
    def wonders(self) -> bool:  # type: ignore[override]
        return bool(self._recent)

    def used(self, losses: Iterable[Any], made_by: int | None = None) -> None:
        if not self._recent:
            return
        for loss in losses:
            reference, name, settings, _ = self._recent.get(id(loss), (None, "", (), -1))
            if reference is not None and reference() is loss and settings[0] == _MEAN:
                self._proven[name] = settings
        for _, name, settings, number in self._recent.values() if made_by is not None else ():
            if number == made_by and settings[0] == _MEAN:
                self._proven[name] = settings
        self._recent.clear()

    def _evaluated(self, name: str, output: Tensor, args: tuple[Any, ...]) -> None:
        given, target = args[:2]
        source = self._source(target)
        settings = self._settings(name, args)
        by_mean = settings[0] == _MEAN
        if settings[1:] != self._proven[name][1:] or (_WEIGHTED in settings and not by_mean):
            return
        if self._was_trained_on(source):
            return
        if source not in self._gap:
            zero = torch.zeros((), dtype=torch.float32, device=output.device)
            self._gap[source] = _Part(self._step(), StorageWeakRef(target.untyped_storage()), zero)
        part = self._gap[source]
        count = (given if target.is_floating_point() else target).numel()
        part.total = part.total + output.detach().float().sum() * (count if by_mean else 1)
        part.count += count
        part.calls += 1

    def _knows_training_data(self) -> bool:
        """Whether batches are parts of tensors that are still there; otherwise they are copies."""
        return any(held is not None and not held.expired() for held in self._trained_on.values())

    def _was_trained_on(self, source: tuple[str, int]) -> bool:
        if source not in self._trained_on:
            return False
        storage = self._trained_on[source]
        return storage is None or not storage.expired()

    def _end(self, *, goes_on: bool = False) -> None:
        gap, self._gap = self._gap, {}
        if not gap:
            return
        if self._chosen in gap:
            self._others = 0
        learned, self._learned = self._learned, 0
        chosen = next(iter(gap)) if len(gap) == 1 else self._chosen
        part = gap.get(chosen) if chosen is not None else None
        if chosen is None or part is None:
            return
        if chosen[0] == "storage" and not self._knows_training_data() and learned % max(1, part.count) == 0:
            return  # as much as was trained on, from copies: it may be the training data itself
        if chosen[0] == "storage" and part.storage.expired():
            if part.calls > 1 or self._chosen is not None:
                return  # one place in memory, used for one batch after another
        elif self._chosen in (None, chosen) or (goes_on and self._replaces(part)):
            self._chosen, self._size = chosen, part.count
        else:
            return  # other data than before: a test set
        self._ended.append((part.step, part.total / max(1, part.count)))

    def _replaces(self, part: _Part) -> bool:
        """Whether this is what was chosen, loaded anew."""
        if part.count == self._size:
            self._others += 1
        return part.count == self._size and self._others > 1

    def drop(self) -> None:
        super().drop()
        self._gap.clear()

    @property
    def waiting(self) -> bool:
        return bool(self._gap) or bool(self._ended)

    def _settings(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """How the loss was called, but for its data: the reduction first; of tensors only that they were given."""
        at = self._reductions[name]
        rest = (_WEIGHTED if isinstance(value, Tensor) else value for value in (*args[2:at], *args[at + 1 :]))
        return (args[at], *rest)


_MEAN = 1
"""torch's number for `reduction="mean"`."""

_WEIGHTED = "weighted"
