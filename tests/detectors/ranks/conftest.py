"""What rank 0 merged from the notes of all ranks, written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seismograd.records import Finding, Reading, strict


class Ranks:
    """Makes readings of several ranks, and runs detectors over them."""

    @staticmethod
    def reading(step: int = 0, **told: Any) -> Reading:
        """A reading of two ranks under DDP, with what is told of them."""
        return Reading(step, facts={"ranks": {"world": 2, "told": 2, "kind": "ddp"} | told})

    @staticmethod
    def apart(first: int = 12, times: int = 1, agreements: int = 12, **told: Any) -> dict[str, Any]:
        """A parting of two ranks; `agreed` is the step before it."""
        known = {"groups": [[0], [1]], "counts": [1, 1], "agreed": first - 1 if agreements else None}
        return known | {"agreements": agreements, "first": first, "times": times} | told

    @classmethod
    def parted(cls, count: int = 8, first: int = 12, what: str = "parameters", **told: Any) -> list[Reading]:
        """So many readings from a parting on; `apart` for its parts, the rest for each reading."""
        of = told.pop("apart", {})
        readings = []
        for at in range(count):
            apart = {what: cls.apart(first, at + 1, **of)}
            if told.get("gradients"):
                apart["gradients"] = cls.apart(first, at + 1, **of)
            more = {name: value for name, value in told.items() if name not in ("gradients", "detail")}
            if at == 1 and "detail" in told:
                more["detail"] = told["detail"]
            readings.append(cls.reading(first + at, apart=apart, **more))
        return readings

    @staticmethod
    def detail(name: str = "0.weight", gap: float = 0.03, **told: Any) -> dict[str, Any]:
        rows = [{"name": name, "values": {0: 1.25, 1: 1.31}}]
        return {"what": "parameters", "step": 12, "names": rows, "differ": 3, "of": 4, "gap": gap} | told

    @staticmethod
    def run(detector: Any, readings: list[Reading]) -> list[Finding]:
        checker = detector.start()
        found = [checker.check(reading) for reading in readings]
        return [finding for finding in found if finding is not None]

    @staticmethod
    def stored(reading: Reading) -> Reading:
        """The reading as it comes out of a store: all keys are strings."""
        return Reading(reading.step, facts=json.loads(json.dumps(strict(reading.facts))))


@pytest.fixture
def ranks() -> type[Ranks]:
    return Ranks
