"""Every healthy patient is left in peace, every sick one is diagnosed.

One seed by default; `SEISMOGRAD_SEEDS=0,1,2 pytest tests/test_patients.py` for more. `make test` has every eighth
healthy one, and of the sick ones one for each finding; `make thorough` has the rest.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from seismograd import Severity
from seismograd.detectors import DEFAULT

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE))
for _file in sorted((_HERE / "patients").glob("*_*.py")):
    importlib.import_module(f"patients.{_file.stem}")
from patients.register import HEALTHY, SICK, Patient  # noqa: E402

SEEDS = [int(seed) for seed in os.environ.get("SEISMOGRAD_SEEDS", "0").split(",")]


@pytest.fixture(autouse=True)
def _read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is read: a verdict here must not depend on how busy the machine is."""
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def _marks(patient: Patient, thorough: bool) -> list[pytest.MarkDecorator]:
    missed = [pytest.mark.xfail(strict=True, reason=patient.missed)] if patient.missed else []
    return [
        *missed,
        *([pytest.mark.slow] if patient.slow else []),
        *([pytest.mark.thorough] if thorough else []),
    ]


def _cases(ward: dict[str, Patient]) -> list[object]:
    seen: Counter[str] = Counter()
    cases = []
    for number, patient in enumerate(ward.values()):
        thorough = all(seen[each] >= 1 for each in patient.expects) if patient.expects else number % 8 != 0
        seen.update(patient.expects)
        cases += [
            pytest.param(patient, seed, id=f"{patient.name}-{seed}", marks=_marks(patient, thorough)) for seed in SEEDS
        ]
    return cases


@pytest.mark.parametrize(("patient", "seed"), _cases(HEALTHY))
def test_nothing_is_said_of_a_healthy_run(patient: Patient, seed: int) -> None:
    findings = patient.run(seed).findings
    assert [f"{f.id}: {f.message}" for f in findings if f.severity is not Severity.INFO] == []


@pytest.mark.parametrize(("patient", "seed"), _cases(SICK))
def test_a_sick_run_is_diagnosed(patient: Patient, seed: int) -> None:
    findings = patient.run(seed).findings
    told = [f"{f.id}: {f.message}" for f in findings]
    assert patient.expects & {f.id for f in findings[:3]}, f"expected {sorted(patient.expects)}, found {told}"


def test_every_finding_has_two_sick_patients() -> None:
    counted = Counter(each for patient in SICK.values() if not patient.missed for each in patient.expects)
    alone = [detector.id for detector in DEFAULT if not detector.id.startswith("rank-")]  # tests/distributed has those
    assert {name: counted[name] for name in alone if counted[name] < 2} == {}
    assert len(HEALTHY) >= 250
