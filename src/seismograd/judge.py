"""Runs detectors over readings, merges repeats, and says what follows from what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seismograd.protocols import Checker, Detector
from seismograd.records import Finding, Reading, Severity

Failure = Callable[[str, Exception], None]


class Judge:
    """Holds the checkers of one run and the findings so far.

    `on_finding` is called with a new finding, `on_change` with a later version of one.
    `on_failure(part, error)` is called when a detector raises; that detector is then dropped. `explain` may know more
    about a new finding, as evidence.
    """

    def __init__(
        self,
        detectors: Iterable[Detector],
        *,
        ignore: Iterable[str] = (),
        on_finding: Callable[[Finding], None] | None = None,
        on_change: Callable[[Finding], None] | None = None,
        on_failure: Failure | None = None,
        explain: Callable[[Finding], Mapping[str, Any]] | None = None,
    ) -> None:
        ignored = set(ignore)
        self.detectors = tuple(d for d in detectors if d.id not in ignored)
        self._follows = {d.id: frozenset(d.follows) for d in self.detectors}
        self._place = {d.id: place for place, d in enumerate(self.detectors)}
        self._given: set[tuple[object, ...]] = set()
        self._findings: dict[tuple[object, ...], Finding] = {}
        self._checkers: dict[tuple[int, int | None], list[tuple[Detector, Checker]]] = {}
        self._plans: dict[tuple[object, ...], list[tuple[Detector, Checker]]] = {}
        self._on_finding, self._on_change, self._on_failure = on_finding, on_change, on_failure
        self._explain = explain

    @property
    def findings(self) -> list[Finding]:
        """In the order in which they should be read, as `ranked` says."""
        return ranked(self._findings.values())

    @property
    def status(self) -> str:
        return status_of(self._findings.values())

    def observe(self, reading: Reading) -> list[Finding]:
        """Judges one reading; returns the findings that are new or go on at this step."""
        seen: list[Finding] = []
        plan = self._plan(reading)
        plain = reading if reading.series is None else reading.plain()
        for entry in plan:
            detector, checker = entry
            try:
                finding = checker.check(plain)
            except Exception as error:
                self._failed(detector, error)
                continue
            if finding is not None:
                if reading.series is not None:
                    finding = replace(finding, evidence={**finding.evidence, "series": reading.series})
                seen.append(self.add(finding))
        return seen

    def add(self, finding: Finding) -> Finding:
        """Takes a finding from a detector or from outside: merges it if it goes on, and links causes."""
        known = self._findings.get(finding.key)
        if known is None:
            more = self._explain(finding) if self._explain is not None else None
            if more:
                finding = replace(finding, evidence={**finding.evidence, **more})
            if "because" in finding.evidence:  # who adds it knows why, or that nothing else explains it
                self._given.add(finding.key)
            self._findings[finding.key] = finding
            changed = self._link(finding)
            finding = self._findings[finding.key]
            if self._on_finding:
                self._on_finding(finding)
            if self._on_change:
                for other in changed:
                    self._on_change(other)
            return finding
        merged = replace(known, count=known.count + 1, last_step=max(known.last_step, finding.last_step))
        located = "origin" in finding.evidence and not known.evidence.keys() & {"origin", "because"}
        if located and "because" in finding.evidence:
            self._given.add(finding.key)
        worse = finding.severity.weight > known.severity.weight
        if located or worse or _revision(finding) > _revision(known):  # its place is known, it got worse, more is known
            merged = replace(
                merged,
                severity=finding.severity,
                where=finding.where,
                message=finding.message,
                evidence={**known.evidence, **finding.evidence},
                recommendations=finding.recommendations,
            )
        self._findings[finding.key] = merged
        if self._on_change:
            self._on_change(merged)
        return merged

    def suspects(self, reading: Reading) -> list[str]:
        """What may be beginning at this reading, which was just observed; whether it is will be known later."""
        return [detector.id for detector, checker in self._plan(reading) if getattr(checker, "suspects", False)]

    def recovered(self, ids: Iterable[str], action: str) -> None:
        """Something was done about findings that are there."""
        for key in [key for key in self._findings if key[0] in set(ids)]:
            known = self._findings[key]
            done = dict(known.evidence.get("recovery") or {})
            done[action] = done.get(action, 0) + 1
            told = self._findings[key] = replace(known, evidence={**known.evidence, "recovery": done})
            if self._on_change:
                self._on_change(told)

    def _plan(self, reading: Reading) -> list[tuple[Detector, Checker]]:
        told = reading.origin is not None
        shape = (reading.rank, reading.series, tuple(reading.scalars), tuple(reading.tensors), told, *reading.facts)
        plan = self._plans.get(shape)
        if plan is None:
            owner = (reading.rank, reading.series)
            if owner not in self._checkers:
                self._checkers[owner] = self._start()
            have = {*reading.plain().scalars, *reading.tensors}
            if any(name.startswith("lr/") for name in have):
                have.add("lr")
            if told:
                have.add("origin")
            have.update(f"facts/{topic}" for topic in reading.facts)
            plan = [(d, checker) for d, checker in self._checkers[owner] if all(_is_there(n, have) for n in d.needs)]
            if len(self._plans) > 256:  # a user who logs ever new names
                self._plans.clear()
            self._plans[shape] = plan
        return plan

    def _start(self) -> list[tuple[Detector, Checker]]:
        started: list[tuple[Detector, Checker]] = []
        for detector in self.detectors:
            try:
                started.append((detector, detector.start()))
            except Exception as error:
                self._failed(detector, error)
        return started

    def _failed(self, detector: Detector, error: Exception) -> None:
        self._drop(detector)
        if self._on_failure is None:
            raise error
        self._on_failure(f"detector {detector.id}", error)

    def _drop(self, detector: Detector) -> None:
        self.detectors = tuple(d for d in self.detectors if d is not detector)
        self._plans.clear()
        for owner, pairs in self._checkers.items():
            self._checkers[owner] = [(d, c) for d, c in pairs if d is not detector]

    def _link(self, new: Finding) -> list[Finding]:
        """Sets `because` anew now that `new` is known; returns the other findings whose cause has changed.

        A finding points to the root of its story: a cause that has none itself, the earliest where there are several.
        One that was given None as its cause has none.
        """
        run = [f for f in self._findings.values() if _same_run(f, new)]
        causes = {
            effect.key: [
                f for f in run if _same_run(f, effect) and self._explains(f, effect) and not self._is_root(effect)
            ]
            for effect in run
        }
        changed = []
        for effect in run:
            if not causes[effect.key] or effect.key in self._given:
                continue
            root = min(
                causes[effect.key],
                key=lambda f: (bool(causes[f.key]), "origin" not in f.evidence, f.step, self._place.get(f.id, -1)),
            )
            if effect.evidence.get("because") != root.id:
                told = replace(effect, evidence={**effect.evidence, "because": root.id})
                self._findings[effect.key] = told
                if effect.key != new.key:
                    changed.append(told)
        return changed

    def _is_root(self, finding: Finding) -> bool:
        return finding.key in self._given and finding.evidence["because"] is None

    def _explains(self, cause: Finding, effect: Finding) -> bool:
        """Whether `effect` follows from `cause`. Where each may follow from the other, the earlier is the cause:

        a NaN loss makes NaN gradients of the same step, a gradient of Inf makes a NaN loss at the next.
        """
        if is_located(cause) and spreads(cause, effect) and not is_located(effect) and cause.step <= effect.step:
            return True
        if is_shared(cause, effect):
            return spread_over_ranks(cause, effect)
        if cause.id not in self._follows.get(effect.id, ()):
            return False
        if is_mere_remark(cause, effect):
            return False
        if effect.id not in self._follows.get(cause.id, ()):
            return True
        if cause.step != effect.step:
            return cause.step < effect.step
        return self._place.get(cause.id, -1) < self._place.get(effect.id, -1)


def _is_there(need: str, have: set[str]) -> bool:
    return need in have or ("|" in need and not have.isdisjoint(need.split("|")))


def _same_run(cause: Finding, effect: Finding) -> bool:
    """Whether one may explain the other: of one rank, and of one optimizer; NaN spreads in a GAN, and over ranks.

    What is found between ranks (`rank-...`) is of all of them: its rank is only the one that is to blame.
    """
    between = cause.id.startswith("rank-") and effect.id.startswith("rank-")
    if cause.rank != effect.rank and not between and not is_shared(cause, effect):
        return False
    of_cause, of_effect = cause.evidence.get("series"), effect.evidence.get("series")
    return spreads(cause, effect) or of_cause is None or of_effect is None or of_cause == of_effect


def is_mere_remark(cause: Finding, effect: Finding) -> bool:
    """Whether it weighs too little to be the cause: what a healthy run may show, too, is no reason why one is lost."""
    return cause.severity is Severity.INFO and effect.severity is Severity.CRITICAL


def is_located(finding: Finding) -> bool:
    """Whether it is known where it began."""
    return "origin" in finding.evidence


def spreads(cause: Finding, effect: Finding) -> bool:
    """Whether one is not finite because the other is not, maybe."""
    return cause is not effect and cause.id.startswith("nonfinite-") and effect.id.startswith("nonfinite-")


SPREAD = "rank-nonfinite"
"""The finding that says which rank gave the others values that are not finite."""


def is_shared(cause: Finding, effect: Finding) -> bool:
    """Whether one tells of values that are not finite, and the other how such values went from rank to rank."""
    one, other = cause.id, effect.id
    return (one == SPREAD and other.startswith("nonfinite-")) or (other == SPREAD and one.startswith("nonfinite-"))


def spread_over_ranks(cause: Finding, effect: Finding) -> bool:
    """Of two findings that `is_shared` holds for: whether `effect` follows from `cause`.

    The one that knows the line, on the rank that went bad, is the cause of all. How it spread follows from it, and from
    that in turn what the ranks saw of it without knowing where it began.
    """
    if cause.step > effect.step:
        return False
    if effect.id == SPREAD:
        return is_located(cause) and cause.rank in _culprits(effect)
    if effect.rank in _culprits(cause):
        return not is_located(effect)
    return effect.evidence.get("origin") in (None, "optimizer")  # an update with gradients that came from elsewhere


def _culprits(finding: Finding) -> set[int]:
    return {finding.rank, *(finding.evidence.get("culprits") or ())}


def across_ranks(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of several ranks' judges, put together: those that are not finite are linked over ranks.

    A judge that saw the readings of all ranks has done so already.
    """
    findings = list(findings)
    spread = [finding for finding in findings if finding.id == SPREAD]
    linked = []
    for effect in findings:
        among = spread if effect.id.startswith("nonfinite-") else findings if effect.id == SPREAD else ()
        own = (each for each in among if launch_of(each) == launch_of(effect))
        causes = [each for each in own if is_shared(each, effect) and spread_over_ranks(each, effect)]
        if causes and "because" not in effect.evidence:
            root = min(causes, key=lambda each: (each.step, each.rank))
            effect = replace(effect, evidence={**effect.evidence, "because": root.id})  # noqa: PLW2901
        linked.append(effect)
    return linked


def launch_of(finding: Finding) -> tuple[Any, Any]:
    """In which run, and which attempt of it: what happened in another one explains nothing, and is another fault."""
    return finding.evidence.get("run"), finding.evidence.get("attempt")


def _revision(finding: Finding) -> int:
    """How much its detector knew when it told of it: what is told later with a higher number takes its place."""
    revision = finding.evidence.get("revision")
    return revision if isinstance(revision, int) else 0


STATUSES = ("healthy", "warning", "critical")
"""Of a run, by the weight of its worst finding."""


def status_of(findings: Iterable[Finding]) -> str:
    """`healthy`, `warning` or `critical`: that of the worst finding."""
    worst = max((finding.severity.weight for finding in findings), default=0)
    return STATUSES[worst]


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Most severe first, then earliest; what follows from another stands below it.

    A cause counts as severe as the worst of what follows from it, so that the reader meets it first.
    """
    findings = list(findings)
    causes = causes_of(findings, apart=lambda finding: finding.evidence.get("attempt"))
    weights = [finding.severity.weight for finding in findings]
    depths = [0] * len(findings)
    for at in range(len(findings)):
        seen, cause = {at}, causes[at]
        while cause is not None and cause not in seen:  # two that blame each other end here
            weights[cause] = max(weights[cause], findings[at].severity.weight)
            depths[at] += 1
            seen.add(cause)
            cause = causes[cause]
    order = sorted(range(len(findings)), key=lambda at: (-weights[at], depths[at], findings[at].step))
    return [findings[at] for at in order]


def causes_of(findings: Sequence[Finding], *, apart: Callable[[Finding], Any] | None = None) -> list[int | None]:
    """Where in `findings` the cause of each stands: one that is located, then one of its own series and rank.

    What is `apart` does not explain the other. Very many ranks may have the same few faults: none is compared with all.
    """
    first: dict[Any, list[int]] = {}
    for at, finding in enumerate(findings):
        kind = (finding.id, None if apart is None else apart(finding))
        own = finding.key[1:]
        ways = ((True, own), (True, None)) if is_located(finding) else ()
        for way in (*ways, (False, own), (False, None)):
            places = first.setdefault((kind, *way), [])
            if len(places) < 2:  # the second, should the first be the finding itself
                places.append(at)
    causes: list[int | None] = []
    for at, finding in enumerate(findings):
        because = finding.evidence.get("because")
        cause = (because, None if apart is None else apart(finding))
        wanted = ((True, finding.key[1:]), (True, None), (False, finding.key[1:]), (False, None))
        there = (place for way in wanted for place in first.get((cause, *way), ()) if place != at)
        causes.append(None if because is None else next(there, None))
    return causes


def judge_all(readings: Iterable[Reading], detectors: Sequence[Detector]) -> list[Finding]:
    """The findings on a list of readings, judged in one go."""
    judge = Judge(detectors)
    for reading in readings:
        judge.observe(reading)
    return judge.findings
