"""Memory followed by hand: the watch's own eyes and judgement, at moments that the user or an optimizer names."""

from __future__ import annotations

from seismograd.detectors import by_id
from seismograd.judge import Judge
from seismograd.memory import snapshots
from seismograd.onlookers.resources.holders import Holders
from seismograd.probes.pack import Pack
from seismograd.probes.watched import Watched
from seismograd.records import Finding, Reading, rank


class MemoryTrack:
    """A series of moments; from one to the next the program has done the same again."""

    def __init__(self) -> None:
        self._holders = Holders(Watched({}, ()), lambda _seconds: None)
        self._judge = Judge([by_id("memory-leak")])
        self._moment = -1

    def look(self) -> list[Finding]:
        """One more moment: everything that leaks, as far as it is certain by now."""
        self._moment += 1
        self._holders.look(Pack(), self._moment)
        told = self._holders.facts({}, self._moment)
        facts = {} if told is None else {"holders": told}
        scalars = {"memory/own": float(snapshots.own())}
        self._judge.observe(Reading(self._moment, scalars, rank=rank(), facts=facts))
        return self._judge.findings
