"""`rank-sampler`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from seismograd.detectors.ranks.facts import LISTED, REPLICATED, blamed, by_rank, count, mapping, ranks_in, short, who
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class RankSampler:
    """The samplers that hand out the data over ranks do not fit together, or deal the same hands in every epoch.

    Why it matters
    --------------
    Each rank has a sampler of its own, and only if all of them shuffle alike and each takes another part does every
    sample come once an epoch. With other seeds, the same rank twice or the wrong number of replicas, some samples come
    several times and others never. Without `set_epoch`, every epoch has the same order, and each rank sees the same
    part of the data for ever.

    How it is judged
    ----------------
    By what the samplers of the training loaders hold: the same rank in two of them, `num_replicas` that is not the
    number of ranks, seeds that differ while they shuffle, and an epoch that has stayed the same over `passes` passes
    over the data or more while they shuffle. Where ranks share data by design (tensor and pipeline parallel), or train
    something else each, only the last is judged.

    What to try
    -----------
    Call `sampler.set_epoch(epoch)` at the beginning of each epoch. Leave `rank`, `num_replicas` and `seed` to
    `DistributedSampler`, which asks the process group; make it after `init_process_group`.

    An example
    ----------

        for epoch in range(epochs):
            sampler.set_epoch(epoch)        # without it, each epoch is shuffled as the first was
            for x, y in loader:
                ...
    """

    id: ClassVar[str] = "rank-sampler"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ()

    passes: int = 2

    def start(self) -> _Checker:
        return _Checker(self)


class _Wrong(NamedTuple):
    what: str
    rank: int
    message: str
    advice: str
    evidence: dict[str, Any]


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: RankSampler) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["ranks"]
        told = mapping(facts, "samplers")
        if not told:
            return None
        name = short(told.get("kind") or "DistributedSampler")
        looks = (_twice, _replicas, _seeds) if facts.get("kind", "ddp") in REPLICATED else ()
        world = count(facts.get("world"), 2)
        wrong = [one for look in looks if (one := look(told, world, name)) is not None]
        if (stuck := self._stuck(told, name)) is not None:
            wrong.append(stuck)
        if not wrong:
            return None
        message = " ".join(one.message for one in wrong)
        evidence: dict[str, Any] = {"wrong": ", ".join(one.what for one in wrong), "limit": self._detector.passes}
        for one in wrong:
            evidence |= one.evidence
        return blamed(
            self._detector,
            reading,
            Severity.WARNING,
            message,
            evidence,
            advice=[one.advice for one in wrong],
            rank=wrong[0].rank,
            where=Where(phase="data"),
        )

    def _stuck(self, told: Mapping[str, Any], name: str) -> _Wrong | None:
        epochs = {rank: each for rank, each in by_rank(told.get("epochs")).items() if isinstance(each, list | tuple)}
        passes = min((len(each) for each in epochs.values()), default=2)
        if not told.get("stuck") or told.get("shuffle") is False or passes < self._detector.passes:
            return None
        epoch = next((each[-1] for each in epochs.values() if each), 0)
        return _Wrong(
            "epoch",
            0,
            f"`{name}` was never told of a new epoch: {passes} passes over the data were all shuffled as epoch {epoch},"
            " and each rank saw the same samples in the same order again.",
            "Call `sampler.set_epoch(epoch)` at the beginning of each epoch, on all ranks, before the loader is"
            " iterated.",
            {"passes": passes},
        )


def _twice(told: Mapping[str, Any], world: int, name: str) -> _Wrong | None:
    """The same rank in two samplers."""
    ranks = {rank: each for rank, each in by_rank(told.get("ranks")).items() if isinstance(each, int)}
    groups: dict[int, list[int]] = {}
    for rank, each in ranks.items():
        groups.setdefault(each, []).append(rank)
    same = {each: group for each, group in groups.items() if len(group) > 1}
    if not same:
        return None
    each, group = next(iter(same.items()))
    return _Wrong(
        "rank",
        next((rank for rank in group if rank != each), group[-1]),
        f"The samplers of {who(group)} all say `rank={each}`: they hand out the same samples, and those of"
        f" {who(missing) if (missing := _missing(ranks, world)) else 'the others'} are never seen.",
        f"Leave `rank` out of `{name}(...)`, which asks the process group; or pass `dist.get_rank()`, not the local"
        " rank.",
        {"sampler_ranks": {str(rank): each for rank, each in list(ranks.items())[:LISTED]}},
    )


def _missing(ranks: Mapping[int, int], world: int) -> list[int]:
    taken = set(ranks.values())
    return [rank for rank in range(world) if rank not in taken] if len(ranks) == world else []


def _replicas(told: Mapping[str, Any], world: int, name: str) -> _Wrong | None:
    wrong = {rank: each for rank, each in by_rank(told.get("replicas")).items() if count(each, world) != world}
    if not wrong:
        return None
    rank, each = next(iter(wrong.items()))
    what = "some samples come several times an epoch" if each < world else "a part of the samples is never seen"
    return _Wrong(
        "replicas",
        rank,
        f"The sampler of {who(ranks_in(wrong))} has `num_replicas={each}`, and there are {world:,} ranks: {what}.",
        f"Leave `num_replicas` out of `{name}(...)`, or pass `dist.get_world_size()`.",
        {"replicas": each, "world": world},
    )


def _seeds(told: Mapping[str, Any], world: int, name: str) -> _Wrong | None:
    seeds = by_rank(told.get("seeds"))
    if told.get("shuffle") is False or len({str(each) for each in seeds.values()}) < 2:
        return None
    usual = Counter(str(each) for each in seeds.values()).most_common(1)[0][0]
    odd = [rank for rank, each in seeds.items() if str(each) != usual]
    one, other = odd[0], next(rank for rank in seeds if str(seeds[rank]) == usual)
    return _Wrong(
        "seeds",
        one,
        f"The samplers shuffle with different seeds ({short(seeds[one])} on rank {one}, {short(seeds[other])} on rank"
        f" {other}): the ranks take their parts from different orders, so that some samples come twice an epoch, and"
        " others never.",
        f"Give `{name}` the same `seed` on all ranks, or none: the part is chosen by its rank, not by the seed.",
        {"seeds": {str(rank): short(each) for rank, each in list(seeds.items())[:LISTED]}},
    )
