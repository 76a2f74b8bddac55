"""One fault is one story: told from its beginning, with what follows below it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from patients.register import SICK
from patients.sick_activations import rate_kills_all_relus


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_rate_that_kills_all_relus_and_flattens_the_loss(seed, monkeypatch):
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)
    report = SICK[rate_kills_all_relus.__name__].run(seed).report()
    first, *others = report["findings"]
    assert (first["id"], first["evidence"].get("because")) == ("lr-too-high", None)
    assert {"dead-units", "loss-plateau"} <= {finding["id"] for finding in others}
    assert {finding["evidence"]["because"] for finding in others} == {"lr-too-high"}
