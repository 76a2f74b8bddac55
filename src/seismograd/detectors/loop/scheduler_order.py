"""`scheduler-order`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.loop.orders import in_words, named, scheduled, whose
from seismograd.detectors.wording import found, number
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class SchedulerOrder:
    """The scheduler steps before the optimizer, with every batch where epochs were meant, or the other way round.

    Why it matters
    --------------
    Before the optimizer: the first rate of the schedule is skipped. With every batch where epochs were meant: the rate
    falls to nothing within the first epoch, and the rest of the run learns nothing. Once an epoch where batches were
    meant: the rate stays in its warm-up.

    How it is judged
    ----------------
    Before: in `in_a_row` steps one after another the scheduler came between the last backward and the step, or it
    stepped exactly once before the first backward of all, and with every step or epoch since.

    Too often: it steps once for each step of the optimizer, and what it is set to (`step_size`, `milestones`, `gamma`,
    `T_max`, `patience`) brings the rate below `nothing` of its peak, or past the end of its cosine, within one pass
    over the loader, and the rate has fallen to a tenth or the cosine is past its end. Numbers of `large` and more are
    taken to be meant for batches, and from `small` on it is told only in the second pass: there might be but one.
    Where a pass is shorter than that, or there is no loader to compare with: once the rate has been below `nothing` for
    twice as long as it took to get there.

    Too seldom: it steps once for each pass over the loader, but was built for as many steps as there are batches in
    all (`total_steps` or `T_max` is a multiple of the loader's length).

    What to try
    -----------
    `optimizer.step()` first, then `scheduler.step()`. Schedules that count epochs step after each epoch; `OneCycleLR`
    and warm-ups over batches step after each batch.

    An example
    ----------

        scheduler = StepLR(optimizer, step_size=10, gamma=0.1)     # every 10 epochs
        for epoch in range(30):
            for x, y in loader:
                ...
                optimizer.step()
                scheduler.step()         # every 10 batches: belongs one level further out
    """

    id: ClassVar[str] = "scheduler-order"
    needs: ClassVar[tuple[str, ...]] = ("facts/order",)
    follows: ClassVar[tuple[str, ...]] = ()

    in_a_row: int = 3
    nothing: float = 1e-3
    small: int = 50
    large: int = 300

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_places", "_row")

    def __init__(self, detector: SchedulerOrder) -> None:
        self._detector = detector
        self._row: dict[int, int] = {}
        self._places: dict[int, Mapping[str, Any]] = {}

    def check(self, reading: Reading) -> Finding | None:
        facts, finding = reading.facts["order"], None
        for turn in facts["turns"]:
            owner = turn["optimizer"]
            self._places[owner] = turn
            self._row[owner] = self._row.get(owner, 0) + 1 if turn["scheduled_early"] else 0
            if self._row[owner] >= self._detector.in_a_row:
                finding = self._before(reading, facts, turn)
        for schedule in facts["schedules"]:
            told = self._places.get(schedule["optimizer"])
            if finding is None and told is not None:
                finding = self._judge(reading, facts, schedule, told)
        return finding

    def _judge(
        self, reading: Reading, facts: Mapping[str, Any], schedule: Mapping[str, Any], told: Mapping[str, Any]
    ) -> Finding | None:
        epoch, count = facts["epoch"], schedule["count"]
        if schedule["ahead"] == 1 and count >= 2:
            return self._once_before(reading, facts, schedule, told)
        if schedule["each_step"] >= 4 and self._is_too_often(schedule, epoch, facts["epochs"]):
            return self._too_often(reading, facts, schedule, told, epoch)
        each_epoch = epoch is not None and count >= 2 and abs(reading.step + 1 - epoch * count) <= epoch
        if each_epoch and self._is_too_seldom(schedule, epoch, facts["over"]):
            return self._too_seldom(reading, facts, schedule, told, epoch)
        return None

    # -- how many steps it is meant for --------------------------------------------------------------------------

    def _is_too_often(self, schedule: Mapping[str, Any], epoch: int | None, epochs: int) -> bool:
        limits, settings, count = self._detector, schedule["settings"], schedule["count"]
        kind, fallen = schedule["kind"], schedule["lr"] <= 0.1 * schedule["peak"]
        if epoch is not None and epoch > 1:
            if "T_max" in settings and kind == "CosineAnnealingLR":
                return bool(settings["T_max"] < min(epoch, limits.large) and count > settings["T_max"] + 1)
            horizon = self._horizon(kind, settings)
            if horizon is not None and horizon < epoch:
                soon = _unit(settings) < limits.small or (epochs > 1 and _unit(settings) < limits.large)
                return bool(fallen and soon)
            if kind == "ReduceLROnPlateau" and count <= epoch and epochs <= 1:
                return bool(schedule["lr"] <= 0.01 * schedule["peak"] and settings.get("patience", 0) < epoch)
        if kind not in ("StepLR", "ExponentialLR"):  # what a function of the user's means is not to be known
            return False
        low = schedule["fell"] and schedule["lr"] < limits.nothing * schedule["peak"]
        return bool(low and count >= 3 * schedule["fell"] + 50)

    def _horizon(self, kind: str, settings: Mapping[str, float]) -> float | None:
        """After so many of its steps the rate is nothing, or the last milestone is past."""
        gamma = settings.get("gamma", 1.0)
        if not 0.0 < gamma < 1.0:
            return None
        if kind == "MultiStepLR" and "last_milestone" in settings:
            return settings["last_milestone"]
        if kind in ("StepLR", "ExponentialLR"):
            return settings.get("step_size", 1.0) * math.log(self._detector.nothing) / math.log(gamma)
        return None

    def _is_too_seldom(self, schedule: Mapping[str, Any], epoch: int, over: bool) -> bool:
        settings, count = schedule["settings"], schedule["count"]
        total = settings.get("total_steps") if schedule["kind"] == "OneCycleLR" else settings.get("T_max")
        if not total or epoch < 4 or schedule["kind"] not in ("OneCycleLR", "CosineAnnealingLR"):
            return False
        if over:  # as many passes as the schedule was built for
            return bool(abs(total - epoch * count) <= epoch)
        return bool(schedule["kind"] == "OneCycleLR" and epoch >= 8 and total % epoch == 0 and total >= 2 * epoch)

    # -- what is said --------------------------------------------------------------------------------------------

    def _before(self, reading: Reading, facts: Mapping[str, Any], turn: Mapping[str, Any]) -> Finding:
        row = self._row[turn["optimizer"]]
        message = (
            f"`scheduler.step()` comes before the step of {named(facts, turn)} in every iteration ({row} in a row): "
            "each step uses the rate that was meant for the next one, and the first is skipped."
        )
        evidence = {"order": turn["order"], "steps_in_a_row": row, **whose(facts, turn)}
        advice = f"Call `optimizer.step()` first, then `scheduler.step()` (the loop does {in_words(turn['order'])})."
        return self._found(reading, message, evidence, scheduled(facts, turn), advice)

    def _once_before(
        self, reading: Reading, facts: Mapping[str, Any], schedule: Mapping[str, Any], told: Mapping[str, Any]
    ) -> Finding:
        message = (
            f"`{schedule['kind']}` steps before {named(facts, told)} has stepped for the first time: the first rate of "
            "the schedule is skipped."
        )
        advice = "Call `scheduler.step()` at the end of the epoch or iteration, after `optimizer.step()`."
        return self._found(reading, message, self._evidence(facts, schedule, told), scheduled(facts, told), advice)

    def _too_often(
        self,
        reading: Reading,
        facts: Mapping[str, Any],
        schedule: Mapping[str, Any],
        told: Mapping[str, Any],
        epoch: int | None,
    ) -> Finding:
        kind, lr = schedule["kind"], number(schedule["lr"])
        within = "" if epoch is None else f", while one pass over the loader has {epoch}"
        message = (
            f"`{kind}` steps with every batch, where its settings look like epochs "
            f"({_in_words(schedule['settings'])}): after {schedule['count']} batches{within}, the rate went from "
            f"{number(schedule['peak'])} to {lr}."
        )
        evidence = {**self._evidence(facts, schedule, told), "batches_per_epoch": epoch}
        advice = "Move `scheduler.step()` out of the loop over batches, to the end of each epoch."
        other = "If it is to step with every batch, give it numbers of batches: epochs * len(loader)."
        return self._found(reading, message, evidence, scheduled(facts, told), advice, other)

    def _too_seldom(
        self,
        reading: Reading,
        facts: Mapping[str, Any],
        schedule: Mapping[str, Any],
        told: Mapping[str, Any],
        epoch: int,
    ) -> Finding:
        total = schedule["settings"].get("total_steps") or schedule["settings"]["T_max"]
        message = (
            f"`{schedule['kind']}` is built for {total:.0f} steps, {total / epoch:.0f} passes over a loader of {epoch} "
            f"batches, but steps once for each pass: after {schedule['count']} of them the rate is "
            f"{number(schedule['lr'])}, and the schedule has hardly begun."
        )
        evidence = {**self._evidence(facts, schedule, told), "batches_per_epoch": epoch}
        advice = "Call `scheduler.step()` after each `optimizer.step()`, inside the loop over batches."
        return self._found(reading, message, evidence, scheduled(facts, told), advice)

    def _evidence(
        self, facts: Mapping[str, Any], schedule: Mapping[str, Any], told: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "scheduler": schedule["kind"],
            "scheduler_steps": schedule["count"],
            "lr": schedule["lr"],
            "highest_lr": schedule["peak"],
            "order": told["order"],
            **whose(facts, told),
        }

    def _found(
        self, reading: Reading, message: str, evidence: Mapping[str, Any], where: Where, *advice: str
    ) -> Finding:
        return found(self._detector, reading, Severity.WARNING, message, evidence, where=where, advice=advice)


def _unit(settings: Mapping[str, float]) -> float:
    return settings.get("last_milestone", settings.get("step_size", 1.0))


def _in_words(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={number(value)}" for name, value in settings.items())
