"""Which mode the models are in: while they are trained, while they are evaluated, and where they are frozen."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.places import Spot, chain
from seismograd.probes.dropouts import Dropouts
from seismograd.probes.graph import Graph
from seismograd.probes.onlooker import Onlooker
from seismograd.probes.pack import Pack, Values
from seismograd.probes.validation import StorageWeakRef
from seismograd.probes.watched import Watched

_NAMES = ("dropout", "droppath", "stochasticdepth")
"""Classes of others that are called like this drop something, by a rate of one of these names:"""
_RATES = ("p", "drop_prob", "drop_rate")

_MOST_PENDING = 256
_MOST_OUTPUTS = 8
_MOST_KNOWN = 64
_ANEW = 64
"""After so many calls of a model its parts are looked for anew: they come, go, and are frozen."""


class Modes(Onlooker):
    """Tells of steps trained with every part in evaluation mode, of evaluations, and of frozen parts that move.

    A *part* is a module that behaves differently in the two modes: dropout with a rate above zero, a norm with running
    statistics. It is *live* in training mode. A call belongs to training if a backward pass finds its graph alive, and
    is an evaluation if it made none or if that died unused.
    """

    topic: ClassVar[str] = "modes"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._models: weakref.WeakKeyDictionary[nn.Module, _Model] = weakref.WeakKeyDictionary()
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
        self._frozen: weakref.WeakKeyDictionary[nn.Module, _Frozen] = weakref.WeakKeyDictionary()
        self._measured: list[tuple[str, _Frozen]] = []
        self._dropouts = Dropouts()
        self._heard: list[dict[str, Any]] = []

    # -- calls ---------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        self._open = None
        model = self._models.get(module)
        if model is None or model.is_old(self.watched):
            model = self._models[module] = _Model(module, self.watched)
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
        nodes: list[Any] = list({tensor.grad_fn: None for tensor in _tensors(output) if tensor.grad_fn is not None})
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

    def _follow(self, module: nn.Module, model: _Model) -> None:
        known = self._frozen.get(module)
        if known is None:
            known = self._frozen[module] = _Frozen()
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

    model: _Model
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

    model: _Model
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


class _Part:
    """A module that behaves differently in the two modes."""

    __slots__ = ("_module", "kind", "name")

    def __init__(self, name: str, module: nn.Module, kind: str) -> None:
        self.name, self.kind = name, kind
        self._module = weakref.ref(module)

    def live(self) -> bool:
        module = self._module()
        return module is not None and module.training

    def matters(self) -> bool:
        """Whether training needs it live: not a norm that is frozen."""
        weight = getattr(self._module(), "weight", None) if self.kind == "norm" else None
        return weight is None or bool(weight.requires_grad)

    def resets(self) -> bool:
        return self.kind == "norm" and getattr(self._module(), "momentum", 0.0) is None


class _Model:
    """What is known of a module that was called: its parts, its frozen norms, who trains it."""

    def __init__(self, module: nn.Module, watched: Watched) -> None:
        roster = self._roster = watched.roster
        self._calls = 0
        names = {
            id(inner): ".".join(part for part in (prefix, name) if part).replace("_orig_mod.", "")
            for prefix, model in watched.models.items()
            for name, inner in model.named_modules()
        }
        mine = {id(parameter) for parameter in module.parameters()}
        held = [{id(roster.parameters[at]) for at in members} & mine for members in roster.members]
        self.owners = {index for index, theirs in enumerate(held) if theirs}
        """The optimizers that hold parameters of it."""
        trained = set().union(*held)
        sizes = [(p.numel(), id(p) in trained and p.requires_grad) for p in module.parameters() if _is_real(p)]
        self.share = sum(size for size, is_trained in sizes if is_trained) / max(1, sum(size for size, _ in sizes))
        """How much of it is trained."""
        self.parts: list[_Part] = []
        self.frozen: list[_Norm] = []
        whole = not any(parameter.requires_grad for parameter in module.parameters())
        before: Tensor | None = None
        for path, inner in module.named_modules():
            kind = _kind_of(inner)
            name = names.get(id(inner), path) or type(inner).__name__
            if kind is not None:
                self.parts.append(_Part(name, inner, kind))
            weight = inner._parameters.get("weight")
            if isinstance(inner, _NORMS):
                frozen = weight is not None and not weight.requires_grad
                if (
                    kind == "norm"
                    and frozen
                    and (whole or self.owners)
                    and (before is None or not before.requires_grad)
                ):
                    self.frozen.append(_Norm(name, inner, before))
            elif weight is not None and _is_real(weight) and weight.ndim > 1:
                before = weight

    def is_old(self, watched: Watched) -> bool:
        self._calls += 1
        return self._calls > _ANEW or self._roster is not watched.roster

    def live(self) -> bool:
        return any(part.live() for part in self.parts)

    def resets(self) -> bool:
        return any(part.resets() for part in self.parts)


class _Norm:
    """A norm whose own weights and whose layer before it are frozen."""

    __slots__ = ("_before", "_module", "name")

    def __init__(self, name: str, module: nn.Module, before: Tensor | None) -> None:
        self.name = name
        self._module = weakref.ref(module)
        self._before = None if before is None else weakref.ref(before)

    def moves(self) -> bool:
        """Whether it is in training mode, and still frozen."""
        module: Any = self._module()
        before = None if self._before is None else self._before()
        if module is None or not module.training or getattr(module, "momentum", None) == 0.0:
            return False
        return not (module.weight.requires_grad or (before is not None and before.requires_grad))

    def values(self) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Mean, variance, some of the weights, and whether it looks as if it had seen one batch at most."""
        module: Any = self._module()
        before = None if self._before is None else self._before()
        if module is None or module.running_mean is None:
            return None
        weights = [w.detach().reshape(-1)[:64].float() for w in (module.weight, before) if isinstance(w, Tensor)]
        seen = module.num_batches_tracked
        kept = 1.0 - (0.0 if module.momentum is None else module.momentum)
        fresh = module.running_var.min() >= kept - 1e-3
        fresh = fresh & (seen <= 1) if isinstance(seen, Tensor) else fresh
        return module.running_mean.clone(), module.running_var.clone(), torch.cat(weights), fresh


class _Frozen:
    """How the frozen norms of one model move from step to step."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._steps, self._told, self._since, self._heard, self._called = 0, 0, -1, 0, False
        self._norms: list[_Norm] = []
        self._first: list[tuple[Tensor, Tensor, Tensor, Tensor] | None] = []

    def meet(self, norms: list[_Norm]) -> None:
        """The model is called: these are in training mode although they are frozen."""
        if not norms:
            self._clear()
            return
        if [norm.name for norm in norms[:3]] != [norm.name for norm in self._norms[:3]]:
            self._clear()
            self._first = [norm.values() for norm in norms[:3]]
        self._norms, self._called = norms, True

    def stepped(self) -> None:
        self._heard += self._called
        self._called = False

    def is_due(self, step: int) -> bool:
        if not self._heard:
            return False
        self._since = step if self._since < 0 else self._since
        self._steps = step - self._since + 1
        return self._heard >= 3 and self._steps >= max(5, 2 * self._told)

    def measure(self) -> list[Tensor]:
        """For each: the shift of its mean in deviations, of its variance in powers of e, of a weight; was it fresh?"""
        self._told = self._steps
        shifts, ratios, weights, fresh = [], [], [], []
        for norm, first in zip(self._norms, self._first, strict=False):
            now = norm.values()
            if first is None or now is None or now[2].shape != first[2].shape:
                continue
            scale = first[1].float() + 1e-5
            shifts.append(((now[0] - first[0]).float() / scale.sqrt()).abs().mean())
            ratios.append(((now[1].float() + 1e-5) / scale).log().abs().mean())
            weights.append((now[2] - first[2]).abs().max())
            fresh.append(first[3])
        return [*shifts, *ratios, *weights, *fresh]

    def told(self, numbers: list[float]) -> dict[str, Any]:
        count = len(numbers) // 4
        return {
            "steps": self._steps,
            "norms": [norm.name for norm in self._norms],
            "shift": max(numbers[:count], default=0.0),
            "ratio": max(numbers[count : 2 * count], default=0.0),
            "weights": max(numbers[2 * count : 3 * count], default=0.0),
            "fresh": any(numbers[3 * count :]),
        }


_NORMS = nn.modules.batchnorm._NormBase


def _kind_of(module: nn.Module) -> str | None:
    """`dropout`, `norm`, or None where the mode makes no difference that can be known."""
    if isinstance(module, _NORMS):
        return "norm" if module.track_running_stats and module.running_mean is not None else None
    if isinstance(module, nn.RNNBase):
        return "dropout" if module.dropout > 0 and module.num_layers > 1 else None
    if isinstance(module, nn.MultiheadAttention):
        return "dropout" if module.dropout > 0 else None
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return "dropout" if module.p > 0 else None
    if type(module).__name__.lower().startswith(_NAMES):
        rates = (getattr(module, name, None) for name in _RATES)
        return "dropout" if any(isinstance(rate, float) and rate > 0 for rate in rates) else None
    return None


def _is_real(parameter: Tensor) -> bool:
    return not isinstance(parameter, nn.parameter.UninitializedParameter)


def _tensors(output: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif depth < 3 and isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value, depth + 1)
    elif depth < 3 and isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value, depth + 1)


def _told(spots: Sequence[Spot]) -> dict[str, Any]:
    """The line that the user wrote."""
    return {"file": spots[0].file, "line": spots[0].line, "code": spots[0].source} if spots else {}
