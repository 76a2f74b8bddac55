"""`rank-desync`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.ranks.causes import HARD, Cause, cause_of, newer, sentence
from seismograd.detectors.ranks.facts import (
    LISTED,
    REPLICATED,
    amount,
    are,
    blamed,
    by_rank,
    capital,
    count,
    groups_in,
    mapping,
    short,
    who,
)
from seismograd.detectors.wording import number, parameter
from seismograd.records import Finding, Reading, Severity, Where

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers that differ between ranks by design, unless batch norm is synchronised."""
_SIGNS = 16
"""Kinds of signs that are remembered."""


@dataclass(frozen=True)
class RankDesync:
    """Ranks that should hold the same parameters do not: each goes on training a model of its own.

    Why it matters
    --------------
    Data-parallel training averages gradients and trusts that all ranks apply them to the same weights. Nothing checks
    it: once the weights differ, the averaged gradient fits none of them, the loss of rank 0 still looks fine, and the
    checkpoint holds one of several models, none of which is the one that was trained.

    How it is judged
    ----------------
    Every rank makes a checksum of its parameters, gradients and buffers, and rank 0 compares them in the background.
    What is told is the first compared step at which the parameters were not alike, with the ranks that are fewer, and
    the first parameter that differs.

    - Under `DistributedDataParallel` and FSDP they have to differ at `steps` compared steps in a row, or the gradients
      with them. Plain models on several ranks, which may be trainings of their own, have to have been alike at `alike`
      compared steps before; or their optimizers were given the very same gradients at `alike` of the first steps, at
      each of which the parameters were different: then they began apart.
    - Those that part and become alike again, as in local SGD, are let be, until they have been apart `times` as long as
      they ever were.
    - Buffers must have been alike at `steady` compared steps, and be no statistics of batch norm; they are a warning.
    - Norms that differ by less than `rounding`, with gradients that agree and no sign of a cause, are let be until they
      have grown tenfold.
    - Ranks that train different models, and tensor or pipeline parallel ones, are not compared.

    The name of the parameter comes some steps later; after `wait` readings it is told without.

    What to try
    -----------
    The finding names the cause where one was seen: the forward pass went past the wrapper, the last backward ran under
    `no_sync()`, parameters were made or written to after the wrapping, some ranks took another branch, clipped by
    another norm, stepped with another learning rate, or did not step. Then start again from a checkpoint of before the
    step it names, loaded on all ranks.

    An example
    ----------

        model = DistributedDataParallel(net)
        loss = loss_fn(model.module(x), y)      # past the wrapper: nothing averages these gradients
        loss = loss_fn(model(x), y)             # instead
    """

    id: ClassVar[str] = "rank-desync"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ("rank-nonfinite", "unused-parameter")  # DDP then averages only a part

    steps: int = 2
    alike: int = 5
    steady: int = 16
    times: int = 4
    rounding: float = 1e-6
    wait: int = 4

    def start(self) -> _Checker:
        return _Checker(self)


class _Episode:
    """One kind of tensor, from when it parted until it was alike again."""

    __slots__ = ("agreements", "detail", "first", "gap", "longest", "told", "waited")

    def __init__(self) -> None:
        self.agreements, self.longest = -1, 0
        self.clear()

    def clear(self) -> None:
        self.first: int | None = None
        self.detail: Mapping[str, Any] | None = None
        self.gap: float | None = None
        self.waited = 0
        self.told: tuple[int, list[int]] | None = None
        """The rank it was laid on, and all that are to blame: they stay, whatever is learnt later."""


class _Checker:
    __slots__ = ("_detector", "_gradients", "_lasted", "_of", "_signs", "_since")

    def __init__(self, detector: RankDesync) -> None:
        self._detector = detector
        self._signs: dict[str, tuple[int, Any]] = {}
        self._since: dict[str, int] = {}
        """By sign that is seen the first of the steps in a row at which it was."""
        self._gradients = -1
        """The last step at which gradients were apart."""
        self._of = {"parameters": _Episode(), "buffers": _Episode()}
        self._lasted = {"parameters": 0, "buffers": 0}

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["ranks"]
        if facts.get("kind", "replicas") not in REPLICATED:
            return None
        apart = mapping(facts, "apart")
        newer(self._signs, facts, reading.step)
        present = {str(sign) for sign, seen in mapping(facts, "signs").items() if seen}
        self._since = {sign: self._since.get(sign, reading.step) for sign in sorted(present)[:_SIGNS]}
        while len(self._signs) > _SIGNS:
            del self._signs[next(iter(self._signs))]
        if mapping(apart, "gradients"):
            self._gradients = reading.step
        detail = mapping(facts, "detail")
        for what, episode in self._of.items():
            if detail and detail.get("what", "parameters") == what:
                self._learn(episode, detail)
            told = mapping(apart, what)
            if told and (finding := self._parted(reading, facts, what, told)) is not None:
                return finding
        return None

    def _learn(self, episode: _Episode, detail: Mapping[str, Any]) -> None:
        gap = amount(detail.get("gap"))
        if episode.detail is None:
            episode.detail, episode.gap = detail, gap
        elif gap is not None and episode.gap is not None and gap > 10 * episode.gap:
            episode.detail = {**episode.detail, "gap": gap}

    def _parted(self, reading: Reading, facts: Mapping[str, Any], what: str, told: Mapping[str, Any]) -> Finding | None:
        episode, agreements = self._of[what], count(told.get("agreements"))
        if agreements > episode.agreements >= 0:  # they were alike in between
            episode.longest = max(episode.longest, self._lasted[what])
            detail = episode.detail if episode.told is None else None
            told_before = episode.told
            episode.clear()
            episode.detail, episode.told = detail, told_before
        episode.agreements = agreements
        times = self._lasted[what] = count(told.get("times"), 1)
        if episode.first is None:
            episode.first = self._began(what, told, mapping(facts, "apart"), count(told.get("first"), reading.step))
        if not self._counts(facts, what, told, times, episode):
            return None
        episode.waited += 1
        if episode.detail is None and episode.waited <= self._detector.wait and not facts.get("over"):
            return None
        if episode.detail is not None and not self._is_real(what, told, episode):
            return None
        if what == "buffers" and episode.detail is None:
            return None
        return self._found(reading, facts, what, told, episode)

    def _began(self, what: str, told: Mapping[str, Any], apart: Mapping[str, Any], first: int) -> int:
        """The step itself, where not all were compared: that of the gradients or of what was seen, after the last one
        at which they were alike."""
        agreed = told.get("agreed")
        if what != "parameters" or not isinstance(agreed, int):
            return first
        seen = [self._gradients, count(mapping(apart, "gradients").get("first"), first), *self._since.values()]
        return min((step for step in seen if agreed < step < first), default=first)

    def _counts(self, facts: Mapping[str, Any], what: str, told: Mapping[str, Any], times: int, of: _Episode) -> bool:
        """Whether they were one model before, and have been apart long enough."""
        limits, agreements = self._detector, count(told.get("agreements"))
        if of.longest and times < limits.times * of.longest:
            return False
        if what == "buffers":
            return agreements >= limits.steady and times >= limits.steps
        if facts.get("kind", "replicas") == "replicas":
            return (agreements >= limits.alike and times >= limits.steps) or _began_apart(told, limits.alike)
        return times >= limits.steps or self._gradients_differ(told)

    def _gradients_differ(self, told: Mapping[str, Any]) -> bool:
        return self._gradients >= max(0, count(told.get("agreed"), 0))

    def _is_real(self, what: str, told: Mapping[str, Any], episode: _Episode) -> bool:
        detail = episode.detail or {}
        if what == "buffers":
            named = [str(each.get("name", "")) for each in _rows(detail)]
            return any(name.rpartition(".")[2] not in _STATISTICS for name in named)
        gap = amount(detail.get("gap"))
        if gap is None or gap >= self._detector.rounding or self._gradients_differ(told):
            return True
        since = count(told.get("agreed"))
        if any(sign in HARD and step >= since for sign, (step, _) in self._signs.items()):
            return True
        return episode.gap is not None and gap > 10 * episode.gap

    def _found(
        self, reading: Reading, facts: Mapping[str, Any], what: str, told: Mapping[str, Any], episode: _Episode
    ) -> Finding:
        detail, agreed = episode.detail or {}, told.get("agreed")
        began_apart = what == "parameters" and _began_apart(told, self._detector.alike)
        gradients = what == "parameters" and not began_apart and self._gradients_differ(told)
        since = count(agreed)
        signs = {sign: value for sign, (step, value) in self._signs.items() if step >= since}
        world = max(2, count(facts.get("world"), 2))
        rows = _rows(detail)
        first = str(rows[0]["name"]) if rows and rows[0].get("name") else None
        cause = cause_of(
            signs,
            gradients=gradients,
            kind=str(facts.get("kind", "replicas")),
            world=world,
            told=[str(row.get("name")) for row in rows] if count(detail.get("differ")) <= len(rows) else (),
            began_apart=began_apart,
        )
        sides = _Sides(told, world)
        if episode.told is None:
            episode.told = sides.guilty(cause)
        rank, guilty = episode.told
        message = sides.told(what, episode.first, guilty)
        message += _named(detail, rows, guilty, what) + "."
        agreements = count(told.get("agreements"))
        if agreements and isinstance(agreed, int):
            at = "compared step" if agreements == 1 else "compared steps"
            message += f" They were alike at {agreements:,} {at} before, last at step {agreed:,}."
        if what == "parameters" or cause.sign:
            message += f" {sentence(cause)}"
        else:
            message += " What writes to them does it on each rank by itself, and nothing brings them together."
        evidence: dict[str, Any] = {
            "what": what,
            "cause": cause.name,
            "culprits": guilty[:LISTED],
            "groups": [group[:LISTED] for group in sides.groups[:4]],
            "counts": sides.counts[:LISTED],
            "agreements": agreements,
            "apart": count(told.get("times"), 1),
            "limit": self._limit(facts, what),
            "gradients_differ": gradients,
        }
        if isinstance(agreed, int):
            evidence["agreed_step"] = agreed
        if first is not None:
            evidence |= {"first": short(first), "differ": count(detail.get("differ"), len(rows)), "revision": 1}
            if (gap := amount(detail.get("gap"))) is not None:
                evidence["gap"] = gap
            if values := by_rank(rows[0].get("values")):
                evidence["values"] = {str(each): value for each, value in list(values.items())[:LISTED]}
        if agreements:
            back = (
                f"Go back to a checkpoint of before step {episode.first:,}, and load it on all ranks: what came after"
            )
            back += " is no longer one model."
        else:
            back = "Then start anew: what was trained so far never was one model."
        severity = Severity.WARNING if what == "buffers" else Severity.CRITICAL
        advice = [*cause.advice, back] if what == "parameters" else [*_BUFFERS]
        where = parameter(first) if first else Where()
        return blamed(
            self._detector,
            reading,
            severity,
            message,
            evidence,
            advice=advice,
            rank=rank,
            where=where,
            step=episode.first,
        )

    def _limit(self, facts: Mapping[str, Any], what: str) -> int:
        if what == "buffers":
            return self._detector.steady
        return self._detector.alike if facts.get("kind", "replicas") == "replicas" else self._detector.steps


_BUFFERS = (
    "Bring them together on all ranks where they are written to: `dist.all_reduce(buffer)`, or"
    " `dist.broadcast(buffer, src=0)`.",
    "Under DDP, `broadcast_buffers=True` gives all ranks those of rank 0 at each forward pass.",
)


class _Sides:
    """Who stands on which side of a parting."""

    __slots__ = ("counts", "groups", "world")

    def __init__(self, told: Mapping[str, Any], world: int) -> None:
        self.world = world
        self.groups = groups_in(told.get("groups"))
        counts = told.get("counts")
        listed = counts if isinstance(counts, Sequence) and not isinstance(counts, str) else ()
        self.counts = [count(each, 1) for each in listed] or [len(group) for group in self.groups]

    def guilty(self, cause: Cause) -> tuple[int, list[int]]:
        """The rank to name and all that are to blame: the few, else who was seen doing it, else both sides."""
        present = sorted(rank for group in self.groups for rank in group)
        if self.counts and 2 * self.counts[0] > self.world:
            few = sorted(rank for group in self.groups[1:] for rank in group)
            if few:
                return few[0], few
        seen = [rank for rank in cause.ranks if rank in present]
        if seen and len(seen) < len(present):
            return seen[0], seen
        base = next((group for group in self.groups if 0 in group), self.groups[0] if self.groups else [])
        others = [rank for rank in present if rank not in base]
        return (others[0] if others else max(present, default=0)), []

    def told(self, what: str, step: int | None, guilty: Sequence[int]) -> str:
        since = f"since step {step:,}" if step is not None else "by now"
        if guilty:
            total = self.world - self.counts[0] if self.counts and 2 * self.counts[0] > self.world else len(guilty)
            verb = are(guilty, "has", "have") if total == 1 else "have"
            rest = {rank for group in self.groups for rank in group} - set(guilty)
            others = who(rest, self.world - total)
            return f"{capital(who(guilty, total))} {verb} other {what} than {others} {since}"
        if len(self.groups) == 2:
            one, other = (who(group, total) for group, total in zip(self.groups, self.counts, strict=False))
            return f"{capital(one)} and {other} have different {what} {since}"
        different = max(len(self.groups), len(self.counts))
        if different >= self.world:
            return f"Each of the {self.world:,} ranks has {what} of its own {since}"
        return f"The {self.world:,} ranks have {different or 'several'} different sets of {what} {since}"


def _began_apart(told: Mapping[str, Any], steps: int) -> bool:
    """Whether the ranks never were alike, and yet step with one gradient: one model is meant."""
    return not count(told.get("agreements")) and count(told.get("one_gradient")) >= steps


def _rows(detail: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = detail.get("names")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, Sequence) else []


def _named(detail: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], guilty: Sequence[int], what: str) -> str:
    """Which tensor differs first, and by how much."""
    if not rows or not rows[0].get("name"):
        return ""
    text = f", first in `{rows[0]['name']}`"
    values = {
        rank: value for rank, each in by_rank(rows[0].get("values")).items() if (value := amount(each)) is not None
    }
    if len(values) > 1:
        one = next((rank for rank in values if rank in guilty), max(values))
        other = next((rank for rank in values if rank != one and rank not in guilty), min(values))
        here, there = _digits(values[one], values[other])
        text += f" (its norm is {here} on rank {one}, {there} on rank {other})"
    differ, of = count(detail.get("differ")), count(detail.get("of"))
    if differ and of:
        text += f"; {differ:,} of {of:,} {what} differ"
    return text


def _digits(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    for digits in (3, 6, 9):
        texts = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return number(one), number(other)
