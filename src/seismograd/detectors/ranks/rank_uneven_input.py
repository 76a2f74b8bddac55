"""`rank-uneven-input`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.ranks.facts import LISTED, REPLICATED, are, blamed, by_rank, capital, count, mapping, who
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class RankUnevenInput:
    """The ranks have different numbers of batches: some leave the epoch while the others still wait for them.

    Why it matters
    --------------
    Every step averages gradients over all ranks. A rank whose loader is at its end makes no further step, and the
    others wait for it in the next all-reduce: until the timeout, half an hour later, or for ever. Where its next
    collective is another one, they do not even hang, but average things that do not belong together.

    How it is judged
    ----------------
    The number of batches of the training loader, as each rank has it, differs by `batches` or more. Not under
    `model.join()` (`torch.distributed.algorithms.Join`), which lets ranks leave early, and not for ranks that train
    something else each.

    What to try
    -----------
    Give all ranks as many samples: `DistributedSampler` does, `drop_last=True` in sampler and loader makes it exact.
    Shards of a stream that differ in length: stop at the shortest, or train inside `with model.join():`.

    An example
    ----------

        shard = samples[rank::world]                        # 10 samples on one rank, 9 on the other
        loader = DataLoader(shard, batch_size=3)            # 4 batches, and 3: the fourth all-reduce waits
        loader = DataLoader(samples, batch_size=3, sampler=DistributedSampler(samples, drop_last=True))  # instead
    """

    id: ClassVar[str] = "rank-uneven-input"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = ("rank-sampler",)

    batches: int = 1

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: RankUnevenInput) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["ranks"], self._detector
        loaders = mapping(facts, "loaders")
        if loaders.get("join") or facts.get("kind", "ddp") not in REPLICATED:
            return None
        lengths = {rank: count(each, -1) for rank, each in by_rank(loaders.get("lengths")).items()}
        lengths = {rank: each for rank, each in lengths.items() if each >= 0}
        if len(lengths) < 2 or max(lengths.values()) - min(lengths.values()) < max(1, limits.batches):
            return None
        low, high = min(lengths.values()), max(lengths.values())
        few = [rank for rank, each in lengths.items() if each == low]
        many = [rank for rank, each in lengths.items() if each == high]
        message = (
            f"{capital(who(few))} {are(few, 'has', 'have')} {low:,} {'batch' if low == 1 else 'batches'} an epoch,"
            f" {who(many)} {high:,}: after {are(few, 'its', 'their')} last batch the others wait for"
            f" {are(few, 'it', 'them')} in the next collective, and the run hangs, unless the loop stops at the"
            " shortest."
        )
        evidence = {
            "lengths": {str(rank): each for rank, each in list(lengths.items())[:LISTED]},
            "fewest": low,
            "most": high,
            "limit": limits.batches,
        }
        advice = [
            "`DistributedSampler(dataset, drop_last=True)` and `DataLoader(..., drop_last=True)` give every rank as"
            " many batches.",
            f"Or stop every rank after {low:,} batches (`itertools.islice(loader, {low})`), the smallest number over"
            " ranks (`dist.all_reduce` with `ReduceOp.MIN`).",
            "Or train inside `with model.join():`, where ranks may leave early.",
        ]
        where = Where(phase="data")
        return blamed(limits, reading, Severity.WARNING, message, evidence, advice=advice, rank=min(few), where=where)
