"""`missing-step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.orders import at, in_words, named, whose
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class MissingStep:
    """Gradients flow, but the optimizer never steps, or has stopped stepping.

    Why it matters
    --------------
    Backward only computes gradients. Without `optimizer.step()` no weight changes, however long the run goes on.

    How it is judged
    ----------------
    There is an optimizer that holds the parameters, backward gives it gradients, it does not step, and the weights do
    not move by any other means. It never stepped, and `zero_grad()` was called on it after `rounds` backwards, or on
    the model after `rounds_of_model`; or its scheduler steps and it does not; or nothing was ever cleared in
    `backwards` backwards (they could be accumulated until then). Where the run is over, `at_the_end` are enough. Once
    it has stepped, only after `stopped` backwards in training mode that were cleared by the optimizer's own
    `zero_grad()`, and where no other optimizer goes on; or after `backwards` that nothing has cleared, 16 times as many
    as came before any step so far. So is an only optimizer that steps now and then: `stopped`
    batches or more were cleared unused, `seldom` or more for each step, and not with every N-th batch, as those who
    mean to accumulate do. One that waits while another steps is told of when the run is over, or after `backwards`
    rounds: it may be waiting for its time.

    What to try
    -----------
    `optimizer.step()` after `backward()`, with its parentheses; `scaler.step(optimizer)` and `scaler.update()` under a
    `GradScaler`. Where there is a condition around it, print it.

    An example
    ----------

        optimizer.zero_grad()
        loss.backward()
        optimizer.step       # no call: nothing happens
    """

    id: ClassVar[str] = "missing-step"
    needs: ClassVar[tuple[str, ...]] = ("facts/order",)
    follows: ClassVar[tuple[str, ...]] = ()

    rounds: int = 8
    rounds_of_model: int = 32
    backwards: int = 256
    stopped: int = 64
    seldom: float = 6.0
    at_the_end: int = 4

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_longest", "_steps", "_thrown")

    def __init__(self, detector: MissingStep) -> None:
        self._detector = detector
        self._thrown: dict[int, list[int]] = {}  # by optimizer: how many batches were for nothing, in all; least, most
        self._steps: dict[int, int] = {}
        self._longest: dict[int, int] = {}  # by optimizer: the most backwards before a step of it

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["order"]
        for turn in facts["turns"]:
            self._note(turn)
        for wait in facts["waiting"]:
            if wait["moved"] is not False or wait["attacks"] or wait["tried"]:
                continue
            if self._never(wait, facts["over"]) if not wait["steps"] else self._stopped(wait):
                return self._found(reading, facts, wait)
            if self._is_seldom(wait) and not facts["several"]:
                return self._found(reading, facts, wait, seldom=True)
        return None

    def _note(self, turn: Mapping[str, Any]) -> None:
        owner, thrown = turn["optimizer"], turn["thrown"]
        self._longest[owner] = max(self._longest.get(owner, 1), turn["backwards"])
        if turn["handmade"] or turn["moved"] or turn["empty"] or not turn["whole"]:
            return
        known = self._thrown.setdefault(owner, [0, thrown, thrown])
        known[:] = known[0] + thrown, min(known[1], thrown), max(known[2], thrown)
        self._steps[owner] = self._steps.get(owner, 0) + 1

    def _never(self, wait: Mapping[str, Any], over: bool) -> bool:
        limits, rounds, backwards = self._detector, wait["rounds"], wait["backwards"]
        if over:
            enough = rounds >= limits.at_the_end - 1 or backwards >= 2 * limits.at_the_end
            return bool(enough and (not wait["others"] or wait["clearer"] == "optimizer"))
        if wait["schedules"] >= limits.at_the_end and backwards >= limits.rounds:
            return True
        if wait["others"]:
            return bool(rounds >= limits.backwards)
        if rounds and wait["samples"] != 1 and wait["training"]:  # one sample each: gradients may be gathered by hand
            enough = limits.rounds if wait["clearer"] == "optimizer" else limits.rounds_of_model
            return bool(rounds >= enough)
        return bool(backwards >= limits.backwards)

    def _stopped(self, wait: Mapping[str, Any]) -> bool:
        limits = self._detector
        if not wait["training"] or wait["others"]:
            return False
        if wait["rounds"]:
            return bool(wait["rounds"] >= limits.stopped and wait["clearer"] == "optimizer")
        return bool(wait["backwards"] >= max(limits.backwards, 16 * self._longest.get(wait["optimizer"], 0)))

    def _is_seldom(self, wait: Mapping[str, Any]) -> bool:
        """Whether it steps now and then, without a rule."""
        limits = self._detector
        thrown, least, most = self._thrown.get(wait["optimizer"], (0, 0, 0))
        thrown, most = thrown + wait["rounds"], max(most, wait["rounds"])
        steps = self._steps.get(wait["optimizer"], 0)
        now_and_then = steps and thrown >= max(limits.stopped, limits.seldom * steps) and most >= 2 * (least + 1)
        return bool(now_and_then and wait["clearer"] == "optimizer" and wait["training"])

    def _found(
        self, reading: Reading, facts: Mapping[str, Any], wait: Mapping[str, Any], *, seldom: bool = False
    ) -> Finding:
        who = named(facts, wait)
        if seldom:
            thrown, steps = self._thrown[wait["optimizer"]][0] + wait["rounds"], self._steps[wait["optimizer"]]
            what = (
                f"{who} steps only now and then: {steps} steps, and {thrown} batches whose gradients were cleared"
                f" unused, {wait['rounds']} since the last step"
            )
        elif wait["steps"]:
            what = f"{who} has stopped stepping: no step in the last {wait['backwards']} backwards"
        else:
            never = "never steps" if facts["over"] else "does not step"
            what = f"{who} {never}: {wait['backwards']} backwards gave it gradients, and no step has used them"
        message = f"{what[0].upper()}{what[1:]}."
        message += "" if seldom else " The weights do not change."
        if wait["schedules"]:
            message += f" Its scheduler has stepped {wait['schedules']} times meanwhile."
        evidence = {
            "backwards": wait["backwards"],
            "cleared": wait["rounds"],
            "steps": wait["steps"],
            "scheduler_steps": wait["schedules"],
            "order": wait["order"],
            **whose(facts, wait),
        }
        return found(
            self._detector,
            reading,
            Severity.WARNING if seldom else Severity.CRITICAL,
            message,
            evidence,
            where=at(wait, "backward"),
            advice=(
                f"Call `optimizer.step()` after `loss.backward()` (the loop does {in_words(wait['order'])}). With a "
                "`GradScaler`: `scaler.step(optimizer)`, then `scaler.update()`.",
                "Look at the condition around `step()`, if there is one, and that it is called: `step()`, not `step`.",
            ),
        )
