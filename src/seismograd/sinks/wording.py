"""A finding and a report as trackers show them: Markdown, a title, the files of an artifact."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from seismograd.records import Finding, strict
from seismograd.reports.report import finding_of
from seismograd.reports.words import describe_evidence, describe_place, tally

_MARKDOWN = str.maketrans({"<": "&lt;", ">": "&gt;", "|": "\\|"})


def title_of(finding: Finding, most: int = 63) -> str:
    """`critical[nonfinite-loss] at step 7`; some trackers take 63 characters."""
    return f"{finding.severity}[{finding.id}] at step {finding.step}"[:most]


def text_of(finding: Finding) -> str:
    """The finding in a few plain lines: what, where, what to try."""
    lines = [finding.message, describe_place(finding)]
    if finding.where.code:
        lines.append(finding.where.code.strip())
    if (because := finding.evidence.get("because")) is not None:
        lines.append(f"It follows from {because}.")
    return "\n".join([*lines, *(f"Try: {advice}" for advice in finding.recommendations)])


def markdown_of(finding: Finding) -> str:
    """The same as Markdown, with the evidence."""
    parts = [f"**{finding.severity}[{finding.id}]** {_plain(finding.message)}", _plain(describe_place(finding))]
    if finding.where.code:
        parts.append(f"    {finding.where.code.strip()}")
    if (because := finding.evidence.get("because")) is not None:
        parts.append(f"It follows from {_plain(str(because))}.")
    parts += [f"- {_plain(advice)}" for advice in finding.recommendations]
    if evidence := describe_evidence(finding.evidence):
        parts.append(f"evidence: {_plain(evidence)}")
    return "\n\n".join(parts)


def summary_of(report: Mapping[str, Any]) -> str:
    """The verdict as Markdown: one line, then every finding."""
    run = report.get("run") or {}
    findings = [finding_of(data) for data in report.get("findings", ())]
    head = f"**{run.get('status')}** after {run.get('steps')} steps: {tally(findings) or 'nothing found'}"
    return "\n\n".join([head, *map(markdown_of, findings)])


def files_of(report: Mapping[str, Any], page: Callable[[], str] | None) -> dict[str, str]:
    """The report as files: `report.json`, and `report.html` where the page can be made."""
    files = {"report.json": json.dumps(strict(report), indent=2, allow_nan=False)}
    if page is not None:
        try:
            files["report.html"] = page()
        except Exception as error:
            files["report.html.txt"] = f"The page could not be made ({type(error).__name__}: {error}).\n"
    return files


def _plain(text: str) -> str:
    return text.translate(_MARKDOWN)
