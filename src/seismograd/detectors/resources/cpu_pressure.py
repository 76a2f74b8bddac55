"""`cpu-pressure`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class CpuPressure:
    """More threads are at work than there are processors for them, by the way this run is set up.

    Why it matters
    --------------
    Threads that share a processor take turns. An op that is split over 64 threads waits for the last of them, so it
    may take many times as long as with as many threads as processors. In a container torch often counts the machine's
    processors, and not those that the container pays for; and each rank of a run counts them all for itself.

    How it is judged
    ----------------
    The processors that this process may use are those it may run on, and no more than the quota of its cgroup. The
    threads of this process and the workers of its loader that really used a processor are counted; those that only
    wait are not. A warning where, at `looks` looks in a row, `times` as many or more are at work (over all ranks of
    this machine), at least `excess` too many, and they use the `busy` part of the processors' time or more; or where
    the quota held the run back in the `throttled` part of its periods or more and more threads are at work than it pays
    for. Where it is held back although no more are at work, the quota is simply used up: that is information. What
    other people run on the machine is not counted.

    What to try
    -----------
    `torch.set_num_threads(n)` or `OMP_NUM_THREADS=n` with the processors that there are, divided by the ranks;
    `num_workers` so that workers and threads together are not many more than the processors.

    An example
    ----------

        torch.set_num_threads(64)     # in a container that may use 4 processors
    """

    id: ClassVar[str] = "cpu-pressure"
    needs: ClassVar[tuple[str, ...]] = ("facts/processors",)
    follows: ClassVar[tuple[str, ...]] = ()

    times: float = 3.0
    excess: int = 4
    looks: int = 2
    busy: float = 0.1
    throttled: float = 0.25

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_crowded", "_detector", "_held_back")

    def __init__(self, detector: CpuPressure) -> None:
        self._detector = detector
        self._crowded = self._held_back = 0  # looks in a row

    def check(self, reading: Reading) -> Finding | None:
        facts, limits = reading.facts["processors"], self._detector
        running = _running(facts)
        allowed = facts["allowed"]
        crowded = running >= limits.times * allowed and running - allowed >= limits.excess
        crowded = crowded and facts["busy"] >= limits.busy * allowed
        self._crowded = self._crowded + 1 if crowded else 0
        held_back = facts["throttled"] is not None and facts["throttled"] >= limits.throttled
        self._held_back = self._held_back + 1 if held_back else 0
        if self._crowded >= limits.looks:
            return self._found(reading, facts, Severity.WARNING, "running", running)
        if self._held_back >= limits.looks:
            too_many = running > facts["allowed"]
            return self._found(reading, facts, Severity.WARNING if too_many else Severity.INFO, "throttled", running)
        return None

    def _found(
        self, reading: Reading, facts: Mapping[str, Any], severity: Severity, what: str, running: int
    ) -> Finding:
        allowed = facts["allowed"]
        ranks = "" if facts["ranks"] == 1 else f" in each of {facts['ranks']} ranks"
        workers = f", the loader {facts['workers']} workers" if facts["workers"] else ""
        paid = (
            f"; of {facts['machine']} on the machine the quota pays for {facts['quota']:.3g}" if facts["quota"] else ""
        )
        message = (
            f"{facts['at_work']} threads and workers{ranks} share {allowed} processor{'s' * (allowed > 1)}"
            f" (torch uses {facts['threads']} threads{workers}{paid})"
        )
        if facts["throttled"]:
            message += f". The quota held the run back in {facts['throttled']:.0%} of its periods"
        line = facts["line"] or {}
        evidence = {
            "running": running,
            "processors": allowed,
            "limit": self._detector.times if what == "running" else self._detector.throttled,
            "threads": facts["threads"],
            "ranks": facts["ranks"],
            "workers": facts["workers"],
            "busy": round(facts["busy"], 2),
            **({} if facts["throttled"] is None else {"throttled": round(facts["throttled"], 3)}),
        }
        return found(
            self._detector,
            reading,
            severity,
            f"{message}.",
            evidence,
            where=Where(file=line.get("file"), line=line.get("line"), code=line.get("code")),
            advice=_advice(facts),
        )


def _running(facts: Mapping[str, Any]) -> int:
    return int(facts["at_work"] * facts["ranks"])


def _advice(facts: Mapping[str, Any]) -> tuple[str, ...]:
    each = max(1, facts["allowed"] // facts["ranks"])
    advice = []
    if facts["threads"] > each:
        advice.append(f"`torch.set_num_threads({each})`, or `OMP_NUM_THREADS={each}` in the environment.")
    if facts["workers"] > facts["allowed"]:
        advice.append(f"`num_workers={facts['allowed']}`: more of them only take turns.")
    return tuple(advice) or ("Ask for more processors, or for less work on them: the quota is used up.",)
