"""Which mode the models are in: while they are trained, while they are evaluated, and where they are frozen."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.onlookers.graph import Graph
from seismograd.onlookers.loop.dropouts import Dropouts
from seismograd.onlookers.loop.parts import Frozen, Model
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.places import Spot, chain
from seismograd.probes.pack import Pack, Values
from seismograd.probes.validation import StorageWeakRef
from seismograd.probes.watched import Watched

_MOST_PENDING = 256
_MOST_OUTPUTS = 8
_MOST_KNOWN = 64


class Modes(Onlooker):
    """Tells of steps trained with every part in evaluation mode, of evaluations, and of frozen parts that move.

    A *part* is a module that behaves differently in the two modes: dropout with a rate above zero, a norm with running
    statistics. It is *live* in training mode. A call belongs to training if a backward pass goes through what it made,
    and is an evaluation if it made no graph, or one that died or was left unused by the next step.
    """

    topic: ClassVar[str] = "modes"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._models: weakref.WeakKeyDictionary[nn.Module, Model] = weakref.WeakKeyDictionary()
        self._pending: list[_Call] = []  # with a graph of which it is not known yet what becomes of it
        self._used: list[_Call] = []  # by the last backward passes
        self._open: _Call | None = None  # in its forward pass
        self._newest: _Call | None = None
        self._stepped = False
        self._lived: dict[int, int] = {}  # optimizer: how many steps it made with live parts
        self._still: dict[int, int] = {}  # optimizer: how many in a row without any
        self._quiet: dict[str, Any] | None = None
        self._woken = 0
        self._last_off: tuple[Spot, ...] = ()  # where it was last evaluated in evaluation mode
        self._source: int | None = None
        self._sources: set[int] = set()  # data sets that were trained on
        self._storages: dict[int, _Given] = {}  # by their places; of each what was trained on
        self._held_out: dict[int, Any] = {}  # storages that were evaluated
        self._classes = False
        self._block: _Block | None = None
        self._blocks: list[dict[str, Any]] = []
        self._frozen: weakref.WeakKeyDictionary[nn.Module, Frozen] = weakref.WeakKeyDictionary()
        self._measured: list[tuple[str, Frozen]] = []
        self._dropouts = Dropouts()
        self._heard: list[dict[str, Any]] = []

    # -- calls ---------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        self._open = None
        model = self._models.get(module)
        if model is None or model.is_old(self.watched):
            model = self._models[module] = Model(module, self.watched)
        if model.frozen:
            self._follow(module, model)
        if not ours or not model.owners:
            return
        self._newest = None
        if not trains and not module.training:
            self._dropouts.start(module)
        if not model.parts:
            return
        idle = bool(self._pending)  # the call before it was of no use: this one may be none, too
        self._sort()
        call = self._open = self._newest = _Call(
            model, trains, module.training, model.live(), _given(args, kwargs), self._source
        )
        if not trains:
            self._evaluates(call)
        elif idle or not call.live:
            call.spots = chain(sys._getframe())

    def module_ended(self, module: nn.Module, output: Any, *, ours: bool, trains: bool) -> None:
        if not trains:
            self._heard += self._dropouts.stop()
            return
        call, self._open = self._open, None
        if call is None:
            return
        nodes: list[Any] = list({tensor.grad_fn: None for tensor in tensors_in(output) if tensor.grad_fn is not None})
        for node in nodes[:_MOST_OUTPUTS]:
            mark = _Mark(call)
            node.register_prehook(mark)
            call.marks.append(weakref.ref(mark))
        if nodes:
            self._pending = [*self._pending[-_MOST_PENDING:], call]

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        call = self._newest
        if call is None or not isinstance(output, Tensor):
            return
        if call.trains == output.requires_grad:
            call.losses += 1
            if not call.trains and self._block is not None:
                self._block.losses += 1
        if output.requires_grad and len(args) > 1 and isinstance(args[1], Tensor):
            self._classes = not args[1].is_floating_point()

    def data_came(self, batch: Any, loader: Any) -> None:
        self._source = id(getattr(loader, "_dataset", None))

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if self._stepped:
            self._stepped = False
            self._used = [call for call in self._used if not call.is_gone()]  # two optimizers may use one call
        self._sort()
        for call in self._pending:
            call.waited = True

    def backward_ended(self, owners: Sequence[int]) -> None:
        for call in self._pending:
            if call.used:
                self._used = [*self._used[-_MOST_PENDING:], call]
                if call.source is not None:
                    self._sources.add(call.source)
                elif call.given is not None:
                    self._trained_on(call.given)
        self._pending = [call for call in self._pending if not call.used]

    def _trained_on(self, given: _Given) -> None:
        known = self._storages.get(given.storage)
        if known is None or known.held.expired():
            if len(self._storages) >= _MOST_KNOWN:
                self._storages = {at: one for at, one in self._storages.items() if not one.held.expired()}
            if len(self._storages) < _MOST_KNOWN:
                self._storages[given.storage] = given
        else:
            known.first, known.last = min(known.first, given.first), max(known.last, given.last)

    def _was_trained_on(self, given: _Given) -> bool:
        known = self._storages.get(given.storage)
        return known is not None and not known.held.expired() and given.first < known.last and known.first < given.last

    def step_ended(self, optimizer: Optimizer) -> None:
        self._stepped, self._source, self._newest = True, None, None
        index = self.watched.index_of(optimizer)
        calls = [call for call in self._used if index in call.model.owners]
        for moved in list(self._frozen.values()):
            moved.stepped()
        self._sort(index)
        if index is None or not calls:
            return
        if any(call.live for call in calls):
            self._lived[index] = self._lived.get(index, 0) + 1
            self._still[index] = 0
        elif not any(call.training for call in calls):
            self._still[index] = self._still.get(index, 0) + 1
            self._quiet = self._tell_quiet(index, calls)

    def _tell_quiet(self, index: int, calls: Sequence[_Call]) -> dict[str, Any]:
        parts = {part.name: part for call in calls for part in call.model.parts if part.matters()}
        return {
            "steps": self._still[index],
            "steps_before": self._lived.get(index, 0),
            "dropout": [part.name for part in parts.values() if part.kind == "dropout"],
            "norms": [part.name for part in parts.values() if part.kind == "norm"],
            "share_trained": min(call.model.share for call in calls),
            "evaluated": _told(self._last_off),
            **_told(calls[-1].spots),
        }

    def attends(self, module: nn.Module) -> bool:
        """Not once it is known how evaluations are made."""
        model = self._models.get(module)
        if model is None or not model.owners or self._woken >= _MOST_PENDING:
            return False
        self._woken += 1
        return (bool(model.parts) and not self._last_off) or (not module.training and self._dropouts.wants(module))

    # -- evaluations ---------------------------------------------------------------------------------------------

    def _sort(self, stepped: int | None = None) -> None:
        """Calls whose graph is gone, or was not used by the backward pass of a step on the same model: evaluations."""
        left = []
        for call in self._pending:
            if not (call.is_gone() or (call.waited and stepped in call.model.owners)):
                left.append(call)
            elif not call.used:
                self._evaluates(call)
        self._pending = left

    def _evaluates(self, call: _Call) -> None:
        block = self._block
        if block is None:
            block = self._block = _Block(call.model, chain(sys._getframe()) if not call.trains else call.spots)
        if not block.spots:
            block.spots = call.spots
        block.calls += 1
        block.losses += call.losses
        block.with_graph += call.trains
        block.live += call.live and call.training
        if not call.live:
            block.off += 1
            self._last_off = block.spots
        block.resets |= call.model.resets()
        given = call.given
        if given is None:
            return
        block.repeats |= _is_there(block.inputs, (given.first, given.shape))
        given.note(block.inputs, (given.first, given.shape))
        if call.source is not None:
            block.known += call.source in self._sources
            block.strange += call.source not in self._sources
            block.loaded += call.source not in self._sources
        elif self._was_trained_on(given):
            block.known += 1
        else:
            again = _is_there(self._held_out, given.storage)
            block.strange += again or given.is_part
            block.again |= again
            given.note(self._held_out)

    # -- frozen parts --------------------------------------------------------------------------------------------

    def _follow(self, module: nn.Module, model: Model) -> None:
        known = self._frozen.get(module)
        if known is None:
            known = self._frozen[module] = Frozen()
        known.meet([norm for norm in model.frozen if norm.moves()])

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        self._sort()
        self._measured = []
        for number, frozen in enumerate(list(self._frozen.values())):
            if frozen.is_due(step):
                pack.add(name := f"{self.topic}/{number}", frozen.measure())
                self._measured.append((name, frozen))
        if self._block is not None:
            self._blocks.append(self._block.told(self._classes))
            self._block = None

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        told: dict[str, Any] = {}
        if self._quiet is not None:
            told["quiet"], self._quiet = self._quiet, None
        if self._blocks:
            told["evaluations"], self._blocks = self._blocks, []
        if self._heard:
            told["functional"], self._heard = self._heard, []
        if self._measured:
            told["moved"] = [frozen.told(values[name]) for name, frozen in self._measured]
            self._measured = []
        return told or None

    def finished(self) -> None:
        for call in self._pending:
            call.marks.clear()  # nobody will use it

    def restart(self) -> None:
        self._dropouts.stop()
        self._pending, self._open, self._newest, self._block, self._source = [], None, None, None, None
        self._used.clear()

    def close(self) -> None:
        self.restart()
        self._models.clear()
        self._frozen.clear()
        self._measured = []


# -- what is remembered ------------------------------------------------------------------------------------------------


class _Mark:
    """A hook on a node of the graph: it dies with it, and knows when a backward pass comes by."""

    __slots__ = ("__weakref__", "_call")

    def __init__(self, call: _Call) -> None:
        self._call = weakref.ref(call)

    def __call__(self, gradients: Sequence[Tensor | None]) -> None:
        call = self._call()
        if call is not None:
            call.used = True


@dataclass(slots=True)
class _Given:
    """The first tensor that a call was given: where it lies, not what it holds."""

    storage: int
    first: int
    last: int
    shape: tuple[int, ...]
    is_part: bool
    """Whether it is a part of a larger one."""
    held: Any

    def note(self, known: dict[Any, Any], key: Any = None) -> None:
        if len(known) >= _MOST_KNOWN:
            for gone in [at for at, held in known.items() if held.expired()] or [next(iter(known))]:
                del known[gone]
        known[self.storage if key is None else key] = self.held


def _given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Given | None:
    for given in (*args, *kwargs.values()):
        if isinstance(given, Tensor):
            try:
                storage, first = given.untyped_storage(), given.data_ptr()
                size = given.numel() * given.element_size()
                is_part = storage.nbytes() > size
                held = StorageWeakRef(storage)
                return _Given(storage.data_ptr(), first, first + size, given.shape, is_part, held)
            except (RuntimeError, NotImplementedError):  # it has no place in memory
                return None
    return None


def _is_there(known: Mapping[Any, Any], key: Any) -> bool:
    held = known.get(key)
    return held is not None and not held.expired()


@dataclass(slots=True, weakref_slot=True)
class _Call:
    """One call of a model that an optimizer trains."""

    model: Model
    trains: bool
    training: bool
    live: bool
    given: _Given | None
    source: int | None
    """The data set whose batch came last."""
    marks: list[weakref.ref[_Mark]] = field(default_factory=list)
    used: bool = False
    waited: bool = False
    """A backward pass has begun since."""
    losses: int = 0
    spots: tuple[Spot, ...] = ()

    def is_gone(self) -> bool:
        return all(mark() is None for mark in self.marks)


@dataclass(slots=True)
class _Block:
    """Evaluations in a row: calls between two steps that no backward pass used."""

    model: Model
    spots: tuple[Spot, ...]
    calls: int = 0
    with_graph: int = 0
    live: int = 0
    """Calls of a model in training mode with live parts."""
    off: int = 0
    """Calls without any live part."""
    losses: int = 0
    known: int = 0
    """Calls on data that were trained on."""
    strange: int = 0
    """Calls on data that certainly were not."""
    loaded: int = 0
    """Of these: calls on a batch of a `DataLoader` over another data set."""
    again: bool = False
    """On data that were evaluated before."""
    repeats: bool = False
    """The same input twice."""
    resets: bool = False
    """A norm takes plain averages: its statistics are being made anew."""
    inputs: dict[Any, Any] = field(default_factory=dict)

    def told(self, classes: bool) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "with_graph": self.with_graph,
            "live": self.live,
            "off": self.off,
            "losses": self.losses,
            "known": self.known,
            "strange": self.strange,
            "loaded": self.loaded,
            "again": self.again,
            "repeats": self.repeats,
            "resets": self.resets,
            "classes": classes,
            "dropout": [part.name for part in self.model.parts if part.kind == "dropout" and part.live()],
            "norms": [part.name for part in self.model.parts if part.kind == "norm" and part.live()],
            **_told(self.spots),
        }


def _told(spots: Sequence[Spot]) -> dict[str, Any]:
    """The line that the user wrote."""
    return {"file": spots[0].file, "line": spots[0].line, "code": spots[0].source} if spots else {}
