"""`memory-leak`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.amounts import size
from seismograd.detectors.resources.leaks import advice, groups, reaches, the_holder
from seismograd.detectors.resources.slopes import Slope, steady
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class MemoryLeak:
    """Memory grows step after step, because something keeps what each step makes.

    Why it matters
    --------------
    A run that needs a little more with every step ends when there is no more, often after hours, and with an error that
    names a line that has nothing to do with it. What grows is nearly always a container: a list of losses, a cache, a
    dict that is never emptied.

    How it is judged
    ----------------
    Containers that grow are found by going through the program's own names, at a few steps, once a sign shows that
    something rises. One counts when it was longer at each of the last `looks` looks, by `items` or more in all, when
    the source has a line that makes it or makes it longer, and when it is neither bounded (`deque(maxlen=...)`, an
    object with a capacity, a condition on its length or on a bound) nor emptied anywhere in the source, nor a local of
    a function that is called anew all the time. Of those:

    - it holds tensors that keep their graphs: certain, whatever the bytes; so is one more hook with each step, a cache
      whose keys are tensors, which are never found again, and `threads` threads that never end;
    - it holds tensors that nothing ever reads, `unread` of them or more, `bytes_unread` or more a step;
    - it holds `noticeable` bytes or more, and at this rate the limit (the cgroup's, else the machine's memory) is
      reached within `horizon` steps; a dict, a set or a cache may fill itself during the first pass over the data.

    In the last two cases what the process owns must have grown by `share` of what was put in, once that is
    `noticeable`: else the container only refers to what is there anyway.

    Without a container that explains it, only the slope of what the process owns counts: the median of the slopes
    between all pairs of points (mapped files are left out), over `blind_steps` steps or more after the first
    `warm_up` and after the first pass over the data (four times as many where that is not known), in which memory rose
    by `blind_bytes` at least, by about as much in each quarter of them, and with the limit within `horizon` steps. The
    workers of a loader are judged in the same way, from `of_workers` bytes on where the source shows a list of the
    dataset's that grows. Critical where the limit is less than `soon` steps away.

    What to try
    -----------
    Keep numbers instead of tensors: `history.append(loss.item())`. Keep tensors without their graphs:
    `outputs.append(output.detach())`. Bound what has to be kept: `deque(maxlen=1000)`. Register hooks once.

    An example
    ----------

        history = []
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            history.append(loss)      # each loss keeps its graph: loss.item() does not
    """

    id: ClassVar[str] = "memory-leak"
    needs: ClassVar[tuple[str, ...]] = ("memory/own|facts/holders",)
    follows: ClassVar[tuple[str, ...]] = ("growing-graph",)

    looks: int = 3
    items: int = 16
    threads: int = 48
    unread: int = 64
    bytes_unread: float = 4096.0
    noticeable: float = 16e6
    share: float = 0.25
    horizon: float = 500_000.0
    soon: float = 1_000.0
    warm_up: int = 64
    blind_steps: int = 500
    blind_bytes: float = 256e6
    of_workers: float = 32e6

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = (
        "_detector",
        "_explained",
        "_groups",
        "_left",
        "_limit",
        "_on_device",
        "_own",
        "_passed",
        "_silent_until",
    )

    def __init__(self, detector: MemoryLeak) -> None:
        self._detector = detector
        self._own = Slope()
        self._limit = self._left = 0.0
        self._on_device: Sequence[float] | None = None  # the accelerator's limit, and what is left of it
        self._explained: float | None = None  # bytes a step that known containers take, whatever they are
        self._passed: int | None = None  # the step at which a pass over the data is known to be over
        self._silent_until = 0
        self._groups = ""  # the live tensors that take most, as they were last told

    def check(self, reading: Reading) -> Finding | None:
        own = reading.scalars.get("memory/own")
        if own is not None:
            self._own.add(reading.step, own)
        facts = reading.facts.get("holders")
        if facts is None:
            return self._blind(reading)
        self._limit, self._left = float(facts["limit"]), max(0.0, float(facts["limit"] - facts["used"]))
        self._on_device = facts["device"]
        if self._passed is None and facts["passes"]:
            self._passed = reading.step
        self._groups = groups(facts["groups"]) or self._groups
        growing = facts["growing"]
        if facts["complete"]:
            self._explained = sum(each["rate"] * each["each"] for each in growing)
        first_pass = facts["passes"] == 0
        leaks = [(each, why) for each in growing if (why := self._why(each, first_pass)) is not None]
        if leaks:
            worst = max(leaks, key=lambda leak: (leak[0]["graphs"], leak[0]["rate"] * leak[0]["each"]))
            return self._by_name(reading, *worst, more=len(leaks) - 1)
        return None if facts["workers"] is None else self._in_workers(reading, facts["workers"])

    # -- a container ---------------------------------------------------------------------------------------------

    def _why(self, each: Mapping[str, Any], first_pass: bool) -> str | None:
        """What makes this container a leak, if anything does."""
        limits, lengths = self._detector, each["lengths"]
        if each["holds"] == "numbers" or not each["known"] or not _rises(lengths, limits.looks, limits.items):
            return None
        if each["kind"] == "threads":
            return "threads" if lengths[-1][1] - lengths[0][1] >= limits.threads else None
        if each["kind"] == "hooks":
            return "hooks"
        bounded = each["limit"] is not None and each["count"] <= each["limit"]
        if bounded or each["guarded"] or each["emptied"] or each["passing"]:
            return None
        if each["graphs"] and each["kind"] != "tensor":
            return "graphs"
        slope = each["rate"] * each["each"]
        if each["by_tensors"] and each["kind"] == "cache" and slope >= limits.bytes_unread:
            return "keys"
        if each["kind"] == "cache" and not each["unused"]:
            return None
        unread = each["read"] is False and each["holds"] in ("tensors", "arrays") and each["count"] >= limits.unread
        if unread and slope >= limits.bytes_unread and self._is_new(each):
            return "unread"
        if first_pass and each["kind"] in ("dict", "set", "cache"):
            return None  # by sample, maybe: then it is full after one pass
        return "bytes" if self._is_heavy(each, slope) else None

    def _is_heavy(self, each: Mapping[str, Any], slope: float) -> bool:
        limits = self._detector
        if _held(each) < limits.noticeable or slope <= 0 or self._room(each)[1] / slope > limits.horizon:
            return False
        return self._is_new(each)

    def _is_new(self, each: Mapping[str, Any]) -> bool:
        """Whether memory grew with it, as far as that can be seen: else it refers to what is there anyway."""
        limits, held = self._detector, _held(each)
        if held < limits.noticeable or each["device"] not in ("", "cpu"):
            return True
        return self._own.since(each["lengths"][0][0]) >= limits.share * held

    def _room(self, each: Mapping[str, Any]) -> tuple[float, float]:
        """The limit of the memory that this container's items lie in, and what is left of it."""
        if each["device"] in ("", "cpu") or self._on_device is None:
            return self._limit, self._left
        whole, left = self._on_device
        return float(whole), float(left)

    def _by_name(self, reading: Reading, each: Mapping[str, Any], why: str, *, more: int) -> Finding:
        slope = each["rate"] * each["each"]
        measured = self._own.slope() or 0.0
        limit, left = self._room(each)
        message = the_holder(each, why) + reaches(slope, limit, left)
        if more:
            message += f" {more} other container{'s' if more > 1 else ''} grow{'' if more > 1 else 's'} as well."
        evidence = {
            "holder": each["name"],
            "kind": each["kind"],
            "scope": each["scope"],
            "why": why,
            "count": each["count"],
            "rate": round(each["rate"], 3),
            "bytes_each": round(each["each"]),
            "bytes_per_step": round(slope),
            "measured_bytes_per_step": round(measured),
            "keeps_graphs": each["graphs"],
            "steps_left": _steps(left, slope),
            "live_tensors": self._groups,
            "limit": limit,
        }
        return found(
            self._detector,
            reading,
            self._severity(left, slope),
            message,
            evidence,
            where=Where(module=each["module"], file=each["file"], line=each["line"], code=each["code"]),
            advice=advice(each, why),
        )

    def _severity(self, left: float, slope: float) -> Severity:
        near = slope > 0 and left / slope < self._detector.soon
        return Severity.CRITICAL if near else Severity.WARNING

    # -- only bytes ----------------------------------------------------------------------------------------------

    def _blind(self, reading: Reading) -> Finding | None:
        """Nobody is known to hold it, and yet it grows."""
        limits, own = self._detector, self._own
        if reading.step < self._silent_until or self._explained is None or not self._left:
            return None
        self._silent_until = reading.step + 16
        first = limits.warm_up if self._passed is None else max(limits.warm_up, self._passed)
        enough = (4 if self._passed is None else 1) * limits.blind_steps
        points = own.after(first)
        if len(points) < 16 or points[-1][0] - points[0][0] < enough:
            return None
        if points[-1][1] - points[0][1] < limits.blind_bytes or not steady(points):
            return None
        slope = own.slope(first) or 0.0
        if slope <= 0 or self._left / slope > limits.horizon or self._explained > 0.5 * slope:
            return None
        grown, steps = points[-1][1] - points[0][1], points[-1][0] - points[0][0]
        message = (
            f"Memory grows by {size(slope)} a step, by {size(grown)} in the last {steps:,} steps, and no "
            "container of the program's accounts for it." + reaches(slope, self._limit, self._left)
        )
        return found(
            self._detector,
            reading,
            self._severity(self._left, slope),
            message,
            {
                "bytes_per_step": round(slope),
                "measured_bytes_per_step": round(slope),
                "grown": round(grown),
                "steps_left": _steps(self._left, slope),
                "limit": self._limit,
            },
            advice=(
                "It is held where no name leads: by an extension, by tensors in a cycle that Python cannot collect (an "
                "output kept on the `ctx` of an autograd function), or by graphs (`retain_graph`, `create_graph`).",
                "Leave parts of the step out, one at a time, and see with which the growth goes away.",
            ),
        )

    def _in_workers(self, reading: Reading, workers: Mapping[str, Any]) -> Finding | None:
        limits, points = self._detector, [(step, float(own)) for step, own in workers["own"]][2:]
        holder = next((each for each in workers["grown"] if _is_free(each)), None)
        if len(points) < 8 or not steady(points):
            return None
        grown, steps = points[-1][1] - points[0][1], points[-1][0] - points[0][0]
        if grown < (limits.blind_bytes if holder is None else limits.of_workers) or steps < limits.items:
            return None
        if holder is None and workers["grown"]:
            return None  # a cache that says itself what it takes in
        slope = grown / steps
        if self._left / slope > limits.horizon:
            return None
        count, dataset = workers["count"], workers["dataset"]
        who = f"{count} worker{'s' if count > 1 else ''} of the loader"
        message = f"The {who} grow{'' if count > 1 else 's'} by {size(slope)} a step"
        if holder is not None:
            message += (
                f": {holder['kind']} `{holder['name']}` of the dataset `{dataset}` ({holder['file']}:{holder['line']}) "
                "is put into with each sample, and each worker has a copy of its own"
            )
        message += "." + reaches(slope, self._limit, self._left)
        place = holder or {"file": None, "line": None, "code": None}
        return found(
            self._detector,
            reading,
            self._severity(self._left, slope),
            message,
            {
                "holder": "" if holder is None else holder["name"],
                "workers": count,
                "dataset": dataset,
                "bytes_per_step": round(slope),
                "grown": round(grown),
                "steps_left": _steps(self._left, slope),
                "limit": self._limit,
            },
            where=Where(file=place["file"], line=place["line"], code=place["code"]),
            advice=(
                "Keep nothing in the dataset while samples are made; what the workers gather never comes back to the "
                "main process.",
                "A cache of samples has to be filled before the workers start, or be bounded.",
            ),
        )


def _held(each: Mapping[str, Any]) -> float:
    """The bytes that were put in since the first look."""
    return float((each["count"] - each["lengths"][0][1]) * each["each"])


def _steps(left: float, slope: float) -> float:
    """In how many steps nothing is left; -1 where that cannot be said."""
    return round(left / slope) if slope > 0 else -1


def _rises(lengths: list[list[int]], looks: int, items: int) -> bool:
    """Whether it was longer each of the last times, never shorter before, and has not slowed down much."""
    if len(lengths) < looks or lengths[-1][1] - lengths[0][1] < items:
        return False
    rates = [(b[1] - a[1]) / max(1, b[0] - a[0]) for a, b in itertools.pairwise(lengths)]
    overall = (lengths[-1][1] - lengths[0][1]) / max(1, lengths[-1][0] - lengths[0][0])
    return min(rates) >= 0 and min(rates[-looks + 1 :]) > 0 and rates[-1] >= 0.25 * overall


def _is_free(each: Mapping[str, Any]) -> bool:
    """Whether nothing in the source bounds it."""
    return not each["guarded"] and not each["emptied"] and each["limit"] is None
