"""The folder that ranks share goes away and comes back: nothing is lost that is in memory, and it is said once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from seismograd.store import recorder as recorders

from .test_ranks import RUN, Ranks, one, steps_of, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "SHORTEST_WAIT", 0.05)
    monkeypatch.setattr(recorders, "LONGEST_WAIT", 0.2)
    monkeypatch.setattr(recorders, "LITTLE_PATIENCE", 0.5)


def _troubled(ranks: Ranks) -> bool:
    return all(sink.trouble is not None for sink in ranks.sinks)


def _well(ranks: Ranks) -> bool:
    return all(sink.trouble is None for sink in ranks.sinks)


def _resumed(ranks: Ranks, where: Path) -> None:
    until(lambda: _well(ranks))
    ranks.train(5)
    ranks.flush()
    ranks.end()
    with one(where) as run:
        for rank in run.ranks:
            assert steps_of(run, rank) == list(range(ranks.step))
        told = [event["event_type"] for event in run.events()]
        assert told.count("store_unavailable") == told.count("store_resumed") == len(ranks.sinks)
        assert run.ended is not None
        assert run.attempt == 0
    assert len(ranks.said) == len(ranks.sinks), "once by each rank"


def test_renamed_and_back(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "store", 2)
    ranks.train(20)
    ranks.flush()
    (tmp_path / "store").rename(tmp_path / "away")
    ranks.train(20)
    until(lambda: _troubled(ranks))
    assert not (tmp_path / "store").exists(), "it is not made anew"
    ranks.train(600)
    (tmp_path / "away").rename(tmp_path / "store")
    _resumed(ranks, tmp_path / "store")


def test_away_for_good_is_not_called_recorded(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "store", 2)
    ranks.train(20)
    ranks.flush()
    assert all(sink.written for sink in ranks.sinks)
    (tmp_path / "store").rename(tmp_path / "away")
    ranks.train(20)
    until(lambda: _troubled(ranks))
    ranks.end()
    for told in (sink.told() for sink in ranks.sinks):
        assert told["written"] == 0
        assert told["missing"].startswith("the file that it was written to is gone")


def test_unmounted_and_back(tmp_path: Path) -> None:
    place, other = tmp_path / "mounted", tmp_path / "disk"
    place.mkdir()
    other.mkdir()
    if subprocess.run(["mount", "--bind", str(other), str(place)], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        ranks = Ranks(place / "store", 2)
        ranks.train(20)
        ranks.flush()
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        ranks.train(20)
        until(lambda: _troubled(ranks))
        assert not list(place.iterdir()), "nothing is written where the disk was"
        subprocess.run(["mount", "--bind", str(other), str(place)], check=True)
        _resumed(ranks, place / "store")
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def test_another_copy_comes_back(tmp_path: Path) -> None:
    """A backup, or a disk that was away while another lay in its place: what is newer is in memory."""
    store, copy = tmp_path / "store", tmp_path / "copy"
    ranks = Ranks(store, 2)
    ranks.train(20)
    ranks.flush()
    shutil.copytree(store, copy)
    ranks.train(20)
    ranks.flush()
    store.rename(tmp_path / "lost")
    copy.rename(store)
    ranks.train(20)
    ranks.flush()
    ranks.end()
    with one(store) as run:
        for rank in run.ranks:
            assert steps_of(run, rank) == list(range(60))
        assert run.attempt == 0


def test_deleted_while_it_goes_on(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.train(20)
    ranks.flush()
    shutil.rmtree(tmp_path / "ranks" / RUN)
    ranks.train(20)
    ranks.flush()
    ranks.train(1)
    ranks.end()
    with one(tmp_path) as run:
        assert steps_of(run, 1) == list(range(41)), "what was in memory was written once more"
        assert run.events(types="store_replaced")
