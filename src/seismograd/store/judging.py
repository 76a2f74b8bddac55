"""A stored run judged again: the same detectors over the same readings, or others, with other limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seismograd.config import Config, find_config
from seismograd.detectors import DEFAULT
from seismograd.detectors.insights import EXPLAINED
from seismograd.judge import Judge, ranked, status_of
from seismograd.protocols import Detector
from seismograd.records import SHARED, Finding, Reading, strict
from seismograd.reports.report import finding_of
from seismograd.store.spans import Span, merged, missing, spans_of

if TYPE_CHECKING:
    from seismograd.store.run import Run

_SERIES = re.compile(r"grad/norm/(\d+)")
"""What a run with several optimizers reads, and no other."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What detectors say of a stored run, and on what they judged."""

    run: str
    findings: tuple[Finding, ...]
    """In the order in which they should be read."""
    status: str
    spans: tuple[Span, ...]
    """The steps that were judged, and at what resolution; of the first rank."""
    kept: tuple[Finding, ...] = ()
    """Those of `findings` that are taken from the live run: what they were judged on is not there any more."""
    gone: tuple[Finding, ...] = ()
    """What the live run found, and this judgement did not."""
    new: tuple[Finding, ...] = ()
    """What this judgement found, and the live run did not."""
    unrecorded: str | None = None
    """What of the run never came into the store, if something did not."""
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether everything that was read was there to be judged."""
        return self.unrecorded is None and all(span.whole for span in self.spans)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as strict JSON has it."""
        told: dict[str, Any] = strict(
            {
                "run": self.run,
                "status": self.status,
                "findings": [finding.to_dict() for finding in self.findings],
                "spans": [span.to_dict() for span in self.spans],
                "whole": self.whole,
                "unrecorded": self.unrecorded,
                **{name: [_short(finding) for finding in getattr(self, name)] for name in ("kept", "gone", "new")},
                "notes": self.notes,
            }
        )
        return told


def _short(finding: Finding) -> dict[str, Any]:
    return {"id": finding.id, "severity": finding.severity, "step": finding.step, "rank": finding.rank}


def check(
    run: Run,
    detectors: Iterable[Detector] | None = None,
    *,
    ignore: Iterable[str] | str = (),
    config: Config | None = None,
) -> Verdict:
    """Judges the stored readings again, with the limits that `pyproject.toml` sets or those of the given detectors.

    Where all readings are kept the verdict is that of the live run; what that one ignored is ignored again unless
    detectors are given. Where readings were thinned with age the scalars that are left are judged, and the verdict says
    at what resolution.
    """
    config = find_config() if config is None else config
    ignored = ({ignore} if isinstance(ignore, str) else set(ignore)) | set(config.ignore)
    if detectors is None:
        ignored |= set(run.state.get("ignored") or ())
    chosen = config.apply(DEFAULT if detectors is None else detectors)
    found_live = [finding for finding in run.findings() if finding.id not in ignored]
    notes: list[str] = []
    judge = Judge(
        chosen,
        ignore=ignored,
        on_failure=lambda part, error: notes.append(f"{part} failed ({type(error).__name__}: {error})"),
        explain=_second_looks(found_live),
    )
    for finding in _before_the_run(run):
        if finding.id not in ignored:
            judge.add(finding)
    spans: dict[int, tuple[Span, ...]] = {}
    for rank in run.ranks:
        stored = _Stored(run, rank)
        for reading in stored.readings():
            judge.observe(reading)
        spans[rank] = stored.spans
    kept = [finding for finding in found_live if _only_live(finding, chosen, spans.get(finding.rank, ()), run)]
    for finding in kept:
        if finding.key not in {known.key for known in judge.findings}:
            judge.add(finding)
    findings = judge.findings
    keys, live_keys = {finding.key for finding in findings}, {finding.key for finding in found_live}
    gone = [finding for finding in found_live if finding.key not in keys]
    first = next(iter(spans.values()), ())
    return Verdict(
        run=run.id,
        findings=tuple(findings),
        status="crashed" if run.status == "crashed" else status_of(findings),
        spans=first,
        kept=tuple(ranked(kept)),
        gone=tuple(gone),
        new=tuple(finding for finding in findings if finding.key not in live_keys),
        unrecorded=run.state.get("lost"),
        notes=(*notes, *_notes(run, first, gone, kept, detectors is None and not config.limits)),
    )


class _Stored:
    """The readings of one rank in their order: all of them where they are kept, else what is left of them."""

    def __init__(self, run: Run, rank: int) -> None:
        self._run, self._rank = run, rank
        self.spans: tuple[Span, ...] = ()
        """What was judged so far."""

    def readings(self) -> Iterator[Reading]:
        run, rank = self._run, self._rank
        kept = run.kept(rank)
        there = merged((span.start, span.stop) for span in kept)
        gaps = missing(0, max([run.steps - 1, *(stop for _, stop in there)]), there)
        if not gaps:  # no step is asked for: a reading may come late
            self.spans = tuple(kept)
            yield from run.readings(rank=rank, bare=True)
            return
        for start, stop in sorted([*there, *gaps]):
            if (start, stop) in gaps:
                yield from self._thinned(start, stop)
            else:
                self.spans += tuple(span for span in kept if start <= span.start <= stop)
                yield from run.readings(start, stop, rank, bare=True)

    def _thinned(self, start: int, stop: int) -> Iterator[Reading]:
        """A reading for each point that is left: the last value of each scalar, or one that was not finite."""
        every = self._run.series(self._run.names(self._rank), start, stop, rank=self._rank)
        points: dict[tuple[int, int], dict[str, float]] = {}
        for name, series in every.items():
            for first, last, value, bad in zip(
                series.first.tolist(), series.steps.tolist(), series.last.tolist(), series.bad.tolist(), strict=True
            ):
                if last <= stop or bad:
                    worst = math.nan if bad and math.isfinite(value) else value
                    points.setdefault((min(last, stop), first), {})[name] = worst
        edges = sorted((max(first, start), last) for last, first in points)
        if edges:
            first_steps, last_steps = np.array(edges, dtype=np.int64).T
            self.spans += spans_of(first_steps, last_steps)
        for (last, _), scalars in sorted(points.items()):
            yield from _readings_of(last, scalars, self._rank)


def _readings_of(step: int, scalars: Mapping[str, float], rank: int) -> Iterator[Reading]:
    """The reading with these scalars: one for each optimizer where there are several, and the rest."""
    numbers = sorted({int(found[1]) for name in scalars if (found := _SERIES.fullmatch(name))})
    shared = {name: value for name, value in scalars.items() if name.startswith(SHARED)}
    owned: set[str] = set()
    for number in numbers:
        own = {name: scalars[name] for name in scalars if name.endswith(f"/{number}") and name not in shared}
        owned |= own.keys()
        yield Reading(step, {**own, **shared}, rank=rank, series=number)
    rest = {name: value for name, value in scalars.items() if name not in owned}
    if rest and not (numbers and rest.keys() <= shared.keys()):
        yield Reading(step, rest, rank=rank)


def _before_the_run(run: Run) -> Iterator[Finding]:
    """What a preflight found before the first step: it is no detector's."""
    for event in run.events(types=["preflight"]):
        told = (event.get("data") or {}).get("preflight") or {}
        for data in told.get("findings", ()):
            yield finding_of({**data, "step": 0, "last_step": 0, "rank": event.get("rank") or 0})


def _second_looks(found_live: Sequence[Finding]) -> Any:
    """What a second run of the step told about a finding; it cannot be run again here, so it is taken over."""
    known = {(finding.key, finding.step): finding.evidence for finding in found_live if finding.id in EXPLAINED}

    def explain(finding: Finding) -> dict[str, Any]:
        evidence = known.get((finding.key, finding.step), {})
        return {name: value for name, value in evidence.items() if name not in finding.evidence and name != "because"}

    return explain


def _only_live(finding: Finding, detectors: Sequence[Detector], spans: Sequence[Span], run: Run) -> bool:
    """Whether only the live run could find it: it is no detector's, or what the detector needs is kept no more."""
    detector = next((each for each in detectors if each.id == finding.id), None)
    if detector is None:
        return finding.id not in _IDS
    own = next((span for span in spans if span.start <= finding.step <= span.stop), None)
    if own is not None and own.whole:
        return False
    names = {name.partition("/")[0] if name.startswith("lr/") else name for name in run.names(finding.rank)}
    names |= {name.rpartition("/")[0] for name in names}  # of a GAN

    def is_there(need: str) -> bool:
        told = need == "origin" or need.startswith("facts/")
        return need in names or (told and own is not None and own.width == 1)

    return not all(any(is_there(one) for one in need.split("|")) for need in detector.needs)


_IDS = frozenset(detector.id for detector in DEFAULT)


def _notes(
    run: Run, spans: Sequence[Span], gone: Sequence[Finding], kept: Sequence[Finding], same: bool
) -> Iterator[str]:
    if run.live:
        yield "the run goes on: it is judged as far as it is recorded"
    if run.state.get("lost"):
        yield f"not everything was recorded: {run.state['lost']}"
    thin = [span for span in spans if not span.whole]
    for span in thin:
        yield f"{span} were judged{' by scalars alone' if span.width > 1 else ''}: the rest is kept no more"
    for finding in kept:
        if finding.id in _IDS:
            yield f"{finding.id} of step {finding.step:,} is as the live run found it: what it was judged on is gone"
    for finding in gone:
        at = next((span for span in thin if span.start <= finding.step <= span.stop), None)
        if at is not None:
            why = f", where one reading in {at.width:,} steps is left"
        else:
            why = "" if same else " with these limits"
        yield f"{finding.id} of step {finding.step:,} was found live, and not again{why}"
