"""What a preflight has to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seismograd.amounts import size
from seismograd.judge import ranked, status_of
from seismograd.quiet_rich import Console, ConsoleOptions, RenderResult, Text
from seismograd.records import Finding, Severity, strict
from seismograd.reports.terminal import render_finding


@dataclass(frozen=True)
class Done:
    """One check: how long it took, what it found, or why it was left out."""

    name: str
    seconds: float
    findings: int = 0
    left_out: str | None = None


@dataclass
class Preflight:
    """The findings before the run, the checks that were made, and figures that are no findings."""

    findings: list[Finding] = field(default_factory=list)
    checks: list[Done] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.findings = ranked(self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is nothing that is a warning or worse."""
        return all(finding.severity is Severity.INFO for finding in self.findings)

    @property
    def status(self) -> str:
        return status_of(self.findings)

    @property
    def left_out(self) -> dict[str, str]:
        """The checks that could not be made, and why."""
        return {done.name: done.left_out for done in self.checks if done.left_out}

    def report(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold."""
        whole: dict[str, Any] = strict(
            {
                "status": self.status,
                "ok": self.ok,
                "seconds": round(self.seconds, 3),
                "findings": [finding.to_dict() for finding in self.findings],
                "checks": [
                    {"name": d.name, "seconds": round(d.seconds, 3), "findings": d.findings, "left_out": d.left_out}
                    for d in self.checks
                ],
                "figures": self.figures,
            }
        )
        return whole

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        from io import StringIO

        from seismograd.quiet_rich import Console

        out = StringIO()
        Console(file=out, width=100, force_terminal=False).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        made = [done for done in self.checks if not done.left_out]
        yield Text(f"preflight: {self.status}, {len(made)} checks in {self.seconds:.1f} s")
        for finding in self.findings:
            yield Text("")
            yield render_finding(finding)
        if self.findings:
            yield Text("")
        width = max((len(done.name) for done in self.checks), default=0)
        reasons = [done.left_out for done in self.checks]
        for done in self.checks:
            if done.left_out and reasons.count(done.left_out) > 2:
                continue
            yield Text(f"  {done.name:{width}}  {self._said(done)}")
        for why in dict.fromkeys(one for one in reasons if one and reasons.count(one) > 2):
            yield Text(f"  {reasons.count(why)} more were left out: {why}")

    def _repr_html_(self) -> str | None:
        """The result as a notebook shows it."""
        from seismograd.reports.page.cell import findings_card, shown_or_none, summary_of

        made = sum(not done.left_out for done in self.checks)
        facts = ["preflight", f"{made} checks in {self.seconds:.1f} s"]
        rows = [(done.name, self._said(done)) for done in self.checks]
        return shown_or_none(lambda: findings_card(self.status, summary_of(self.findings), facts, self.findings, rows))

    def _said(self, done: Done) -> str:
        if done.left_out:
            return f"left out: {done.left_out}"
        return ("ok" if not done.findings else f"{done.findings} found") + self._figure(done.name)

    def _figure(self, name: str) -> str:
        if name == "memory" and "memory" in self.figures:
            memory = self.figures["memory"]
            told = f": {size(memory['fixed'])} fixed, {size(memory['activations'])} for this batch"
            if "largest_batch" not in memory:
                return told
            rounded = float(f"{memory['largest_batch']:.2g}")
            return f"{told}; about {rounded:,.0f} samples fit"
        if name == "learning rate" and "learning_rate" in self.figures:
            rate = self.figures["learning_rate"]
            if rate["interval"] is None:
                return ": the curve shows no clear descent"
            low, high = rate["interval"]
            return f": the loss falls between {low:.1e} and {high:.1e}"
        if name == "first loss" and "first_loss" in self.figures:
            first = self.figures["first_loss"]
            return f": {first['loss']:.3g}, by chance {first['chance']:.3g}"
        return ""
