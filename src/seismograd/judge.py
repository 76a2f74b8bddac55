"""Runs detectors over readings, merges repeats, and says what follows from what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seismograd.protocols import Checker, Detector
from seismograd.records import Finding, Reading

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
        if located or finding.severity.weight > known.severity.weight:  # its place is known, or it got worse
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
            effect.key: [f for f in run if self._explains(f, effect) and not self._is_root(effect)] for effect in run
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
        if cause.id not in self._follows.get(effect.id, ()):
            return False
        if effect.id not in self._follows.get(cause.id, ()):
            return True
        if cause.step != effect.step:
            return cause.step < effect.step
        return self._place.get(cause.id, -1) < self._place.get(effect.id, -1)


def _is_there(need: str, have: set[str]) -> bool:
    return need in have or ("|" in need and not have.isdisjoint(need.split("|")))


def _same_run(cause: Finding, effect: Finding) -> bool:
    """Whether one may explain the other: of one rank, and of one optimizer; NaN spreads in a GAN."""
    if cause.rank != effect.rank:
        return False
    of_cause, of_effect = cause.evidence.get("series"), effect.evidence.get("series")
    return spreads(cause, effect) or of_cause is None or of_effect is None or of_cause == of_effect


def is_located(finding: Finding) -> bool:
    """Whether it is known where it began."""
    return "origin" in finding.evidence


def spreads(cause: Finding, effect: Finding) -> bool:
    """Whether one is not finite because the other is not, maybe."""
    return cause is not effect and cause.id.startswith("nonfinite-") and effect.id.startswith("nonfinite-")


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
    causes = [_cause(finding, findings) for finding in findings]
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


def _cause(finding: Finding, findings: Sequence[Finding]) -> int | None:
    """Where in `findings` the cause of `finding` stands, in the same series and rank if it can be."""
    because = finding.evidence.get("because")
    if because is None:
        return None
    at = [i for i, other in enumerate(findings) if other.id == because and other is not finding]
    return min(at, key=lambda i: (not is_located(findings[i]), findings[i].key[1:] != finding.key[1:]), default=None)


def judge_all(readings: Iterable[Reading], detectors: Sequence[Detector]) -> list[Finding]:
    """The findings on a list of readings, judged in one go."""
    judge = Judge(detectors)
    for reading in readings:
        judge.observe(reading)
    return judge.findings
