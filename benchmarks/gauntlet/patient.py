"""Runs a patient as an ordinary program: nothing in it watches, so that what watches it comes from outside."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import seismograd as sg

TESTS = Path(__file__).parents[2] / "tests"


class Unwatched:
    """Stands where `sg.watch` would: everything that a patient does with its watch does nothing."""

    findings: tuple[()] = ()

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self


def run(name: str, seed: int = 0) -> None:
    sys.path.insert(0, str(TESTS))
    sg.watch = lambda *args, **kwargs: Unwatched()  # type: ignore[assignment]
    for file in sorted((TESTS / "patients").glob("*_*.py")):
        importlib.import_module(f"patients.{file.stem}")
    from patients.register import HEALTHY, SICK

    (HEALTHY | SICK)[name].run(seed)
