import json
from pathlib import Path

import psutil
import pytest
import torch

from seismograd.amounts import size
from seismograd.memory import limits, snapshots
from seismograd.memory.snapshots import compare, limit, snapshot, used


def test_a_snapshot_is_strict_json_with_every_key() -> None:
    told = snapshot("before")
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told) == {
        *("timestamp", "label", "rss", "uss", "limit", "cpu_memory_percent"),
        *("cuda_allocated", "cuda_reserved", "cuda_peak"),
    }
    assert told["label"] == "before"
    assert 0 < told["cpu_memory_percent"] <= 100
    assert 0 < told["rss"] <= told["limit"] <= psutil.virtual_memory().total
    assert told["uss"] is None or 0 < told["uss"] <= 1.1 * told["rss"]


def test_rss_agrees_with_psutil() -> None:
    assert snapshots.rss() == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)


def test_two_snapshots_tell_what_was_made_between_them() -> None:
    before = snapshot("a")
    kept = torch.ones(16 * 1024 * 1024)
    after = snapshot("b")
    change = compare(before, after)
    assert (change["from"], change["to"]) == ("a", "b")
    assert change["rss"] == pytest.approx(kept.nbytes, rel=0.1)
    assert change["seconds"] > 0
    assert "resident memory rose by" in change["words"]
    assert "MB" in change["words"]
    assert compare(after, before)["rss"] == -change["rss"]
    json.dumps(change, allow_nan=False)


def test_comparing_what_is_not_known_says_so() -> None:
    change = compare({"rss": 5, "uss": None}, {"rss": 5, "uss": 7})
    assert change["rss"] == 0
    assert change["uss"] is None
    assert change["seconds"] is None
    assert change["words"] == "no change"


def test_bytes_in_words() -> None:
    assert [size(amount) for amount in (12, 2048, 1.5 * 2**30, 3 * 2**40)] == ["12 bytes", "2 kB", "1.5 GB", "3 TB"]


# -- cgroups: trees as docker, systemd and Kubernetes make them ----------------------------------------------------


def _proc(folder: Path, members: str, mounts: str) -> Path:
    proc = folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(members)
    (proc / "mountinfo").write_text(mounts)
    return proc


def _group(folder: Path, most: str, current: int, inactive: int, *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{most}\n")
    (folder / names[1]).write_text(f"{current}\n")
    prefix = "" if version == 2 else "total_"
    (folder / "memory.stat").write_text(f"anon 1\n{prefix}inactive_file {inactive}\n{prefix}active_file 3\n")


def _use(monkeypatch: pytest.MonkeyPatch, found: list[limits.Group]) -> None:
    monkeypatch.setattr(limits, "_groups", lambda: tuple(found))


def test_the_tightest_group_up_the_tree_is_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "fs"
    _group(top / "user" / "job", "max", 100, 10)
    _group(top / "user", "4000", 2000, 500)
    proc = _proc(tmp_path, "0::/user/job\n", f"30 25 0:27 / {top} rw - cgroup2 cgroup2 rw\n")
    found = limits.groups(proc)
    assert [group.most() for group in found] == [None, 4000]
    _use(monkeypatch, found)
    assert limit() == 4000
    assert used() == 1500
    assert snapshots.percent() == 37.5


def test_version_1_below_a_mount_of_part_of_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "memory"
    _group(top, "1000", 900, 100, version=1)
    mounts = f"30 25 0:27 /docker/abc {top} rw - cgroup cgroup rw,memory\n31 25 0:28 / /x rw - cgroup cgroup rw,cpu\n"
    found = limits.groups(_proc(tmp_path, "4:memory:/docker/abc\n1:cpu:/docker/abc\n", mounts))
    _use(monkeypatch, found)
    assert (limit(), used()) == (1000, 800)


def test_a_group_outside_of_what_is_mounted_is_the_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "fs"
    _group(top, "5000", 3000, 0)
    found = limits.groups(_proc(tmp_path, "0::/../../elsewhere\n", f"30 25 0:27 / {top} rw - cgroup2 none rw\n"))
    _use(monkeypatch, found)
    assert limit() == 5000


def test_without_a_limit_the_machine_is_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.groups(tmp_path / "nothing") == []
    top = tmp_path / "fs"
    _group(top, str(2**63 - 4096), 3000, 0, version=1)
    _use(monkeypatch, limits.groups(_proc(tmp_path, "4:memory:/\n", f"30 25 0:27 / {top} rw - cgroup x rw,memory\n")))
    assert limit() == psutil.virtual_memory().total
    assert 0 < used() < limit()


def test_a_group_that_goes_away_is_no_error(tmp_path: Path) -> None:
    gone = limits.Group(tmp_path / "a", tmp_path / "b", tmp_path / "c", "inactive_file")
    assert gone.most() is None
    assert gone.working_set() is None
