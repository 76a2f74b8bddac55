"""What a run adds up as it goes: steps and what was wrong at them, where the time went, what memory was taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from seismograd.records import Finding, Reading, Severity

COUNTED: dict[str, frozenset[str]] = {
    "gradient_explosions": frozenset({"gradient-explosion"}),
    "gradient_vanishing": frozenset({"gradient-vanishing"}),
    "loss_anomalies": frozenset({"nonfinite-loss", "loss-explosion", "loss-spike"}),
}
"""Findings by the counter of the steps at which they are seen."""

RECOVERED = ("skipped_steps", "rollbacks")
"""Counters of what a recovery did."""

_PHASES = (
    *("time/step", "time/data", "time/forward", "time/backward", "time/optimizer"),
    *("time/evaluation", "time/checkpoint", "time/logging", "time/collective", "time/rest", "time/watch"),
)
_WITHIN = ("time/stalled", "time/gc")
"""What lies inside the phases."""

_ONLY_VALIDATION = frozenset({"val_loss"})


class Tally:
    """The sums of one run, from its readings and findings."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("total_steps", "anomaly_steps", *COUNTED, *RECOVERED), 0)
        """Steps since the counters were last cleared."""
        self.latest: dict[str, float] = {}
        """The newest value of each scalar."""
        self.last_step = -1
        self.memory: deque[dict[str, float]] = deque(maxlen=128)
        self._cleared = 0
        self._counted_at: dict[str, int] = {}
        self._next_memory, self._memory_gap = 0, 1
        self._times = dict.fromkeys(("readings", *_PHASES, *_WITHIN), 0.0)
        self._traps: list[dict[str, Any]] = []

    @property
    def steps(self) -> int:
        """All steps that were told, cleared or not."""
        return self._cleared + self.counts["total_steps"]

    def take(self, reading: Reading) -> None:
        scalars = reading.scalars
        self.latest.update(scalars)
        if "time/step" in scalars:
            self._add_times(scalars, reading.step)
        if "traps" in reading.facts:
            self._traps += reading.facts["traps"]["found"]
        if reading.step != self.last_step and not _ONLY_VALIDATION.issuperset(scalars):
            self.counts["total_steps"] += 1
        self.last_step = max(self.last_step, reading.step)

    def count(self, seen: Sequence[Finding], step: int) -> None:
        """Counts steps, not readings: a GAN's two readings of one step are one."""
        ids = {finding.id for finding in seen if finding.severity is not Severity.INFO}
        for name, counted in {"anomaly_steps": ids, **COUNTED}.items():
            if ids & counted and self._counted_at.get(name) != step:
                self._counted_at[name] = step
                self.counts[name] += 1

    def add(self, counter: str) -> None:
        """One more of what is counted as it happens (`RECOVERED`)."""
        self.counts[counter] += 1

    def clear(self) -> None:
        """Starts the counters again."""
        self._cleared += self.counts["total_steps"]
        self.counts = dict.fromkeys(self.counts, 0)  # another one: the loop may be counting in the old
        self._counted_at.clear()

    def performance(self, steps_per_second: float | None) -> dict[str, Any]:
        """Where the time of the steps that were read went, on average: `seconds` adds up, the rest lies inside it.

        It is the host's: on an accelerator a phase may be over here before it is over there.
        """
        readings = self._times["readings"]
        if not readings:
            return {}
        split, within = (
            {phase.removeprefix("time/"): self._times[phase] / readings for phase in phases}
            for phases in (_PHASES, _WITHIN)
        )
        whole = split.pop("step")
        return {
            "seconds_per_reading": whole,
            "seconds": split,
            "stalled": within["stalled"],
            "garbage_collection": within["gc"],
            "steps_per_second": steps_per_second,
            "clock": "host",
            "traps": self._traps,
        }

    def _add_times(self, scalars: Mapping[str, float], step: int) -> None:
        times = self._times
        times["readings"] += 1
        for phase in (*_PHASES, *_WITHIN):
            times[phase] += scalars.get(phase, 0.0)
        if "memory/rss" in scalars and step >= self._next_memory:
            self._next_memory = step + self._memory_gap
            self.memory.append({name: scalars[name] for name in scalars if name.startswith("memory/")})
            self.memory[-1]["step"] = step
            if len(self.memory) == self.memory.maxlen:  # it spans the whole run, however long
                self.memory = deque(list(self.memory)[::2], maxlen=self.memory.maxlen)
                self._memory_gap *= 2


def summary_of(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counters and their share of the steps; one that is not there is 0."""
    numbers = {name: int(counts.get(name) or 0) for name in ("total_steps", "anomaly_steps", *COUNTED, *RECOVERED)}
    steps = max(1, numbers["total_steps"])
    return {
        **numbers,
        "anomaly_rate": numbers["anomaly_steps"] / steps,
        "loss_anomaly_rate": numbers["loss_anomalies"] / steps,
        "gradient_explosion_rate": numbers["gradient_explosions"] / steps,
        "gradient_vanishing_rate": numbers["gradient_vanishing"] / steps,
    }
