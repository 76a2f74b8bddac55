"""Every kind of leak is named as the user knows it, with the line that lets it grow."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from seismograd import Severity

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
importlib.import_module("patients.sick_memory")
from patients.register import SICK, Patient  # noqa: E402

FILE = TESTS / "patients" / "sick_memory.py"
LINES = FILE.read_text().splitlines()
LEAKS = [patient for patient in SICK.values() if patient.program.__module__ == "patients.sick_memory"]


@pytest.fixture(autouse=True)
def _read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def test_there_are_enough_kinds() -> None:
    assert len(LEAKS) >= 8


@pytest.mark.sample(8)
@pytest.mark.parametrize("patient", LEAKS, ids=lambda patient: patient.name)
def test_the_holder_and_its_line_are_named(patient: Patient) -> None:
    findings = [finding for finding in patient.run().findings if finding.id == "memory-leak"]
    assert findings, "nothing was found"
    finding = findings[0]
    assert finding.severity is not Severity.INFO
    assert Path(finding.where.file).name == FILE.name
    line = LINES[finding.where.line - 1]
    told = re.search(r"# leaks: (.*)$", line)
    assert told, f"another line is named: {finding.where.line}: {line}"
    assert finding.evidence["holder"] == told[1], finding.message
    assert finding.recommendations
