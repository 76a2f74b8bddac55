"""Has onlookers hear what happens in the loop, and hands on what they tell."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import nn

from seismograd import patches
from seismograd.governor import Governor
from seismograd.onlookers import ONLOOKERS
from seismograd.onlookers.graph import Graph, Span
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.values.activations import units_table
from seismograd.probes.pack import Fetch, Pack
from seismograd.probes.watched import Watched
from seismograd.records import Reading

DENSE = 24
"""So many steps at the beginning are looked at in full: most mistakes of a loop can be known by then."""

FRUITLESS = 6
"""After so many backwards in a row that are nobody's, what was heard is told: no step will come."""

_MOST_SPANS = 20_000
_MOST_OUTPUTS = 16


class Lookout:
    """Owns the onlookers. One that fails is dropped; their time is the governor's to ration."""

    def __init__(
        self,
        watched: Watched,
        governor: Governor,
        *,
        take: Callable[[Reading], object],
        fail: Callable[[str, Exception], None],
        rank: int,
    ) -> None:
        self._governor, self._watched = governor, watched
        self._take, self._fail, self._rank = take, fail, rank
        self._onlookers: list[Onlooker] = [kind(watched) for kind in ONLOOKERS]
        self.looks = True
        """Whether the present step is looked at in full."""
        self._hearers: dict[str, list[tuple[Onlooker, Callable[..., None]]]] = {}
        self._calls = _Calls(watched)
        self._in_flight: tuple[int, Fetch] | None = None
        self._backwards = 0  # since the last step was over
        self._fruitless = 0  # backwards in a row that changed no gradient of ours
        self._outermost: tuple[bool, bool] | None = None

    def add(self, onlooker: Onlooker) -> None:
        """One more, which needs what this does not know of."""
        self._onlookers.append(onlooker)
        self._hearers = {}

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], ours: bool, trains: bool
    ) -> None:
        self._outermost = (ours, trains)
        self._tell("module_starts", module, args, kwargs, ours=ours, trains=trains)
        if self.looks and trains:
            self._calls.begin(module)

    def module_ended(self, module: nn.Module, output: Any) -> None:
        self._calls.end(output)
        if self._outermost is not None:
            (ours, trains), self._outermost = self._outermost, None
            self._tell("module_ended", module, output, ours=ours, trains=trains)

    def module_failed(self) -> None:
        self._calls.end()
        self._outermost = None

    def backward_starts(self, roots: Sequence[Any]) -> None:
        graph: Graph | None = None
        if self.looks:
            began = perf_counter()
            graph = Graph(roots, self._calls.take())
            self._governor.spend_on_tables(perf_counter() - began)
        self._tell("backward_starts", roots, graph)

    def backward_ended(self, owners: Sequence[int]) -> None:
        self._tell("backward_ended", owners)
        self._backwards += 1
        self._fruitless = 0 if owners else self._fruitless + 1
        if self._fruitless == FRUITLESS or (self._backwards >= DENSE and self._backwards & (self._backwards - 1) == 0):
            self._look(max(self._step, 0))  # nobody steps: that may be what is wrong
        if self._backwards >= DENSE:
            self._decide(False)

    def happens(self, what: str, *args: Any) -> None:
        """`step_starts`, `step_ended`, `cleared`, `clipped`, `unscaled`, `scheduled`, `data_came`, `loss_computed`,
        `scaled`, `scaler_steps`, `steps_in`, `abandoned`."""
        self._tell(what, *args)

    def loss_failed(self, step: int, name: str, args: Sequence[Any], error: Exception) -> None:
        """A loss raised: what is known of it is told now, there may be no end of the step."""
        self._tell_now(step, lambda onlooker: onlooker.loss_failed(name, args, error))

    def backward_failed(self, step: int, error: BaseException) -> None:
        self._tell_now(step, lambda onlooker: onlooker.backward_failed(error))

    def forward_failed(self, error: BaseException) -> None:
        self._tell("forward_failed", error, everyone=True)

    def failed(self, step: int, error: BaseException) -> None:
        """The run ends with an error."""
        self._tell_now(step, lambda onlooker: onlooker.failed(error))

    def _tell_now(self, step: int, ask: Callable[[Onlooker], Mapping[str, Any] | None]) -> None:
        facts: dict[str, Mapping[str, Any]] = {}
        for onlooker in list(self._onlookers):
            try:
                told = ask(onlooker)
            except Exception as failure:
                self._drop(onlooker, failure)
                continue
            if told:
                facts[onlooker.topic] = told
        if facts:
            self._take(Reading(step, rank=self._rank, facts=facts))

    def attends(self, module: nn.Module) -> bool:
        return any(onlooker.attends(module) for onlooker in self._onlookers)

    def restart(self) -> None:
        self._calls.take()
        self._tell("restart", everyone=True)

    # -- the end of a step ---------------------------------------------------------------------------------------

    _step = -1

    def step_over(self, step: int) -> None:
        """The step is over, and the governor has decided about the next."""
        self._step = step
        self._look(step)
        self._backwards = 0
        self._calls.take()
        self._decide(self._governor.reads and (step + 1 < DENSE or self._governor.takes_tables))

    def _decide(self, looks: bool) -> None:
        if looks != self.looks:
            self.looks = looks
            for onlooker in self._onlookers:
                onlooker.looks = looks

    def finish(self, step: int) -> None:
        """The run is over."""
        self._decide(True)
        self._tell("finished", everyone=True)
        self._look(max(step, 0))
        self._land()

    def close(self) -> None:
        self._tell("close", everyone=True)
        self._onlookers, self._hearers = [], {}
        self._calls.end()

    def _look(self, step: int) -> None:
        self._land()
        pack = Pack()
        self._tell("look", pack, step, everyone=True)
        fetch = pack.send()
        fetch.start()
        self._in_flight = (step, fetch)
        if fetch.is_here:  # what lies on an accelerator is told a step later: no facts are worth a wait
            self._land()

    def _land(self) -> None:
        if self._in_flight is None:
            return
        (step, fetch), self._in_flight = self._in_flight, None
        values = fetch.values()
        facts: dict[str, Mapping[str, Any]] = {}
        for onlooker in list(self._onlookers):
            try:
                told = onlooker.facts(values, step)
            except Exception as error:
                self._drop(onlooker, error)
                continue
            if told:
                facts[onlooker.topic] = told
        if facts:
            tables = {"activation": units_table(facts["activations"])} if "activations" in facts else {}
            self._take(Reading(step, tensors=tables, rank=self._rank, facts=facts))

    def _tell(self, event: str, *args: Any, everyone: bool = False, **more: Any) -> None:
        if _transforms() is not None and not everyone:
            return  # under `torch.func` tensors are none that could be kept until the end of the step
        hearers = self._hearers.get(event)
        if hearers is None:
            hearers = self._hearers[event] = self._who_hears(event)
        for onlooker, hear in hearers:
            if not onlooker.dear:
                try:
                    hear(*args, **more)
                except Exception as error:
                    self._drop(onlooker, error)
            elif self.looks or everyone:
                began = perf_counter()
                try:
                    hear(*args, **more)
                except Exception as error:
                    self._drop(onlooker, error)
                self._governor.spend_on_tables(perf_counter() - began)

    def _who_hears(self, event: str) -> list[tuple[Onlooker, Callable[..., None]]]:
        nothing = getattr(Onlooker, event)
        return [(each, getattr(each, event)) for each in self._onlookers if getattr(type(each), event) is not nothing]

    def _drop(self, onlooker: Onlooker, error: Exception) -> None:
        self._onlookers = [kept for kept in self._onlookers if kept is not onlooker]
        self._hearers = {}
        self._fail(f"the probe of {onlooker.topic}", error)


class _Calls:
    """Notes which nodes of the graph were made in which module: a follower of one forward pass."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._names: dict[int, str | None] = {}
        self._spans: list[Span] = []
        self._open: list[Span] = []
        self._follows = False

    def begin(self, module: nn.Module) -> None:
        if patches.follow(self):
            self._follows = True
            self._open.clear()
            self.module_starts(module)

    def end(self, output: Any = None) -> None:
        if self._follows:
            self._follows = False
            patches.unfollow(self)
            while self._open:
                self.module_ended(output if len(self._open) == 1 else None)

    def module_starts(self, module: nn.Module) -> None:
        if len(self._spans) < _MOST_SPANS:
            now = _number()
            span = Span(module, None, now, now, len(self._open))
            if self._open:
                span.caller = sys._getframe(2).f_code  # above the frame of our patch
            self._spans.append(span)
            self._open.append(span)
        else:
            self._open.append(_NOWHERE)

    def module_ended(self, output: Any = None) -> None:
        if not self._open:
            return
        span = self._open.pop()
        span.last = _number()
        if span is not _NOWHERE:
            made = [(tensor, tensor.grad_fn) for tensor in tensors_in(output)]
            span.gave = tuple(node._sequence_nr() for _, node in made[:_MOST_OUTPUTS] if node is not None)
            span.output = next((weakref.ref(tensor) for tensor, node in made if node is not None), None)

    def take(self) -> list[Span]:
        """The calls since the last time, with their names."""
        spans, self._spans = self._spans, []
        if spans and any(id(span.module) not in self._names for span in spans):
            self._names = {
                id(module): ".".join(part for part in (prefix, name) if part).replace("_orig_mod.", "")
                for prefix, model in self._watched.models.items()
                for name, module in model.named_modules()
            }
        for span in spans:
            span.name = self._names.setdefault(id(span.module), None)
        return spans


_NOWHERE = Span(nn.Identity(), None, 0, 0, 0)
_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
_transforms: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
