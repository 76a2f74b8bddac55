"""What a page is made of: a stored run, or a report alone, which has no curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from seismograd.masking import without_secrets
from seismograd.records import Finding
from seismograd.reports.ranks import merged
from seismograd.reports.report import finding_of

if TYPE_CHECKING:
    from seismograd.store import Heat, Run, Series

POINTS = 360
"""Of a curve: more than a screen can show of it."""


@dataclass(frozen=True)
class Material:
    """One run as the page sees it. Without a store there are no curves and no layers, and nothing else is missing."""

    report: Mapping[str, Any]
    findings: Sequence[Finding]
    about: Mapping[str, Any] = field(default_factory=dict)
    names: Sequence[str] = ()
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ranks: Sequence[int] = (0,)
    state: str = "ended"
    """`live`, `lost` or `ended`."""
    stored: Run | None = None
    brief: bool = False
    """Whether its curves are left out."""

    @property
    def run(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.report["run"])

    @property
    def rank(self) -> int:
        """The one whose curves are drawn."""
        return 0 if 0 in self.ranks else min(self.ranks, default=0)

    def series(
        self,
        names: Iterable[str],
        start: int | None = None,
        stop: int | None = None,
        points: int = POINTS,
        rank: int | None = None,
    ) -> dict[str, Series]:
        """The curves of these names, as far as there are any; of another rank than the first, if one is meant."""
        wanted = [name for name in dict.fromkeys(names) if name in self.names]
        if self.stored is None or self.brief or not wanted:
            return {}
        own = self.rank if rank is None or rank not in self.ranks else rank
        found = self.stored.series(wanted, start=start, stop=stop, points=points, rank=own)
        return {name: found[name] for name in wanted if name in found and len(found[name].steps)}

    def heat(
        self, kind: str, column: str, samples: int, start: int | None = None, stop: int | None = None
    ) -> Heat | None:
        """A measure of all layers over steps; `None` where it was never read."""
        if self.stored is None or self.brief or column not in self.tables.get(kind, ()):
            return None
        heat = self.stored.heat(kind, column, start=start, stop=stop, samples=samples, rank=self.rank)
        return heat if len(heat.names) and len(heat.steps) else None


def materials_of(run: Any) -> list[Material]:
    """A stored run, a report, or several of either; a report on several runs is taken apart."""
    if isinstance(run, Mapping):
        inside = run.get("runs") or ()
        return [material for each in inside for material in materials_of(each)] if inside else [_of_report(run)]
    if isinstance(run, (list, tuple)):
        return [material for each in run for material in materials_of(each)]
    if not hasattr(run, "report"):
        raise TypeError(f"a page is made of a run or a report, not of {type(run).__name__}")
    return [_of_run(run)]


def _of_report(report: Mapping[str, Any]) -> Material:
    if not isinstance(report.get("run"), Mapping):
        raise ValueError("this is no report: it has no 'run'; write one with seismograd run --report")
    findings = merged(finding_of(data) for data in report.get("findings", ()))
    ranks = range(max(1, len(report.get("ranks") or ()), int(report["run"].get("ranks") or 1)))
    return Material(report, findings, _masked(report["run"].get("about") or report.get("about") or {}), ranks=ranks)


def _of_run(run: Any) -> Material:
    names = list(dict.fromkeys(name for rank in run.ranks or [0] for name in run.names(rank=rank)))
    return Material(
        report=run.report(),
        findings=merged(run.findings()),
        about=_masked(run.about or {}),
        names=names,
        tables=run.tables(),
        ranks=list(run.ranks) or [0],
        state="live" if run.live else "lost" if run.lost else "ended",
        stored=run,
    )


def _masked(about: Mapping[str, Any]) -> dict[str, Any]:
    """A page is mailed: whatever the record says, a command that looks as if it held a key does not leave with it."""
    return {name: without_secrets(value) if isinstance(value, str) else value for name, value in about.items()}
