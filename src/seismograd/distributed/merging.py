"""From the notes of all ranks on a step to one record of it, as large for ten thousand ranks as for two.

A note is what one rank tells of one of its steps, as plain values. Nothing here judges, and nothing imports torch.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seismograd.records import Reading

LISTED = 16
"""Ranks that are listed by name."""
PENDING = 256
"""Steps that wait for the notes of late ranks."""
NOTES = 32_768
"""Notes that do: with many ranks those of fewer steps."""
LATE = 64
"""A step is given up when so many later ones have been told of by everyone."""
AGAIN = 64
"""After so many compared steps apart it is asked once more how far they are."""
ALIKE = 5
"""Steps in a row at which several ranks have to have the same batch, or random numbers, to be told of."""

Note = Mapping[str, Any]


@dataclass(slots=True)
class Agreement:
    """How often something was alike on all ranks."""

    times: int = 0
    """Steps at which it was."""
    last: int | None = None
    first_apart: int | None = None
    apart: int = 0
    """Steps in a row at which it was not."""


@dataclass(slots=True)
class _Start:
    """Ranks that step with the very same gradients, as if they were one model, and never were one."""

    times: int = 0
    """Steps at which it was so; -1 once it was not."""
    gradients: Any = None
    collectives: dict[int, Any] = field(default_factory=dict)

    def add(self, notes: Mapping[int, Note]) -> None:
        if self.times < 0:
            return
        applied = [note["applied"] for note in notes.values() if "applied" in note]
        if len(applied) < len(notes):
            return
        gradients, parameters = ({each[at] for each in applied} for at in (0, 1))
        if len(gradients) > 1 or len(parameters) == 1:
            self.times = -1
            return
        collectives = {rank: note.get("collectives") for rank, note in notes.items()}
        averaged = all(now is None or now != self.collectives.get(rank) for rank, now in collectives.items())
        if averaged and gradients != self.gradients:  # those of zeros, or of a loss that is linear, may be alike anyway
            self.times += 1
        self.gradients, self.collectives = gradients, collectives


@dataclass(slots=True)
class _Same:
    """Groups of ranks that had the very same, step after step."""

    steps: int = 0
    groups: list[list[int]] = field(default_factory=list)
    last: dict[int, Any] = field(default_factory=dict)


class Merger:
    """Gathers notes until a step is told of by all ranks, and says then what there is to say about it."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._steps: OrderedDict[int, dict[int, Note]] = OrderedDict()
        self._agreements = {what: Agreement() for what in ("parameters", "gradients", "buffers")}
        self._start = _Start()
        self._newest: dict[int, int] = {}
        """By rank the newest step that it told of."""
        self._same = {"batch": _Same(), "random": _Same()}
        self._fed: dict[int, Mapping[str, Any]] = {}
        self._fed_new = False
        self._hosts: dict[int, str] = {}
        self.question: tuple[int, str, list[int]] | None = None
        """Step, what differs there, and the ranks that should say more about it: for whoever can ask them."""
        self._asked: tuple[int, str, list[int]] | None = None
        self._details: dict[int, Mapping[str, Any]] = {}
        self._groups: dict[int, str] = {}
        self._asked_already: set[str] = set()
        self._last_kind = "mixed"
        self._last_apart: dict[str, Any] = {}
        self._joins = False
        """Whether ranks may leave early (`model.join()`): their steps then have other numbers from there on."""

    def add(self, rank: int, note: Note) -> None:
        """A rank tells of a step."""
        step = int(note["step"])
        self._newest[rank] = max(step, self._newest.get(rank, -1))
        if (fed := note.get("fed")) is not None:
            self._fed[rank], self._fed_new = fed, True
        if note.get("detail"):
            self.answered(rank, note["detail"])
        if "host" in note:
            self._hosts[rank] = note["host"]
        self._steps.setdefault(step, {})[rank] = note

    def answered(self, rank: int, detail: Mapping[str, Any]) -> None:
        """A rank says more about the step that was asked for."""
        if self._asked is not None and detail["step"] == self._asked[0]:
            self._details[rank] = detail

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return self._asked is not None and not set(self._asked[2]) <= self._details.keys()

    def take(self) -> list[Reading]:
        """The steps that everyone has told of, and those that are given up."""
        done = sorted(step for step, notes in self._steps.items() if len(notes) == self.world)
        newest = min(self._newest.values(), default=-1) if len(self._newest) == self.world else -1
        given_up = [step for step in self._steps if step not in done and newest - step > LATE]
        given_up += sorted(set(self._steps) - set(done) - set(given_up))[
            : max(0, len(self._steps) - len(done) - max(4, min(PENDING, NOTES // self.world)))
        ]
        readings = []
        for step in sorted({*done, *given_up}):
            notes = self._steps.pop(step)
            if len(notes) == self.world or any("broken" in note for note in notes.values()):
                readings.append(self._merged(step, notes))
        return readings

    def rest(self) -> list[Reading]:
        """What is left when the run is over: steps that at least two ranks have told of."""
        left = [self._merged(step, notes) for step, notes in sorted(self._steps.items()) if len(notes) > 1]
        self._steps.clear()
        return left

    def last(self, step: int) -> Reading | None:
        """How it stands at the end where ranks are apart, with what was asked for and has come since: no further step
        will tell it."""
        if not self._last_apart:
            return None
        facts: dict[str, Any] = {"world": self.world, "kind": self._last_kind, "apart": self._last_apart, "over": True}
        if detail := self._detail(whole=False):
            facts |= {"signs": detail.pop("signs", {}), "detail": detail}
        return Reading(step, facts={"ranks": facts})

    # -- one step --------------------------------------------------------------------------------------------------

    def _merged(self, step: int, notes: Mapping[int, Note]) -> Reading:
        facts: dict[str, Any] = {"world": self.world, "told": len(notes), "kind": self._kind(notes)}
        if len(notes) < self.world:
            facts["missing"] = [rank for rank in range(self.world) if rank not in notes][:LISTED]
        if len(set(self._hosts.values())) > 1:
            facts["hosts"] = len(set(self._hosts.values()))
        self._last_kind = facts["kind"]
        facts["times"] = _times(notes)
        own = _spread({rank: note["own"] for rank, note in notes.items() if "own" in note})
        if own:
            facts["own"] = own
        self._groups = {rank: f"{note.get('group', '')}" for rank, note in notes.items()}
        self._joins = self._joins or any(note.get("joins") for note in notes.values())
        if facts["kind"] not in ("alone", "mixed"):
            if not self._joins:
                facts.update(self._compared(step, notes))
            if self._is_one_model(facts["kind"]):
                facts.update(self._feeding())
                facts.update(self._alike(notes))
        if broken := {rank: note["broken"] for rank, note in sorted(notes.items()) if "broken" in note}:
            facts["broken"] = _bounded(
                dict(sorted(broken.items(), key=lambda each: (not _by_itself(each[1]), each[0])))
            )
            facts["broke"] = {"own": sum(map(_by_itself, broken.values())), "ranks": len(broken)}
        if searched := [note["unused"] for note in notes.values() if "unused" in note]:
            names = dict.fromkeys(name for each in searched for name in each["at_times"])
            steps = min(each["steps"] for each in searched)
            facts["unused"] = {"find_unused": True, "never": [], "at_times": list(names)[:LISTED], "steps": steps}
        return Reading(step, _scalars(notes, facts), facts={"ranks": facts})

    def _compared(self, step: int, notes: Mapping[int, Note]) -> dict[str, Any]:
        """What is not alike, and what was seen that may explain it."""
        told: dict[str, Any] = {}
        if apart := self._apart(step, notes):
            told["apart"] = apart
        signs = _signs(notes)
        if detail := self._detail():
            signs |= detail.pop("signs", {})
            told["detail"] = detail
        if signs:
            told["signs"] = signs
        return told

    def _kind(self, notes: Mapping[int, Note]) -> str:
        kinds = {str(note.get("kind", "mixed")) for note in notes.values()}
        if len({note.get("signature") for note in notes.values()}) > 1:
            return "alone" if kinds == {"replicas"} else "mixed"
        return kinds.pop() if len(kinds) == 1 else "mixed"

    def _apart(self, step: int, notes: Mapping[int, Note]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if len(notes) < self.world:
            return found
        self._start.add(notes)
        for what, known in self._agreements.items():
            sums = {rank: note[what] for rank, note in notes.items() if note.get(what) is not None}
            if len(sums) < self.world:
                continue
            parts = [part for group in _by(self._groups).values() for part in [_by({r: sums[r] for r in group})]]
            if all(len(part) == 1 for part in parts):
                known.times, known.last, known.apart, known.first_apart = known.times + 1, step, 0, None
                continue
            known.apart += 1
            if known.first_apart is None:
                known.first_apart = step
            differing = next(part for part in parts if len(part) > 1)
            groups = sorted(differing.values(), key=lambda ranks: (-len(ranks), ranks))
            found[what] = {
                "groups": [group[:LISTED] for group in groups[:LISTED]],
                "counts": [len(group) for group in groups[:LISTED]],
                "agreed": known.last,
                "agreements": known.times,
                "first": known.first_apart,
                "times": known.apart,
            }
            if what == "parameters" and self._start.times > 0:
                found[what]["one_gradient"] = self._start.times
            first = known.apart == 1 and what not in self._asked_already
            if what != "gradients" and (first or known.apart == AGAIN):
                self.question = (step, what, [group[0] for group in groups[:4]])
        self._last_apart = {
            **{what: told for what, told in self._last_apart.items() if self._agreements[what].apart},
            **found,
        }
        return found

    def asked(self) -> None:
        """The question has been put."""
        if self.question is not None:
            self._asked, self.question = self.question, None
            self._asked_already.add(self._asked[1])
            self._details.clear()

    def _detail(self, whole: bool = True) -> dict[str, Any] | None:
        """Which tensors differ, once the ranks that were asked have answered; `whole`: with their norms, too."""
        if self._asked is None or not set(self._asked[2]) <= self._details.keys():
            return None
        if whole and not all(self._details[rank]["norms"] for rank in self._asked[2]):
            return None
        (step, what, ranks), self._asked = self._asked, None
        told = {rank: self._details[rank] for rank in ranks}
        self._details.clear()
        first = told[ranks[0]]
        names = first["names"] if what == "parameters" else first["buffer_names"]
        sums = {rank: each[what] for rank, each in told.items()}
        if any(len(each) != len(names) for each in sums.values()):
            return None
        differ = [at for at in range(len(names)) if len({each[at] for each in sums.values()}) > 1]
        rows, gap = [], 0.0
        for at in differ:
            row: dict[str, Any] = {"name": names[at]}
            if what == "parameters" and all(each["norms"] for each in told.values()):
                values = {rank: each["norms"][at] for rank, each in told.items() if len(each["norms"]) == len(names)}
                row["values"] = values
                gap = max(gap, _gap(values.values()))
            rows.append(row)
        detail: dict[str, Any] = {
            "what": what,
            "step": step,
            "names": rows[:LISTED],
            "differ": len(differ),
            "of": len(names),
        }
        if what == "parameters" and all(each["norms"] for each in told.values()):
            detail["gap"] = gap
        foreign = {rank: each["foreign"] for rank, each in told.items() if each.get("foreign")}
        signs = {"foreign": foreign} if foreign else {}
        return {**detail, "signs": signs}

    def _is_one_model(self, kind: str) -> bool:
        """Whether the ranks train one model on shares of the data: else what they are fed is nobody's business."""
        if len(set(self._groups.values())) > 1:
            return False
        return kind in ("ddp", "fsdp") or self._agreements["parameters"].times >= ALIKE

    def _feeding(self) -> dict[str, Any]:
        """What is wrong with how the ranks are fed, when there is something new to be said."""
        if not self._fed_new or len(self._fed) < self.world:
            return {}
        if len({fed.get("pass") for fed in self._fed.values()}) > 1:
            return {}  # some have begun another pass by now, whose loader may be another, too: on all ranks
        self._fed_new = False
        told: dict[str, Any] = {}
        lengths = {rank: fed.get("length") for rank, fed in sorted(self._fed.items())}
        if None not in lengths.values() and len(set(lengths.values())) > 1:
            told["loaders"] = {
                "lengths": _bounded(_extremes(lengths)),
                "join": self._joins,
            }
        samplers = {rank: fed["sampler"] for rank, fed in sorted(self._fed.items()) if "sampler" in fed}
        if len(samplers) == self.world:
            told |= _samplers(samplers, self.world)
        return told

    def _alike(self, notes: Mapping[int, Note]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for what, name in (("batch", "batches"), ("random", "random")):
            marks = {rank: note[what] for rank, note in notes.items() if note.get(what) is not None}
            if len(marks) < self.world:
                continue
            groups = sorted(
                group  # of ranks that are replicas of each other: the parts of one model have the same batch by design
                for group in _by({rank: (self._groups[rank], mark) for rank, mark in marks.items()}).values()
                if len(group) > 1
            )
            same = self._same[what]
            if marks == same.last:
                continue  # one batch that is trained on again and again, on purpose
            same.last = marks
            if groups and (not same.steps or groups == same.groups):
                same.steps, same.groups = same.steps + 1, groups
                if same.steps >= ALIKE:
                    told[name] = {"same": [group[:LISTED] for group in groups[:LISTED]], "steps": same.steps}
                    if what == "random":
                        told[name]["dropout"] = drops = all(note.get("drops") for note in notes.values())
                        told[name]["noise"] = not drops
            else:
                same.steps, same.groups = 0, []
        return told


def _by_itself(broken: Mapping[str, Any]) -> bool:
    """Whether a rank went bad by its own batch, as far as it knows."""
    return bool(broken.get("loss_bad") or broken.get("input_bad") or broken.get("origin"))


def _scalars(notes: Mapping[int, Note], facts: Mapping[str, Any]) -> dict[str, float]:
    scalars: dict[str, float] = {}
    losses = [float(note["loss"]) for note in notes.values() if note.get("loss") is not None]
    if losses:
        scalars["ranks/loss"] = sum(losses) / len(losses)
    squares = [float(note["squares"]) for note in notes.values() if note.get("squares") is not None]
    if squares and len(squares) == facts["world"]:
        total = sum(squares)
        scalars["ranks/grad/norm"] = math.sqrt(total) if total >= 0 else math.nan
    if "step" in facts["times"]:
        scalars["ranks/step"] = facts["times"]["step"]["high"]
    if "own" in facts:
        scalars["ranks/wait"] = facts["own"]["high"] - facts["own"]["median"]
    return scalars


def _times(notes: Mapping[int, Note]) -> dict[str, Any]:
    phases: dict[str, dict[int, float]] = {}
    for rank, note in notes.items():
        for phase, seconds in (note.get("times") or {}).items():
            phases.setdefault(phase, {})[rank] = float(seconds)
    for seconds_of in phases.values():
        for rank in notes:
            seconds_of.setdefault(rank, 0.0)
    return {phase: spread for phase, values in phases.items() if (spread := _spread(values))}


def _spread(values: Mapping[int, float]) -> dict[str, Any]:
    """The median of the others is what a rank is compared with: the lower one, where there are two."""
    if not values:
        return {}
    order = sorted(values, key=lambda rank: (values[rank], rank))
    middle = order[(len(order) - 1) // 2]
    low, high = order[0], order[-1]
    return {
        "median": values[middle],
        "low": values[low],
        "high": values[high],
        "who": high,
        "low_who": low,
    }


def _signs(notes: Mapping[int, Note]) -> dict[str, Any]:
    """What some ranks did and others did not, or otherwise."""
    signs: dict[str, Any] = {}
    for key, sign in (("inside", "called_inside"), ("unsynced", "no_sync"), ("skipped", "unstepped")):
        ranks = sorted(rank for rank, note in notes.items() if note.get(key))
        if ranks and (sign != "unstepped" or len(ranks) < len(notes)):
            signs[sign] = ranks[:LISTED]
    if changed := {rank: note["changed"] for rank, note in sorted(notes.items()) if note.get("changed")}:
        signs["changed_outside"] = _bounded(changed)
    for key, sign in (("clipped", "clipped"), ("rates", "rates"), ("collectives", "collectives")):
        told = {rank: note[key] for rank, note in sorted(notes.items()) if note.get(key) is not None}
        if told and (len({repr(value) for value in told.values()}) > 1 or len(told) < len(notes)):
            signs[sign] = _bounded(told)
    graded = {rank: (note.get("graded"), *(note.get("ungraded") or ())) for rank, note in sorted(notes.items())}
    if len(kinds := Counter(graded.values())) > 1:
        usual = kinds.most_common(1)[0][0]
        signs["graded_otherwise"] = [rank for rank, told in graded.items() if told != usual][:LISTED]
        everywhere = set.intersection(*(set(names) for _, *names in graded.values()))
        ungraded = {rank: [name for name in names if name not in everywhere] for rank, (_, *names) in graded.items()}
        if ungraded := {rank: names for rank, names in ungraded.items() if names}:
            signs["ungraded"] = _bounded(ungraded)
    return signs


def _samplers(samplers: Mapping[int, Mapping[str, Any]], world: int) -> dict[str, Any]:
    wrong: dict[str, Any] = {}
    seeds = {rank: sampler["seed"] for rank, sampler in samplers.items()}
    ranks = {rank: sampler["rank"] for rank, sampler in samplers.items()}
    replicas = {rank: sampler["replicas"] for rank, sampler in samplers.items()}
    shuffles = any(sampler["shuffle"] for sampler in samplers.values())
    epochs = {rank: list(sampler["epochs"]) for rank, sampler in samplers.items()}
    if shuffles and len(set(seeds.values())) > 1:
        wrong["seeds"] = _bounded(_extremes(seeds))
    if len(set(ranks.values())) < len(ranks):
        wrong["ranks"] = _bounded(ranks)
    if len(set(replicas.values())) > 1:
        wrong["replicas"] = _bounded(_extremes(replicas))
    if shuffles and all(len(told) >= 2 and len(set(told)) == 1 for told in epochs.values()):
        wrong |= {"epochs": _bounded(epochs), "stuck": True}
    if not wrong:
        return {}
    return {"samplers": {"kind": "DistributedSampler", "shuffle": shuffles, "world": world, **wrong}}


def _by(values: Mapping[int, Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for rank, value in sorted(values.items()):
        groups.setdefault(value, []).append(rank)
    return groups


def _bounded(told: Mapping[int, Any]) -> dict[int, Any]:
    return dict(list(told.items())[:LISTED])


def _extremes(told: Mapping[int, Any]) -> dict[int, Any]:
    """The same with those first that stand out: the rare values."""
    common = Counter(told.values())
    return dict(sorted(told.items(), key=lambda each: (common[each[1]], each[0])))


def _gap(values: Iterable[float]) -> float:
    told = [value for value in values if math.isfinite(value)]
    high = max((abs(value) for value in told), default=0.0)
    return (max(told) - min(told)) / high if high else 0.0
