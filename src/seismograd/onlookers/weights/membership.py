"""Which parameters take part in the loss, get gradients, sit in an optimizer, and change."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.onlookers.graph import Graph, Span
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.weights import flow
from seismograd.onlookers.weights.fresh import fresh
from seismograd.onlookers.weights.history import has_no_history, raised_at
from seismograd.onlookers.weights.holders import Holders
from seismograd.onlookers.weights.idle import Idle
from seismograd.places import Spot, chain, of_loss
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Roster, Watched
from seismograd.stats.tensors import dense, there

_MOST_SUSPECTS = 64
_SLICE = 64
"""So many elements of a suspect are kept, to see whether someone changes it by hand."""

_MOST_WEIGHTS, _FEW = 16, 16
"""Of so many weights the first elements are compared from step to step, to see whether someone puts them back."""

_IN_PART = 2.0
"""Told of a weight in which only the first elements are put back."""

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_MOST_NAMES = 32

_PLACED = 3
"""At so many backwards the line is noted that is told."""

_MEANT = "requiresgrad"


_PATIENCE = 16
"""So many looks are waited for a parameter that was added or unfrozen during the run."""


class Membership(Onlooker):
    """Follows who is reached by backward, who is held by whom, which modules are called. It counts over the run."""

    topic = "parameters"
    dear = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._roster: Roster | None = None
        self._looks = self._backwards = 0
        self._heard = False  # since the last facts
        self._reached: set[str] = set()
        self._since: dict[str, int] = {}  # the look at which one that needs a gradient was first seen without
        self._blocked: dict[str, str] = {}  # reached through an op without a slope, and that op
        self._free: set[str] = set()  # reached in another way, too
        self._frozen_once: set[str] = set()  # seen without requires_grad
        self._stale: Counter[str] = Counter()  # frozen, yet moved by a step
        self._strangers: set[tuple[int, ...]] = set()  # shapes of parameters that are reached and not on the roster
        self._called: set[str] = set()
        self._silent: set[str] = set()  # called in evaluation mode
        self._order: list[str] = []  # of calls, in the newest backward's forward pass
        self._cut: dict[str, int] = {}  # unreached modules before a place where data enters without a gradient
        self._idle = Idle()
        self._over = False
        self._outside: dict[str, dict[str, Any]] = {}
        self._fresh: dict[str, bool] = {}  # models outside of all optimizers: are they as torch made them?
        self._doubted: list[str] = []  # those that the pack is to tell of
        self._unregistered: dict[str, dict[str, Any]] = {}
        self._samples: dict[str, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._moved: set[str] = set()  # suspects that someone changes by hand
        self._asked: list[str] = []  # those whose change is on its way in the pack
        self._steps: dict[int, list[int]] = {}  # by optimizer: how many, and how many with any gradient
        self._versions: dict[str, int] = {}
        self._around: dict[int, list[Any]] = {}  # by optimizer: names of weights, some elements before a step and after
        self._put_back: dict[str, Tensor] = {}
        self._sampled = 0  # how many of them were looked at
        self._restored: Counter[str] = Counter()  # how often in a row a weight was put back before the next step
        self._whole: dict[str, Tensor] = {}  # of those that seem to be: what all their elements add up to
        self._in_part: set[str] = set()  # some elements are put back, others learn: it is meant
        self._inputs: set[tuple[int, int]] = set()
        self._made: list[tuple[Spot, ...]] = []  # where the newest modules and losses of the first steps were called
        self._place: Spot | None = None

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if trains:
            self._inputs.update(
                flow.address(tensor) for tensor in tensors_in((args, kwargs)) if _lies_in_memory(tensor)
            )
            self._note_line()
            return
        self._made = []
        if ours and module.training and (path := self._know().by_id.get(id(module))) is not None:
            self._called.add(path)

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        self._idle.loss_computed(output)
        if self._made:  # a model was called before, to train
            self._note_line()

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        self._heard = True
        self._backwards += 1
        holders = self._know()
        if self._backwards <= _PLACED:
            self._place = of_loss(chain(sys._getframe()), self._made) or self._place
            self._made = []
        if graph is None or not graph.complete:
            return
        roster = self.watched.roster
        self._note_calls(graph.spans, holders)
        by_id = {id(parameter): at for at, parameter in enumerate(roster.parameters)}
        unheld: list[int] = []
        flat = False
        for at, node in enumerate(graph.nodes):
            leaf = node.leaf
            if leaf is None:
                flat = flat or node.kind in flow.FLAT
                continue
            place = by_id.get(id(leaf))
            if place is not None:
                self._reached.add(roster.names[place])
                if place not in roster.unowned:
                    continue
            elif isinstance(leaf, nn.Parameter) and len(self._strangers) < 1000:
                self._strangers.add(tuple(leaf.shape))
            unheld.append(at)
        if not graph.starts:  # called on a leaf
            for root in roots:
                if isinstance(root, Tensor) and (place := by_id.get(id(root))) is not None:
                    self._reached.add(roster.names[place])
        if unheld:
            self._look_at_unheld(graph, unheld, by_id)
        self._note_flat(graph, by_id, flat)
        self._note_cuts(graph, holders, by_id)
        self._idle.backward_starts(graph, holders.by_id)

    def backward_ended(self, owners: Sequence[int]) -> None:
        self._inputs.clear()
        roster = self.watched.roster
        for place, parameter in enumerate(roster.parameters):  # whatever the graph showed: it has one
            # or there is nothing of it here: its shard is another rank's
            if parameter.requires_grad and (parameter.grad is not None or not parameter.numel()):
                self._reached.add(roster.names[place])

    def step_starts(self, optimizer: Optimizer) -> None:
        self._heard = True
        index = self._index(optimizer)
        if index is None:
            return
        counts = self._steps.setdefault(index, [0, 0])
        counts[0] += 1
        roster = self.watched.roster
        members = roster.members[index] if index < len(roster.members) else set()
        held = [(roster.names[at], roster.parameters[at]) for at in members if roster.parameters[at].grad is not None]
        counts[1] += bool(held)
        self._note_start(index, members)
        self._versions = {
            name: parameter._version
            for name, parameter in held
            if not parameter.requires_grad and name in self._reached and not parameter.is_inference()
        }

    def step_ended(self, optimizer: Optimizer) -> None:
        index = self._index(optimizer)
        if index is not None and index in self._around:
            places = self._around[index][0]
            self._around[index][2] = _rows([self.watched.roster.parameters[at] for at in places])
        if not self._versions:
            return
        roster = self.watched.roster
        for name, parameter in zip(roster.names, roster.parameters, strict=True):
            if name in self._versions and parameter._version != self._versions[name]:
                self._stale[name] += 1
        self._versions = {}

    def failed(self, error: BaseException) -> Mapping[str, Any] | None:
        if not has_no_history(error):
            return None
        self._heard, self._place = True, raised_at(error) or self._place
        told, roster = self.facts({}, 0), self.watched.roster
        if told is None or not roster.parameters:
            return None
        adapters = [name for name in roster.names if "lora_" in name]
        needing = sum(parameter.requires_grad for parameter in roster.parameters)
        return {**told, "raised": {"needing": needing, "of": len(roster.names), "adapters": adapters[:_MOST_NAMES]}}

    def restart(self) -> None:
        self._inputs.clear()
        self._versions = {}

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        if not self._heard:
            return
        changed, self._asked = [], []
        for name, (reference, before) in list(self._samples.items()):
            tensor = reference()
            if tensor is None:
                del self._samples[name]
                continue
            if not there(tensor):  # its shards have been gathered, and are let go again
                continue
            now = _sample(tensor)
            if now.shape == before.shape and now.dtype == before.dtype:
                changed.append((now != before).any().float())
                self._asked.append(name)
            self._samples[name] = (reference, now)
        if changed:
            pack.add("parameters/changed", changed)
        if self._put_back:
            pack.add("parameters/restored", list(self._put_back.values()))
        if self._outside and not self._fresh:
            whole = {root: fresh(model) for root, model in self.watched.models.items() if self._is_outside(root)}
            told = {root: one for root, one in whole.items() if one is not None}
            self._doubted = list(told)
            if told:
                pack.add("parameters/fresh", [one.float() for one in told.values()])

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        for name, changed in zip(self._asked, values.get("parameters/changed", ()), strict=False):
            if changed:
                self._moved.add(name)
        self._asked = []
        for name, back in zip(self._put_back, values.get("parameters/restored", ()), strict=False):
            if back == _IN_PART:
                self._in_part.add(name)
            self._restored[name] = self._restored[name] + 1 if back == 1 else 0
        if self._put_back:
            self._sampled, self._put_back = len(self._put_back) + len(self._in_part), {}
        for root, one in zip(self._doubted, values.get("parameters/fresh", ()), strict=False):
            self._fresh[root] = bool(one)
        self._doubted = []
        if not self._heard and not (self._over and self._backwards):
            return None
        self._looks += self._heard
        self._heard = False
        self._idle.step_over()
        holders, roster = self._know(), self.watched.roster
        held = [at for at in range(len(roster.parameters)) if at not in roster.unowned]
        flags = [parameter.requires_grad for parameter in roster.parameters]
        self._frozen_once |= {name for name, flag in zip(roster.names, flags, strict=True) if not flag}
        early = self._yet_to_step(roster)
        unreached = [at for at in held if flags[at] and at not in early and self._is_left(roster.names[at])]
        told: dict[str, Any] = {
            "looks": self._looks,
            "backwards": self._backwards,
            "over": self._over,
            "held": sum(flags[at] for at in held),
            "reached": len(self._reached.intersection(roster.names)),
            "strangers": len(self._strangers),
            "optimizers": self._tell_optimizers(roster, flags),
            "line": _told(self._place),
        }
        if unreached:
            told |= self._tell_unreached(unreached, holders, roster)
        blocked = {name: op for name, op in self._blocked.items() if name not in self._free}
        if blocked:
            told["blocked"] = {"names": [n for n in roster.names if n in blocked][:_MOST_NAMES], "count": len(blocked)}
            told["blocked"]["ops"] = sorted(set(blocked.values()))
            told["blocked"]["elements"] = sum(
                size for name, size in zip(roster.names, roster.sizes, strict=True) if name in blocked
            )
        told["elements"] = sum(roster.sizes[at] for at in held if flags[at])
        if self._outside:
            told["outside"] = self._tell_outside(holders, roster, flags)
        unregistered = {n: f for n, f in self._unregistered.items() if not self._moved.intersection(f["tensors"])}
        if unregistered:
            told["unregistered"] = [
                {"name": name, **{key: facts[key] for key in ("owner", "layer", "looks", "distinct", "again")}}
                for name, facts in sorted(unregistered.items())[:_MOST_NAMES]
            ]
        stale = [name for name, times in self._stale.items() if times >= 2]
        if stale:
            told["stale"] = {"names": stale[:_MOST_NAMES], "count": len(stale), "times": max(self._stale.values())}
        restored = {name: times for name, times in self._restored.items() if times >= 3}
        if restored:
            told["restored"] = {"names": list(restored), "times": min(restored.values()), "of": self._sampled}
        claims = self._tell_claims(holders, roster, flags)
        if claims:
            told["claims"] = claims
        return told

    def finished(self) -> None:
        self._over = True

    def close(self) -> None:
        self._roster = None
        self._samples.clear()
        self._around.clear()
        self._whole.clear()
        self._inputs.clear()

    # -- what was called -----------------------------------------------------------------------------------------

    def _note_line(self) -> None:
        if self._backwards < _PLACED:
            self._made = [*self._made[-7:], chain(sys._getframe())]

    def _know(self) -> Holders:
        """The modules as they are now: made anew when the roster is."""
        if self._roster is not self.watched.roster:
            self._roster = self.watched.roster
            self._holders = Holders(self.watched.models, self._roster)
        return self._holders

    def _index(self, optimizer: Optimizer) -> int | None:
        return next((at for at, each in enumerate(self.watched.optimizers) if each is optimizer), None)

    def _note_calls(self, spans: Sequence[Span], holders: Holders) -> None:
        order = list(holders.names_of(spans))
        self._called.update(order)
        if order:
            self._order = order
        for span in spans:
            if not span.module.training and (path := holders.by_id.get(id(span.module))) is not None:
                self._silent.add(path)

    def _note_start(self, index: int, members: set[int]) -> None:
        """Whether weights that the last step moved are, at the beginning of this one, where they were before it."""
        roster = self.watched.roster
        weights = [at for at in sorted(members) if _is_weight(roster.parameters[at])]
        weights = [at for at in weights if roster.parameters[at].device == roster.parameters[weights[0]].device]
        places = weights[:: len(weights) // _MOST_WEIGHTS + 1]
        if not places:
            return
        now = _rows([roster.parameters[at] for at in places])
        known = self._around.get(index)
        if known is not None and known[0] == places and known[2] is not None and now.shape == known[1].shape:
            back = ((now == known[1]).all(1) & (known[1] != known[2]).any(1)).float()
            for at, one in zip(places, back.unbind(0), strict=True):
                name = roster.names[at]
                if name not in self._in_part:
                    self._put_back[name] = self._confirmed(name, roster.parameters[at], one)
        self._around[index] = [places, now, None]

    def _confirmed(self, name: str, weight: Tensor, back: Tensor) -> Tensor:
        """1 if all of a weight is back, not only the elements that are looked at at every step."""
        before = self._whole.pop(name, None)
        if not self._restored[name]:
            return back
        self._whole[name] = whole = _sum_of_bits(weight)
        return back if before is None else torch.where((back == 1) & (before != whole), _IN_PART, back)

    # -- what is reached and not held ----------------------------------------------------------------------------

    def _look_at_unheld(self, graph: Graph, unheld: Sequence[int], by_id: Mapping[int, int]) -> None:
        """Leaves that get a gradient and are in no optimizer: whose they are, and where in the graph they stand."""
        roster = self.watched.roster
        held = {id(roster.parameters[at]) for members in roster.members for at in members}
        late = flow.downstream(graph, unheld, held)
        early = flow.upstream(graph, unheld, held)
        foreign = flow.foreign(graph, held)
        for at in unheld:
            leaf = graph.nodes[at].leaf
            assert leaf is not None
            place = by_id.get(id(leaf))
            inside = foreign.get(id(leaf))
            if inside is not None:
                known_as = None if place is None else roster.names[place]
                self._note_unregistered(leaf, *inside, name=known_as, layer=True)
            elif place is None or place not in self._know().of_place or not isinstance(leaf, nn.Parameter):
                if (attribute := flow.attribute(leaf, graph.spans)) is not None:
                    owner, path = attribute
                    self._note_unregistered(leaf, owner, path, name=None, layer=False)
            else:
                known = self._outside.setdefault(roster.names[place], {"late": False, "early": False, "times": 0})
                known["late"] = known["late"] or at in late
                known["early"] = known["early"] or at in early
                known["times"] += 1
                self._keep(roster.names[place], leaf)

    def _note_unregistered(self, leaf: Tensor, owner: str, path: str, *, name: str | None, layer: bool) -> None:
        facts = self._unregistered.get(path)
        if facts is None:
            if len(self._unregistered) >= _MOST_SUSPECTS:
                return
            facts = {
                "owner": owner,
                "layer": layer,
                "looks": 0,
                "last": -1,
                "distinct": 0,
                "again": 0,
                "tensors": set(),
            }
            self._unregistered[path] = facts
        if facts["last"] != self._backwards:
            facts["looks"] += 1
            facts["last"] = self._backwards
        known = [self._samples[each][0]() for each in facts["tensors"] if each in self._samples]
        if any(each is leaf for each in known):
            facts["again"] += 1
            return
        facts["distinct"] += 1
        if len(facts["tensors"]) < 8:
            key = f"{path}#{len(facts['tensors'])}" if name is None else name
            facts["tensors"].add(key)
            self._keep(key, leaf)

    def _keep(self, name: str, tensor: Tensor) -> None:
        known = self._samples.get(name)
        if (known is None or known[0]() is not tensor) and (known is not None or len(self._samples) < _MOST_SUSPECTS):
            with suppress(TypeError, RuntimeError):
                if there(tensor):
                    self._samples[name] = (weakref.ref(tensor), _sample(tensor))

    def _is_outside(self, root: str) -> bool:
        """Whether a whole model gets gradients, and no optimizer holds any of it."""
        holders, roster = self._know(), self.watched.roster
        places = holders.places_below(root) if root in holders.by_path else []
        return bool(places) and all(at in roster.unowned and roster.names[at] in self._outside for at in places)

    def _tell_outside(self, holders: Holders, roster: Roster, flags: Sequence[bool]) -> list[dict[str, Any]]:
        """By model: what is left out of all optimizers, and how much of it that is."""
        outside = self._outside
        place_of = {name: at for at, name in enumerate(roster.names)}
        loose = {name for facts in self._unregistered.values() for name in facts["tensors"]}
        told = []
        for root in holders.roots:
            places = holders.places_below(root)
            mine = [roster.names[at] for at in places if flags[at] and at in roster.unowned]
            mine = [name for name in mine if name in outside and name not in loose]
            if not mine or not self._moved.isdisjoint(mine):
                continue
            late = [name for name in mine if outside[name]["late"]]
            modules = {holders.of_place[at] for at in places if flags[at]}
            left = {holders.of_place[place_of[name]] for name in mine}
            told.append(
                {
                    "model": root,
                    "whole": len(mine) == sum(flags[at] for at in places),
                    "names": mine[:_MOST_NAMES],
                    "count": len(mine),
                    "late": late[:_MOST_NAMES],
                    "early": any(outside[name]["early"] for name in mine),
                    "fresh": self._fresh.get(root),
                    "modules": len(modules),
                    "left": len(left),
                    "thawed": [name for name in mine if name in self._frozen_once][:_MOST_NAMES],
                    "times": max(outside[name]["times"] for name in mine),
                    "evaluates": root in self._silent,
                    "calls": self._order.count(root),
                    "elements": sum(roster.sizes[place_of[name]] for name in mine),
                }
            )
        return told

    # -- what is held and not reached ----------------------------------------------------------------------------

    def _is_left(self, name: str) -> bool:
        """Whether backward has never reached it, and has had the time: one that came later gets as long as the rest."""
        if name in self._reached:
            return False
        since = self._since.setdefault(name, self._looks)
        return since == 1 or self._looks - since >= _PATIENCE

    def _yet_to_step(self, roster: Roster) -> set[int]:
        """Parameters of optimizers that wait while others step: an actor's turn comes when the episode ends."""
        stepped = [bool(self._steps.get(index, (0, 0))[0]) for index in range(len(self.watched.optimizers))]
        if not any(stepped) or all(stepped):
            return set()
        members = [set(own) for own in roster.members]
        theirs = set().union(*(own for own, has in zip(members, stepped, strict=False) if has))
        return set().union(*(own for own, has in zip(members, stepped, strict=False) if not has)) - theirs

    def _tell_optimizers(self, roster: Roster, flags: Sequence[bool]) -> list[dict[str, Any]]:
        reached_outside = Counter(
            tuple(roster.parameters[at].shape) for at in roster.unowned if roster.names[at] in self._reached
        )
        told = []
        for index, (optimizer, members) in enumerate(zip(self.watched.optimizers, roster.members, strict=False)):
            steps, fed = self._steps.get(index, (0, 0))
            needing = [at for at in members if flags[at]]
            left = [at for at in needing if roster.names[at] not in self._reached]
            copies = sum(
                tuple(roster.parameters[at].shape) in reached_outside
                or tuple(roster.parameters[at].shape) in self._strangers
                for at in left
            )
            orphans = [at for at in left if roster.names[at].startswith("optimizer")]
            rates = [float(g["lr"]) for g in optimizer.param_groups if isinstance(g.get("lr"), (int, float))]
            told.append(
                {
                    "name": type(optimizer).__name__,
                    "steps": steps,
                    "fed": fed,
                    "parameters": len(members),
                    "needing": len(needing),
                    "unreached": len(left),
                    "copies": copies,
                    "orphans": len(orphans),
                    "rates": rates[:8],
                    "called": self._is_called(left),
                    "first": roster.names[min(members)] if members else None,
                }
            )
        return told

    def _is_called(self, places: Iterable[int]) -> bool:
        """Whether a module that holds one of these was called while training, in training mode."""
        paths = {self._holders.of_place.get(at) for at in places}
        return any(path in self._called and path not in self._silent for path in paths if path is not None)

    def _note_cuts(self, graph: Graph, holders: Holders, by_id: Mapping[int, int]) -> None:
        """Unreached modules that were called before data entered the graph anew, without a gradient."""
        roster = self.watched.roster
        suspects = [
            path
            for path in dict.fromkeys(self._order)
            if any(
                at not in roster.unowned
                and roster.parameters[at].requires_grad
                and roster.names[at] not in self._reached
                for at in holders.by_path[path].places
            )
        ]
        if not suspects:
            return
        entries = flow.entries(graph, by_id, self._inputs)
        for span in graph.spans:
            path = holders.by_id.get(id(span.module))
            if path in suspects and any(span.last <= number for number in entries):
                self._cut[path] = self._cut.get(path, 0) + 1
                suspects.remove(path)

    def _note_flat(self, graph: Graph, by_id: Mapping[int, int], flat: bool) -> None:
        roster = self.watched.roster
        if not flat:
            if self._blocked:
                self._free |= {roster.names[by_id[id(leaf)]] for leaf in graph.leaves if id(leaf) in by_id}
            return
        free, ops = flow.past_flat(graph)
        for node in graph.nodes:
            if node.leaf is not None and (place := by_id.get(id(node.leaf))) is not None:
                name = roster.names[place]
                if id(node.leaf) in free:
                    self._free.add(name)
                elif place not in roster.unowned:
                    self._blocked.setdefault(name, ops)

    def _tell_unreached(self, unreached: Sequence[int], holders: Holders, roster: Roster) -> dict[str, Any]:
        """Modules whose parameters are in an optimizer and never reached: cut off, without effect, or never called."""
        cut: list[int] = []
        idle: list[int] = []
        unused: dict[str, list[int]] = {}
        alive = holders.alive(self._called)
        starved = self._starved_models(set(unreached), holders, roster)
        for at in unreached:
            path = holders.of_place.get(at)
            if path is None:
                continue  # no module's
            if self._is_cut(path, holders) or at in starved:
                cut.append(at)
            elif path in alive:
                idle.append(at)
            else:
                unused.setdefault(holders.outermost_unused(path, alive), []).append(at)
        told: dict[str, Any] = {}
        if cut:
            told["cut"] = {
                "names": [roster.names[at] for at in cut[:_MOST_NAMES]],
                "count": len(cut),
                "elements": sum(roster.sizes[at] for at in cut),
                "times": max(self._looks if starved else 0, *self._cut.values(), 0),
                "evaluates": all(holders.of_place[at] in self._silent for at in cut),
            }
        followed: dict[str, list[Tensor]] = {}
        for at in idle[:_MOST_SUSPECTS]:
            followed.setdefault(holders.of_place[at], []).append(roster.parameters[at])
        self._idle.follow(followed)
        if idle:
            told["idle"] = {
                "names": [roster.names[at] for at in idle[:_MOST_NAMES]],
                "count": len(idle),
                "modules": [
                    {"module": path, "parameters": len(own), **self._idle.told(path)} for path, own in followed.items()
                ],
            }
        if unused:
            told["unused"] = [
                {
                    "module": path,
                    "kind": holders.by_path[path].kind,
                    "parameters": len(places),
                    "elements": sum(roster.sizes[at] for at in places),
                    "weights": any(roster.parameters[at].ndim >= 2 for at in places),
                    "passed_over": holders.is_passed_over(path, self._called, alive),
                    "fits": holders.fits(path, self._order),
                }
                for path, places in list(unused.items())[:_MOST_NAMES]
            ]
        return told

    def _starved_models(self, unreached: set[int], holders: Holders, roster: Roster) -> set[int]:
        """The parameters of whole models that are called by the loop, in training, and never get any gradient."""
        found: set[int] = set()
        for root in holders.roots:
            held = {at for at in holders.places_below(root) if at not in roster.unowned}
            if held and held <= unreached and root in self._called and root not in self._silent:
                found |= held
        return found

    def _is_cut(self, path: str, holders: Holders) -> bool:
        above: str | None = path
        while above is not None:
            if self._cut.get(above, 0) >= 1:
                return True
            above = holders.by_path[above].parent
        return False

    # -- what was meant ------------------------------------------------------------------------------------------

    def _tell_claims(self, holders: Holders, roster: Roster, flags: Sequence[bool]) -> list[dict[str, Any]]:
        """Attributes that look as if they froze something, on modules and parameters that are trained all the same."""
        if self._looks > 8 and self._looks % 8:
            return []
        trained = {
            at
            for at in range(len(roster.parameters))
            if flags[at] and at not in roster.unowned and roster.names[at] in self._reached
        }
        found: list[dict[str, Any]] = []
        for prefix, model in self.watched.models.items():
            for name, module in model.named_modules():
                attribute = _claim(module.__dict__, ("requires_grad_", "trainable"))
                if attribute is None:
                    continue
                path = ".".join(part for part in (prefix, name) if part).replace("_orig_mod.", "")
                below = holders.places_below(path) if path in holders.by_path else []
                if below and trained.issuperset(below):
                    found.append({"on": path, "what": "module", "attribute": attribute, "parameters": len(below)})
        typed = [(at, attribute) for at in trained if (attribute := _claim(roster.parameters[at].__dict__, ()))]
        if typed:
            at, attribute = min(typed)
            found.append(
                {"on": roster.names[at], "what": "parameter", "attribute": attribute, "parameters": len(typed)}
            )
        for index, optimizer in enumerate(self.watched.optimizers):
            for number, group in enumerate(optimizer.param_groups):
                if group.get("requires_grad") is False:
                    count = len(group["params"])
                    on = f"optimizer{index}.param_groups[{number}]"
                    found.append({"on": on, "what": "group", "attribute": "requires_grad", "parameters": count})
        return found[:8]


def _claim(attributes: Mapping[str, Any], more: Sequence[str]) -> str | None:
    """The attribute that was meant to freeze its owner, if there is one: torch knows no such attribute there."""
    for name, value in attributes.items():
        if value is not False:
            continue
        plain = name.lower().replace("_", "")
        if name in more or plain in (_MEANT, "requiregrad", "requiredgrad", "requiresgrads", "requiregrads"):
            return name
        if plain in ("requiregradient", "requiresgradient", "requiresgradients", "reguiresgrad", "requriesgrad"):
            return name
    return None


def _is_weight(parameter: Tensor) -> bool:
    plain = type(parameter) in (nn.Parameter, Tensor) and parameter.requires_grad and parameter.is_contiguous()
    return plain and parameter.ndim >= 2 and parameter.numel() >= _FEW


def _rows(weights: Sequence[Tensor]) -> Tensor:
    return torch.stack([weight.detach().view(-1)[:_FEW].float() for weight in weights])


def _sum_of_bits(weight: Tensor) -> Tensor:
    """A number that is another one if any element is."""
    return weight.detach().view(-1).view(_BITS[min(weight.element_size(), 8)]).sum()


def _sample(tensor: Tensor) -> Tensor:
    return dense(tensor).reshape(-1)[:_SLICE].clone()


def _lies_in_memory(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() > 1 and flow.has_storage(tensor)


def _told(spot: Spot | None) -> dict[str, Any] | None:
    return None if spot is None else {"file": spot.file, "line": spot.line, "code": spot.source}
