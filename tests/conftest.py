"""For all tests: readings must not depend on how fast the machine is, and what is saved goes where it is cleaned up."""

from __future__ import annotations

from pathlib import Path

import pytest

from seismograd import governor


@pytest.fixture(autouse=True)
def unlimited_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The governor never has to skip a step; its own tests set the grace that they need."""
    monkeypatch.setattr(governor, "GRACE", 1e9)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in which runs are kept, also by the processes that a test starts."""
    folder = tmp_path / "seismograd-home"
    monkeypatch.setenv("SEISMOGRAD_HOME", str(folder))
    monkeypatch.setenv("SEISMOGRAD_STORE", "off")  # what is about recorded runs names a store
    monkeypatch.delenv("SEISMOGRAD_CAPTURE", raising=False)
    monkeypatch.delenv("SEISMOGRAD_CAPTURE_LIMIT", raising=False)
    return folder
