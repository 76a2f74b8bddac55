"""What is done at an update, and how it is told: as an event, as evidence of its findings, and to the detectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seismograd.records import Reading
from seismograd.recovery.progress import Climb
from seismograd.recovery.trouble import Trouble

MOST = 1000
"""So many actions of a kind are events each: the record of a run is bounded."""


@dataclass(slots=True)
class Due:
    """What is to be done at the next update."""

    climb: Climb
    trouble: Trouble
    reading: Reading | None
    owner: int | None = None
    """Whose gradient it is, by the optimizer's number; `None`: nobody's in particular."""
    is_fresh: bool = False
    """All was well at the step before, or it is the batch that is bad: so far the weights have no part in it."""
    kept: str | None = None
    """Where its batch is."""

    @property
    def before(self) -> dict[str, Any]:
        return {"loss": self.trouble.loss, "gradient_norm": self.trouble.gradient_norm}


@dataclass
class Teller:
    """Says what a recovery does. None of it is silent."""

    note: Callable[[str, str, dict[str, Any]], None]
    """Takes an event: its kind, a sentence, and the rest."""
    count: Callable[[str], None]
    """Counts a skipped step, or a rollback."""
    tell: Callable[[Sequence[str], str], None]
    """Takes the ids of findings about which something was done, and what."""
    take: Callable[[Reading], object]
    keep: Callable[[Reading], str | None]
    """Saves the step of a reading; where."""
    fail: Callable[[str, Exception], None]
    rank: int = 0
    skipped_at: int = -1
    """The newest step whose update was suppressed."""
    _told_at: int = -1
    _times: Counter[tuple[str, str]] = field(default_factory=Counter)

    def kept(self, due: Due) -> str | None:
        """Where the bad batch is kept, with the step that it was of."""
        if due.reading is None:
            return None
        try:
            return self.keep(due.reading)
        except Exception as error:
            self.fail("keeping the bad batch", error)
            return None

    def done(
        self,
        action: str,
        due: Due,
        step: int,
        text: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """A policy has acted; `text` says what it did."""
        trouble, climb = due.trouble, due.climb
        root = trouble.finding or "found on another rank"
        data: dict[str, Any] = {
            "action": action,
            "policy": climb.ladder.key,
            "step": step,
            "finding": root,
            "findings": list(trouble.ids),
            "suspected": trouble.suspected,
            "before": {name: value for name, value in due.before.items() if value is not None} | dict(before or {}),
            "after": dict(after or {}),
        }
        if due.kept is not None:
            data["capture"] = due.kept
        if action == "rollback":
            self.count("rollbacks")
        if self.skipped_at == step != self._told_at:
            self._told_at = step
            self.count("skipped_steps")
        doubt = "may be " if trouble.suspected else ""
        cause = f" (from {trouble.ids[0]})" if trouble.ids and trouble.ids[0] != root else ""
        self._say(action, root, f"step {step}: {doubt}{root}{cause}: {text}", data)
        self.tell(trouble.ids, action)
        if action != "continue":
            told = "skip" if action == "rollback" and (after or {}).get("step") == step else action
            facts = {"action": told, "rung": climb.rung, "key": climb.ladder.key, "finding": root}
            self.take(Reading(step, rank=self.rank, facts={"recovery": facts}))

    def asked(self, trouble: Trouble, name: str) -> None:
        """A function of the user's was called, and wants nothing more to be done."""
        text = f"step {trouble.step}: {', '.join(trouble.ids)}: {name} was called"
        data = {"action": "call", "step": trouble.step, "finding": trouble.finding, "findings": list(trouble.ids)}
        self._say("call", trouble.finding, text, data)

    def _say(self, action: str, finding: str, text: str, data: dict[str, Any]) -> None:
        """An event for each action; of very many alike, or where nothing was done, the 2nd, 4th, 8th and so on."""
        self._times[action, finding] = times = self._times[action, finding] + 1
        if times & (times - 1) and (times > MOST or action in ("continue", "call")):
            return
        self.note("recovery", text, {**data, "times": times})

    def escalated(self, due: Due) -> None:
        """A policy has given way to the next."""
        ladder, rung, step = due.climb.ladder, due.climb.rung, due.trouble.step
        before, now = ladder.policies[rung - 1].name, ladder.policies[rung].name
        text = f"step {step}: {due.trouble.finding}: {before} has not helped, {now} comes next"
        self.note("recovery_escalated", text, {"step": step, "from": before, "to": now, "policy": ladder.key})
