"""What the ranks of a training tell each other about their steps: notes to the first of them, which merges them.

The training only appends to a queue; everything else is done on a thread of ours, and nothing is waited for. If the way
to the others is closed, it stays closed: each rank then goes on by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from seismograd.distributed.merging import LISTED, Merger
from seismograd.distributed.notes import Notes
from seismograd.distributed.stalls import AFTER, Stalls
from seismograd.records import Finding, Reading, strict
from seismograd.reports.report import finding_of

if TYPE_CHECKING:
    from seismograd.distributed.channel import Channel
    from seismograd.onlookers.ranks.replicas import Replicas

CYCLE = 0.5
"""Seconds between two messages of a rank."""
RANKS_A_CYCLE = 256
"""With more ranks than these the cycle is longer: what the leader does in a second stays the same."""
NOTES = 512
"""Notes of all ranks in a cycle; each has its share, from 1 to `SHARE`."""
SHARE = 64
SIGNS = ("inside", "unsynced", "skipped", "changed")
"""What was seen at a step, and is told with the next one that is."""
WAITING = 4096
FINDINGS = 200
"""Of one rank, that are passed on."""
PATIENCE = 1.5
"""Seconds that the leader waits, at the end, for the last words of the others."""
GRACE = 0.3
"""Seconds of those in which it has to turn out which of the others are watched, too."""
LINGER = 1.0
"""Seconds that the others stay, at the end, for a last question of the leader's."""
HURRY = 0.1
"""Seconds that are left for all of this where the ranks are about to be started again."""
SILENT = 5.0
"""Seconds without a heartbeat after which a rank counts as silent."""
LEADER = 0


class Exchange:
    """One rank's part in it. `deliver` takes the readings that were merged from those of all ranks."""

    def __init__(
        self,
        name: str,
        rank: int,
        world: int,
        *,
        connect: Callable[[], Channel],
        deliver: Callable[[], None],
        note: Callable[[str, str], None],
        stalls: Stalls | None = None,
    ) -> None:
        self.name, self.rank, self.world = name, rank, world
        self._connect, self._deliver, self._note = connect, deliver, note
        self._stalls = stalls
        self.replicas: Replicas | None = None
        self._notes = Notes(rank, world)
        self._queue: deque[dict[str, Any]] = deque(maxlen=WAITING)
        self._unsaid: dict[str, Any] = {}
        """What was seen at steps of which nothing is told."""
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._passed_on: set[tuple[Any, ...]] = set()
        self.inbox: deque[Reading | Finding] = deque(maxlen=WAITING)
        """Readings of all ranks together, and findings of others, for the training's thread to take."""
        self.works = False
        """Whether the others can be told at present."""
        self.led = True
        """Whether the leader lives and listens, as far as it is known."""
        self.ranks: dict[int, dict[str, Any]] = {}
        """What the leader knows of the others: host, process, how far they are."""
        self.spent = 0.0
        """Seconds of processor time that the thread took so far, without its beginning."""
        self._merger = Merger(world) if rank == LEADER else None
        self._about = {"host": platform.node(), "pid": os.getpid()}
        self._beats = 0
        self._refused: float | None = None
        """Since when the leader has had no ear for us."""
        self._seen: dict[int, tuple[int, float, bool]] = {}
        self._told_of_hang = 0.0
        """For how long nothing had gone on when that was told last."""
        self._finals: set[int] = set()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._ending = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="seismograd-ranks", daemon=True)
        self._thread.start()

    # -- from the training -------------------------------------------------------------------------------------------

    def hear(self, reading: Reading) -> None:
        """A reading of this rank."""
        told = self._notes.hear(reading, self.replicas)
        if told is not None:
            self._queue.append(told)

    def state(self, step: int, state: dict[str, Any]) -> None:
        """What else is known of a step that was read."""
        told = self._notes.state(step, state)
        if told is not None:
            self._queue.append(told)

    def found(self, finding: Finding) -> None:
        """A finding of this rank, for the leader to know."""
        if self.rank != LEADER and (finding.key in self._passed_on or len(self._passed_on) < FINDINGS):
            self._passed_on.add(finding.key)
            self._findings[finding.key] = finding  # as it is by now: what was not sent yet need not be

    def tells(self, finding: Finding) -> bool:
        """Whether the leader hears of it, and so will say it."""
        return self.rank != LEADER and self.works and self.led and finding.key in self._passed_on

    def close(self, *, hurries: bool = False) -> None:
        """Says the last words, hears those of the others if this is the leader, and leaves. It never waits for long,
        and hardly at all if it `hurries`."""
        if os.getpid() != self._pid or self._ending:
            return
        self.leave()
        self._thread.join(HURRY if hurries else PATIENCE + LINGER + 1.0)
        self.works = False

    def leave(self) -> None:
        """The same, without a wait."""
        self._ending = True
        self._bell.put(None)

    # -- the thread --------------------------------------------------------------------------------------------------

    @property
    def cycle(self) -> float:
        return CYCLE * max(1.0, self.world / RANKS_A_CYCLE)

    def _work(self) -> None:
        channel: Channel | None = None
        try:
            channel = self._connect()
            self.works = True
        except Exception as error:
            self._note("ranks", f"the ranks are not compared: {error}")
        began = time.thread_time()
        while True:
            self.spent = time.thread_time() - began
            ending = self._ending
            try:
                if channel is not None:
                    self._turn(channel, ending)
            except Exception as error:  # the store is gone, with the rank or the launcher that had it
                self.works, channel = False, None
                if not ending:
                    self._note("ranks", f"the ranks are not compared any more: {type(error).__name__}: {error}"[:300])
            if not ending:
                try:
                    self._look_for_stalls(channel)
                except Exception as error:
                    self._stalls = None
                    self._note("ranks", f"hangs are not looked for any more: {type(error).__name__}: {error}"[:300])
            if ending:
                return
            with contextlib.suppress(Empty):
                self._bell.get(timeout=self.cycle)

    def _turn(self, channel: Channel, ending: bool) -> None:
        notes = self._share()
        if self._merger is not None:
            for note in notes:
                self._merger.add(self.rank, note)
            self._collect(channel)
            self._beat(channel, ending)
            if ending:
                self._hear_the_last(channel)
            return
        self._post(channel, notes, ending)
        self._answer(channel)
        self._beat(channel, ending)
        if ending:
            self._linger(channel)

    def _post(self, channel: Channel, notes: list[dict[str, Any]], ending: bool) -> None:
        findings = self._taken_findings()
        if not notes and not findings and not ending and self._beats % 4:
            return
        message = {
            "notes": notes,
            "findings": [strict(finding.to_dict()) for finding in findings],
            "about": self._about,
            "final": ending,
        }
        if channel.post(json.dumps(message)):
            self._refused, self.led = None, True
        elif not ending:  # the leader is behind: it is told later, in fewer words
            self._queue.extendleft(reversed(notes))
            for finding in findings:
                self._findings.setdefault(finding.key, finding)
            now = time.monotonic()
            self._refused = now if self._refused is None else self._refused
            self.led = self.led and now - self._refused < SILENT * max(1.0, self.cycle)  # or it is not there at all

    def _answer(self, channel: Channel) -> bool:
        """What the leader asks for is answered at once, as far as it can be; the training's thread adds to it. Whether
        it says that all is said."""
        question = channel.asked()
        if question is None:
            return False
        asked = json.loads(question)
        if self.replicas is not None and self.rank in asked.get("ranks", ()):
            self.replicas.asked = int(asked["step"])
            detail = self.replicas.detail(int(asked["step"]))
            channel.post(
                json.dumps({"notes": [], "findings": [], "about": self._about, "final": False, "detail": detail})
            )
        return bool(asked.get("over"))

    def _linger(self, channel: Channel) -> None:
        """The leader may have a last question."""
        deadline = time.monotonic() + LINGER
        while time.monotonic() < deadline and not self._answer(channel):
            time.sleep(0.02)

    def _share(self) -> list[dict[str, Any]]:
        """The notes that are sent in this turn: where there are too many, those of steps that others will send, too."""
        waiting: list[dict[str, Any]] = []
        while self._queue:
            waiting.append(self._queue.popleft())
        most = max(1, min(SHARE, NOTES // self.world))
        urgent = [note for note in waiting if note.keys() & {"broken", "detail", "fed"}]
        others = [note for note in waiting if not note.keys() & {"broken", "detail", "fed"}]
        stride, steps = 1, [note["step"] for note in others]
        while len(steps) > most and stride < 1 << 20:
            stride *= 2
            steps = [step for step in steps if step % stride == 0]
        others = self._sampled(others, stride)
        return sorted([*urgent[: max(most, 4)], *others], key=lambda note: note["step"])  # how it began matters most

    def _sampled(self, notes: list[dict[str, Any]], stride: int) -> list[dict[str, Any]]:
        """The notes of every so many steps, with what was seen at the others before them."""
        kept = []
        for note in notes:
            self._unsaid |= {sign: note[sign] for sign in SIGNS if sign in note}
            if note["step"] % stride == 0:
                kept.append({**note, **self._unsaid})
                self._unsaid = {}
        return kept

    def _taken_findings(self) -> list[Finding]:
        found: list[Finding] = []
        for key in list(self._findings)[:16]:
            found.append(self._findings.pop(key))
        return found

    def _beat(self, channel: Channel, ending: bool) -> None:
        self._beats += 1
        channel.beat(json.dumps(strict({**self._standing(), "beat": self._beats, "ended": ending})))

    # -- the leader --------------------------------------------------------------------------------------------------

    def _collect(self, channel: Channel) -> None:
        assert self._merger is not None
        for rank in range(self.world):
            if rank == self.rank:
                continue
            for text in channel.collect(rank):
                message = json.loads(text)
                self.ranks[rank] = {**message["about"], "newest": _newest(message["notes"], self.ranks.get(rank))}
                for note in message["notes"]:
                    note.setdefault("host", message["about"]["host"])
                    self._merger.add(rank, note)
                if "detail" in message:
                    self._merger.answered(rank, message["detail"])
                self.inbox.extend(finding_of(finding) for finding in message["findings"])
                if message["final"]:
                    self._finals.add(rank)
        self.inbox.extend(self._merger.take())
        self._ask(channel)

    def _ask(self, channel: Channel) -> None:
        """Puts the question that the merger has, if any."""
        assert self._merger is not None
        if self._merger.question is None:
            return
        step, _, ranks = self._merger.question
        self._merger.asked()
        channel.ask(json.dumps({"step": step, "ranks": ranks}))
        if self.rank in ranks and self.replicas is not None:
            self.replicas.asked = step
            self._merger.answered(self.rank, self.replicas.detail(step))

    def _hear_the_last(self, channel: Channel) -> None:
        """The others leave at about the same time: what they say last is waited for, though not for long."""
        assert self._merger is not None
        began = time.monotonic()
        deadline = began + PATIENCE
        others = [rank for rank in range(self.world) if rank != self.rank]
        while (there := channel.beats(others)).keys() != set(others) and time.monotonic() < began + GRACE:
            time.sleep(0.02)  # a short run: they may just be beginning
        while not there.keys() <= self._finals and time.monotonic() < deadline:  # those that are watched, too
            time.sleep(0.02)
            self._collect(channel)
        self.inbox.extend(self._merger.rest())
        self._ask(channel)
        while self._merger.waits and time.monotonic() < deadline:
            time.sleep(0.02)
            self._collect(channel)
        last = self._merger.last(max(0, self._notes.newest))
        if last is not None:
            self.inbox.append(last)
        channel.ask(json.dumps({"over": True}))

    # -- a training that does not go on ------------------------------------------------------------------------------

    def _standing(self) -> dict[str, Any]:
        told: dict[str, Any] = dict(self._about)
        newest = self._notes.newest
        stalls = self._stalls
        if stalls is None:
            return {**told, "step": newest}
        seconds = stalls.look()
        told |= {"step": newest, "seconds": round(seconds, 1), "stuck": stalls.stuck}
        if stalls.at is not None:
            at = stalls.at
            told |= {"phase": at.phase, "collective": at.collective, "stack": list(at.stack), "waits": at.waits}
        sequence = self._notes.collectives
        if sequence is not None:
            told["sequence"] = sequence
        return told

    def _look_for_stalls(self, channel: Channel | None) -> None:
        stalls = self._stalls
        if stalls is None:
            return
        seconds = stalls.look()
        if not stalls.stuck:
            if self._told_of_hang and seconds < stalls.limit:
                self._told_of_hang = 0.0
                self._note("ranks", "the training goes on")
            self._seen.clear()
            return
        if seconds < 2 * self._told_of_hang:
            return
        try:
            ranks = self._all_standing(channel)
        except Exception:
            ranks = {self.rank: {**self._standing(), "sign": "alive"}} if channel is None else None
        if ranks is None:
            return
        self._told_of_hang = seconds
        steps = [told.get("step", -1) for told in ranks.values()]
        facts = {
            "seconds": round(seconds, 1),
            "limit": round(stalls.limit, 1),
            "usual": stalls.usual,
            "world": self.world,
            "step": max(steps, default=-1),
            "ranks": _chosen(ranks),
        }
        self.inbox.append(Reading(max(0, self._notes.newest), rank=self.rank, facts={"hang": facts}))
        self._deliver()

    def _all_standing(self, channel: Channel | None) -> dict[int, dict[str, Any]] | None:
        """How all ranks stand, if none of them goes on and it is this one that tells: the lowest that is alive."""
        mine = {**self._standing(), "sign": "alive"}
        if channel is None:
            return {self.rank: mine} if mine.get("waits") else None
        now = time.monotonic()
        ranks: dict[int, dict[str, Any]] = {}
        for rank in range(self.world):
            if rank == self.rank:
                ranks[rank] = mine
                continue
            told = {at: json.loads(text) for at, text in channel.beats([rank]).items()}.get(rank)
            if told is None:
                ranks[rank] = {"sign": "unknown"}
                continue
            sign = self._sign(rank, told, now)
            if rank == LEADER and sign not in (None, "alive"):
                self.led = False
            if sign is None or (sign == "alive" and (rank < self.rank or not told.get("stuck"))):
                return None  # it is not known yet, or it tells, or it is at work
            ranks[rank] = {**told, "sign": sign}
        return ranks if any(told.get("waits") for told in ranks.values()) else None

    def _sign(self, rank: int, told: Mapping[str, Any], now: float) -> str | None:
        """Whether a rank lives, by its heartbeat; it takes two looks to know."""
        if told["ended"]:
            return "ended"
        known = self._seen.get(rank)
        if known is None or known[0] != told["beat"]:
            self._seen[rank] = (told["beat"], now, known is not None)
        _, since, beats = self._seen[rank]
        if now - since > SILENT * max(1.0, self.cycle):
            return "silent"
        return "alive" if beats else None


def _newest(notes: Iterable[Mapping[str, Any]], known: Mapping[str, Any] | None) -> int:
    before = -1 if known is None else int(known.get("newest", -1))
    return max((int(note["step"]) for note in notes), default=before)


def _chosen(ranks: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Those of many ranks that tell the story: the silent and ended ones, those behind, and some of the others."""
    newest = max((told.get("step", -1) for told in ranks.values()), default=-1)

    def dull(rank: int) -> tuple[bool, bool, int]:
        told = ranks[rank]
        return (told["sign"] == "alive", told.get("step", -1) >= newest and bool(told.get("waits")), rank)

    return {rank: ranks[rank] for rank in sorted(sorted(ranks, key=dull)[:LISTED])}


def hang_limit() -> float:
    """Seconds without progress, as `SEISMOGRAD_HANG_AFTER` says."""
    try:
        return max(1.0, float(os.environ.get("SEISMOGRAD_HANG_AFTER") or AFTER))
    except ValueError:
        return AFTER
