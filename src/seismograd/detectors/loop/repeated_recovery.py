"""`repeated-recovery`."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class RepeatedRecovery:
    """The run survives only by being recovered again and again.

    Why it matters
    --------------
    A recovery is for the rare bad batch. A run that needs it all the time trains on less data than it seems to, with a
    learning rate that nobody chose, or runs in a circle; and since it goes on, nobody looks.

    How it is judged
    ----------------
    By what the policies of `watch(recovery=...)` did: `many` actions within `window` steps, `rollbacks` rollbacks in
    the run, or a policy that gave way to the next because it had not helped. A single skipped batch is an event, and
    no finding of its own.

    What to try
    -----------
    Look at the finding that was recovered from, and at the batches that were kept with the run: mend the data, the
    loss or the learning rate.

    An example
    ----------
    Every tenth file is broken. Skipping hides it; leaving the files out mends it:

        with sg.watch(model, optimizer, recovery={"nonfinite-input": "skip"}):
            train(model, optimizer, files)
    """

    id: ClassVar[str] = "repeated-recovery"
    needs: ClassVar[tuple[str, ...]] = ("facts/recovery",)
    follows: ClassVar[tuple[str, ...]] = ()

    many: int = 10
    window: int = 100
    rollbacks: int = 2

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_done", "_recent", "_rungs")

    def __init__(self, detector: RepeatedRecovery) -> None:
        self._detector = detector
        self._recent: deque[int] = deque(maxlen=4096)
        self._done: Counter[str] = Counter()
        self._rungs: dict[str, int] = {}

    def check(self, reading: Reading) -> Finding | None:
        limits, facts = self._detector, reading.facts["recovery"]
        if not self._recent or self._recent[-1] != reading.step:
            self._recent.append(reading.step)
            self._done[facts["action"]] += 1
        while self._recent[0] <= reading.step - limits.window:
            self._recent.popleft()
        escalated = facts["rung"] > self._rungs.get(facts["key"], 0)
        self._rungs[facts["key"]] = facts["rung"]
        often = len(self._recent) >= limits.many
        if not (often or escalated or self._done["rollback"] >= limits.rollbacks):
            return None
        done = ", ".join(f"{name} {times} times" for name, times in self._done.most_common())
        why = "the last policy had not helped" if escalated and not often else "it keeps coming back"
        message = f"The run has been recovered from `{facts['finding']}` again and again ({done}): {why}."
        evidence = {
            "recent": len(self._recent),
            "limit": limits.many,
            "window": limits.window,
            **{name.replace("-", "_"): times for name, times in self._done.items()},
            "from": facts["finding"],
            "because": None,
        }
        advice = [
            f"Mend what it is recovered from: `{facts['finding']}` says where it begins.",
            "Look at the batches that were kept with the run: `seismograd replay RUN`.",
        ]
        return found(limits, reading, Severity.CRITICAL, message, evidence, advice=advice)
