"""The order of things in the loop: forward, backward, clipping, step, `zero_grad`, scheduler, for each optimizer."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd import places
from seismograd.onlookers.graph import Graph
from seismograd.onlookers.loop.schedules import Schedule
from seismograd.onlookers.loop.turns import CHANGED, NONE, SAME, Lane, Turn
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.probes.pack import Pack, Values
from seismograd.probes.shares import divisors_of, is_one
from seismograd.probes.watched import Watched

_ANALYSED, _OF_LONG_TURNS = 32, 96
"""So many graphs are looked at: how the loss was reduced, and what it is a function of. Later only the first ones of
each turn: many batches may be accumulated."""

_DOUBTED = 8
"""In so many first turns everything is measured."""

_NO_LIMIT = 1e6
"""Whoever clips to more than that wants to know the norm."""

_PLACED = 3
"""At so many backwards it is noted which of the user's lines made the loss."""

_MOST_TURNS, _MOST_SCHEDULES = 32, 16
"""So many are told of at once."""

_LOSSES = (
    "NllLoss",
    "NllLoss2D",
    "MseLoss",
    "BinaryCrossEntropy",
    "BinaryCrossEntropyWithLogits",
    "SmoothL1Loss",
    "HuberLoss",
)
_MEAN = 1


class Order(Onlooker):
    """Tells of each step what its gradients went through since the step before it, and who waits for a step in vain."""

    topic: ClassVar[str] = "order"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._lanes: dict[int, Lane] = {}
        self._open: list[set[int]] = []  # the optimizers of backwards that no step has answered
        self._done: list[tuple[Lane, int, Turn]] = []
        self._schedules: dict[int, Schedule] = {}
        self._stepped: list[Schedule] = []
        self._told: dict[str, Any] = {}
        self._waits: list[tuple[dict[str, Any], str]] = []
        self._owners: dict[int, int] = {}
        self._owners_of: Any = None
        self._input: weakref.ref[Tensor] | None = None
        self._samples: int | None = None
        self._training = True
        self._new_input = self._new_batch = self._loads = False
        self._length: int | None = None  # of the loader that gave the last batch
        self._number = self._loader = 0  # of that batch in it; which one it is
        self._epoch_length: int | None = None  # of the loader that is trained on
        self._epochs = self._last_number = 0
        self._scaler: weakref.ref[Any] | None = None
        self._is_scaled = False
        self._fresh = self._fresh_input = True
        self._analysed = 0
        self._root: tuple[str | None, int] | None = None  # of the present backward, where it is analysed
        self._divisors: tuple[int, ...] = ()  # of its loss
        self._line: Any = None  # where the present backward was called
        self._backwards = 0
        self._made: list[tuple[places.Spot, ...]] = []
        """Where the newest modules and losses of the first steps were called."""
        self._spots: tuple[places.Spot | None, places.Spot | None] = (None, None)
        """Of the loss of the present backward, and of a framework's call."""
        self._attacks = False
        self._framework: str | None = None
        self._over = False

    # -- data and forward ----------------------------------------------------------------------------------------

    def data_came(self, batch: Any, loader: Any) -> None:
        self._loads = self._new_batch = True
        self._loader, self._number = id(loader), getattr(loader, "_num_yielded", 0)
        for lane in self._lanes.values():
            lane.turn.fetched += 1
            lane.turn.loaders.add(self._loader)
        try:
            self._length = len(loader)
        except (TypeError, NotImplementedError):
            self._length = None

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if not ours or not trains:
            return
        self._training = module.training
        self._note_line()
        tensor = _first_tensor(args, kwargs)
        if tensor is not None:
            if self._input is None or self._input() is not tensor:
                self._input, self._new_input = weakref.ref(tensor), True
            self._samples = tensor.shape[0] if tensor.ndim else None
        for lane in self._lanes.values():
            lane.turn.note("forward")

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        if self._made:  # a model was called before, to train
            self._note_line()

    def _note_line(self) -> None:
        if self._backwards < _PLACED:
            self._made = [*self._made[-7:], places.chain(sys._getframe())]

    # -- backward ------------------------------------------------------------------------------------------------

    def scaled(self, scaler: Any) -> None:
        self._scaler, self._is_scaled = weakref.ref(scaler), True

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        self._fresh = self._new_batch if self._loads else self._new_input
        self._fresh_input = self._new_input
        if self._new_batch:
            self._epoch_length = self._length
            self._epochs += self._number <= self._last_number or not self._epochs
            self._last_number = self._number
        self._new_batch = self._new_input = False
        for lane in self._lanes.values():
            self._see(lane)
        analyses = graph is not None and self._analysed < self._most_analysed()
        self._root, self._line = None, None
        self._backwards += 1
        self._spots = (None, None)
        if self._backwards <= _PLACED:
            spots = places.chain(sys._getframe())
            loss = places.of_loss(spots, self._made)
            self._spots, self._made = (loss, spots[0] if spots and loss != spots[0] else None), []
        if graph is not None and analyses:
            self._analyse(graph)
            self._divisors = divisors_of(roots[0]) if len(roots) == 1 else ()
        if analyses or any(lane.suspect for lane in self._lanes.values()):
            self._line = tuple((spot.code, spot.line) for spot in places.chain(sys._getframe()))

    def _most_analysed(self) -> int:
        begins = any(lane.turn.kept < 2 for lane in self._lanes.values())
        return _OF_LONG_TURNS if begins else _ANALYSED

    def _see(self, lane: Lane) -> None:
        """How a lane's gradients are now that a backward begins."""
        turn = lane.turn
        if turn.tried:  # a scaler skipped the step: nothing is to be learned from it
            self._answer(lane.index)
            lane.begin()
            turn = lane.turn
        condition = lane.condition()
        if condition != SAME:
            turn.uncleared = False
        elif turn.uncleared and not turn.left and turn.whole and (lane.steps < _DOUBTED or lane.suspect):
            turn.left = lane.norms()
        if condition == NONE or (condition == CHANGED and turn.cleared is not None):
            if any(lane.index in owners for owners in self._open):
                self._throw(lane)
            turn.kept = turn.fresh = turn.inputs = 0
            turn.losses, turn.divisors, turn.sources = set(), set(), set()

    def _throw(self, lane: Lane) -> None:
        """Gradients were cleared that no step has used."""
        turn = lane.turn
        for owners in self._open:
            owners.discard(lane.index)
        self._open = [owners for owners in self._open if owners]
        if self._attacks:  # the gradient of an input was wanted
            return
        turn.rounds += 1
        if self._fresh:
            turn.thrown += 1
            moved = lane.weights_moved_between()
            if moved is not None and len(turn.moved) < 8:
                turn.moved.append(moved)

    def _analyse(self, graph: Graph) -> None:
        self._analysed += 1
        roster = self.watched.roster
        leaves = list(graph.leaves)
        known = [leaf for leaf in leaves if leaf in roster]
        if known and not all(leaf in roster or isinstance(leaf, nn.Parameter) for leaf in leaves):
            self._attacks = True
        self._root = (_reduction(graph, self._is_scaled), hash(frozenset(map(id, known))))

    def backward_ended(self, owners: Sequence[int]) -> None:
        scaled, self._is_scaled = self._is_scaled, False
        optimizers = self.watched.optimizers
        given: set[int] = set()
        for index in owners:
            if not 0 <= index < len(optimizers):
                continue
            lane, optimizer = self._lane(index), optimizers[index]
            turn = lane.turn
            if turn.uncleared and lane.condition() != SAME:
                turn.grew = True
            if not lane.choose(optimizer):
                continue
            given.add(index)
            lane.kind = type(optimizer).__name__
            made, call = self._spots
            if call is not None and "framework" not in lane.places:
                lane.place("framework", call)
                lane.places.pop("backward", None)  # of the first backward it may not be known who made its loss
            lane.place("backward", made)
            turn.note("backward")
            turn.backwards += 1
            turn.kept += 1
            turn.fresh += self._fresh
            turn.inputs += self._fresh_input
            if self._root is not None:
                loss, leaves = self._root
                turn.losses.add(loss)
                turn.divisors.add(self._divisors)
                turn.sources.add((leaves, self._loader))
            turn.lines.add(self._line)
            turn.cleared, turn.scheduled_early = None, False
            turn.scaled, turn.unscaled = scaled, False
            if turn.backwards == (2 if not lane.steps else 32):
                lane.watch_weights(optimizer)
            if turn.rounds or lane.suspect:
                lane.mark_weights()
        if given and given not in self._open:
            self._open.append(given)

    # -- gradients -----------------------------------------------------------------------------------------------

    def cleared(self, owner: Optimizer | nn.Module) -> None:
        is_module = isinstance(owner, nn.Module)
        for lane in self._lanes.values():
            turn = lane.turn
            if is_module or owner is self._optimizer(lane):
                lane.clears += 1
                turn.cleared = turn.clearer = "module" if is_module else "optimizer"
                turn.note("zero_grad")
                lane.place("zero_grad")
            else:
                turn.strange += 1

    def clipped(self, parameters: Sequence[Tensor], limit: float, kind: str) -> None:
        if not math.isfinite(limit) or limit >= _NO_LIMIT:
            return
        held = next((p for p in parameters if p.grad is not None), None)
        owners = [self._owner(p) for p in (parameters[0], parameters[-1])] if parameters else []
        for lane in self._lanes.values():
            turn = lane.turn
            if not parameters or (held is None and lane.index not in owners):
                if not turn.backwards:
                    continue
                turn.clips.append("nothing")
            elif lane.index not in owners:
                continue
            elif not turn.backwards:
                turn.clips.append("early" if held is None else "late")
            elif held is None:
                turn.clips.append("nothing")
            elif turn.scaled and not turn.unscaled:
                turn.clips.append("scaled")
                turn.scale = self._scale()
            else:
                turn.clips.append("right")
            del turn.clips[8:]
            turn.limit = limit
            lane.remember()
            turn.note("clip")
            lane.place("clip")

    def unscaled(self, optimizer: Optimizer) -> None:
        lane = self._lane_of(optimizer)
        if lane is not None and not lane.turn.tried:
            lane.turn.unscaled = True
            lane.remember()
            lane.turn.note("unscale")

    # -- steps ---------------------------------------------------------------------------------------------------

    def scaler_steps(self, optimizer: Optimizer) -> None:
        lane = self._lane_of(optimizer)
        if lane is not None:
            lane.turn.tried = True

    def step_starts(self, optimizer: Optimizer) -> None:
        lane = self._lane_of(optimizer)
        if lane is None:
            return
        turn = lane.turn
        lane.place("step")
        turn.note("step")
        if not turn.backwards:  # they come in its closure
            return
        condition = lane.condition()
        if condition == NONE:
            turn.empty = lane.has_none(optimizer)
        elif condition == CHANGED:
            turn.handmade = not turn.tried  # the scaler unscales by itself
            if turn.cleared is not None or (turn.handmade and lane.steps < _DOUBTED):
                turn.used = lane.norms()

    def step_ended(self, optimizer: Optimizer) -> None:
        lane = self._lane_of(optimizer)
        if lane is None:
            return
        turn = lane.turn
        self._answer(lane.index)
        if turn.fetched_ahead():
            turn.fresh = turn.kept
        lane.steps += 1
        lane.suspect = 8 if (turn.uncleared and turn.grew) or turn.thrown else max(0, lane.suspect - 1)
        if len(self._done) < _MOST_TURNS:
            self._done.append((lane, lane.steps, turn))
        lane.begin()

    def _answer(self, index: int) -> None:
        if self._open:
            self._open = [owners for owners in self._open if index not in owners]

    def steps_in(self, surroundings: Mapping[str, Any]) -> None:
        self._framework = surroundings.get("framework")

    def scheduled(self, scheduler: Any) -> None:
        index = self._index(getattr(scheduler, "optimizer", None))
        if index is None:
            return
        lane = self._lane(index)
        turn = lane.turn
        turn.note("scheduler")
        turn.schedules += 1
        turn.scheduled_early = turn.backwards > 0 and not turn.tried
        if turn.backwards or lane.steps:  # before that it may be told of later than it happened
            lane.place("scheduler")
        schedule = self._schedules.get(id(scheduler))
        if schedule is None or schedule.reference() is not scheduler:
            if len(self._schedules) >= _MOST_SCHEDULES:
                return
            schedule = self._schedules[id(scheduler)] = Schedule(scheduler, index)
        schedule.stepped(scheduler, lane.steps, idle=not turn.backwards)
        if schedule not in self._stepped:
            self._stepped.append(schedule)

    # -- what is told --------------------------------------------------------------------------------------------

    def restart(self) -> None:
        self._open.clear()
        self._done.clear()
        self._stepped.clear()
        for schedule in self._schedules.values():
            schedule.missed()
        for lane in self._lanes.values():
            lane.forget()

    def finished(self) -> None:
        self._over = True

    def look(self, pack: Pack, step: int) -> None:
        done, self._done = self._done, []
        stepped, self._stepped = self._stepped, []
        several = len(self.watched.optimizers) > 1
        if self._over:
            stepped = list(self._schedules.values())
        self._waits = []
        for lane in self._lanes.values():
            turn = lane.turn
            count = turn.backwards
            if count >= lane.next_tell or (self._over and count):
                lane.next_tell = count + max(1, count // 4)
                moved = lane.weights_moved()
                name = f"order/moved/{lane.index}"
                if moved is not None:
                    pack.add(name, [moved])
                self._waits.append((self._waiting(lane), name))
        for number, (_, _, turn) in enumerate(done):
            turn.send(pack, f"order/{number}")
        self._told = {
            "turns": done,
            "schedules": [schedule.tell() for schedule in stepped],
            "several": several,
            "epoch": self._epoch_length,
            "epochs": self._epochs,
            "over": self._over,
            "framework": self._framework,
        }

    def _waiting(self, lane: Lane) -> dict[str, Any]:
        turn = lane.turn
        others = any(other.steps for other in self._lanes.values() if other is not lane)
        return {
            "optimizer": lane.index,
            "kind": lane.kind,
            "steps": lane.steps,
            "backwards": turn.backwards,
            "rounds": turn.rounds,
            "clearer": turn.clearer,
            "schedules": turn.schedules,
            "samples": self._samples,
            "training": self._training,
            "others": others,
            "tried": turn.tried,
            "attacks": self._attacks,
            "order": list(turn.order[:6]),
            "places": lane.places,
        }

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        told, self._told = self._told, {}
        if not told or not (told["turns"] or self._waits or told["schedules"]):
            return None
        turns = []
        for number, (lane, steps, turn) in enumerate(told["turns"]):
            more = {"optimizer": lane.index, "kind": lane.kind, "steps": steps, "clears": lane.clears}
            turns.append({**turn.tell(values, f"order/{number}"), **more, "places": lane.places})
        waiting = [{**wait, "moved": bool(values[name][0]) if values.get(name) else None} for wait, name in self._waits]
        return {**told, "turns": turns, "waiting": waiting, "loads": self._loads}

    def close(self) -> None:
        self._lanes.clear()
        self._schedules.clear()
        self._stepped.clear()
        self._done.clear()
        self._told, self._waits, self._owners, self._owners_of = {}, [], {}, None

    # -- who is who ----------------------------------------------------------------------------------------------

    def _lane(self, index: int) -> Lane:
        lane = self._lanes.get(index)
        if lane is None:
            lane = self._lanes[index] = Lane(index)
        return lane

    def _index(self, optimizer: Any) -> int | None:
        inner = getattr(optimizer, "optimizer", optimizer)
        return next((at for at, known in enumerate(self.watched.optimizers) if known is inner), None)

    def _lane_of(self, optimizer: Optimizer) -> Lane | None:
        index = self._index(optimizer)
        return None if index is None else self._lane(index)

    def _optimizer(self, lane: Lane) -> Optimizer | None:
        optimizers = self.watched.optimizers
        return optimizers[lane.index] if lane.index < len(optimizers) else None

    def _owner(self, parameter: Tensor) -> int | None:
        """The optimizer that holds a parameter."""
        if self._owners_of is not self.watched.roster:
            self._owners_of = self.watched.roster
            self._owners = {
                id(p): index
                for index, optimizer in enumerate(self.watched.optimizers)
                for group in optimizer.param_groups
                for p in group["params"]
            }
        return self._owners.get(id(parameter))

    def _scale(self) -> Tensor | None:
        scaler = None if self._scaler is None else self._scaler()
        scale = getattr(scaler, "_scale", None)
        return scale.detach().clone().reshape(()) if isinstance(scale, Tensor) else None


def _first_tensor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    return next(tensors_in((args, kwargs)), None)


def _reduction(graph: Graph, scaled: bool) -> str | None:
    """`mean` if the root is a loss of torch's, a mean over the batch, multiplied by nothing but a scaler's scale."""
    if len(graph.starts) != 1:
        return None
    node = graph.nodes[graph.starts[0]]
    if scaled and node.name == "Mul" and node.into and node.into[0] >= 0:
        node = graph.nodes[node.into[0]]
    # Accelerate divides by 1 where nothing is accumulated, a Trainer multiplies by the number of processes
    while node.name in ("Div", "Mul") and node.into and node.into[0] >= 0 and is_one(node.saved().get("other")):
        node = graph.nodes[node.into[0]]
    is_mean = node.name in _LOSSES and getattr(node.function, "_saved_reduction", None) == _MEAN
    return "mean" if is_mean else None
