"""For all tests: readings must not depend on how fast the machine is, and what is saved goes where it is cleaned up."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from seismograd import governor
from seismograd.run import scout

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of several processes that spin for each other's processors
os.environ.setdefault("MKL_NUM_THREADS", "1")

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_configure() -> None:
    """`nohup make test &` leaves signals ignored, which the programs that tests send them to would inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked `sample(n)` so many stay, from all over; the rest is `thorough`."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for own in cases.values():
        number = own[0].get_closest_marker("sample").args[0]
        kept = {at * len(own) // number for at in range(number)}
        for at, item in enumerate(own):
            if at not in kept:
                item.add_marker("thorough")


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """What earlier files left, the packages above all, is out of the collector's sight: each watch of a test looks
    through all objects, and with Lightning, transformers and MLflow in the process these are two millions."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unlimited_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The governor never has to skip a step, nor a scout a look; the governor's own tests set the grace they need."""
    monkeypatch.setattr(governor, "GRACE", 1e9)
    monkeypatch.setattr(scout, "_FREE", 1e9)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in which runs are kept, also by the processes that a test starts."""
    folder = tmp_path / "seismograd-home"
    monkeypatch.setenv("SEISMOGRAD_HOME", str(folder))
    monkeypatch.setenv("SEISMOGRAD_STORE", "off")  # what is about recorded runs names a store
    monkeypatch.delenv("SEISMOGRAD_CAPTURE", raising=False)
    monkeypatch.delenv("SEISMOGRAD_CAPTURE_LIMIT", raising=False)
    return folder
