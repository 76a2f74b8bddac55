"""Checkpoints are whole or not there, hold nothing that has to be unpickled, and say why they cannot be used."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seismograd.optimize.trainer import checkpoint_files
from seismograd.optimize.trainer.checkpoint_files import SCHEMA, CheckpointError, CheckpointFolder, read

from .trainings import StopAfter, everything, same, trainer


def state(number: int) -> dict[str, Any]:
    """Large enough for a write to take a while; its tensor tells whether it is whole."""
    values = np.full(200_000, float(number))  # by NumPy: a forked process has none of torch's threads
    return {"number": number, "tensor": torch.from_numpy(values)}


def whole(read_back: dict[str, Any]) -> int:
    assert read_back["tensor"].tolist() == [float(read_back["number"])] * 200_000
    return int(read_back["number"])


def test_the_last_the_one_before_and_the_best(tmp_path: Path) -> None:
    files = CheckpointFolder(tmp_path / "new" / "folder")
    assert not files
    for number in range(4):
        files.write(state(number), best=number == 1)
    assert files
    assert [whole(read(path)) for path in (files.last, files.previous, files.best)] == [3, 2, 1]
    assert sorted(path.name for path in files.folder.iterdir()) == ["best.pt", "last.pt", "previous.pt"]


def test_on_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    test_the_last_the_one_before_and_the_best(tmp_path)


@pytest.mark.parametrize("where", ["save", "fsync", "replace"])
def test_a_write_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    files = CheckpointFolder(tmp_path)
    files.write(state(0), best=True)
    files.write(state(1))

    def half(_state: Any, file: Any) -> None:
        file.write(b"PK half of it")
        raise OSError(28, "No space left on device")

    def refused(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((torch, "save", half) if where == "save" else (os, where, refused)))
        with pytest.raises(OSError, match="No space left"):
            files.write(state(2), best=True)
    assert whole(read(files.last)) == 1
    assert whole(read(files.best)) == 0
    assert sorted(path.name for path in tmp_path.glob("*.pt") if not path.name.startswith(".")) == [
        *("best.pt", "last.pt", "previous.pt")
    ]
    files.write(state(3))
    assert whole(files.newest()[1]) == 3


def test_killed_when_the_best_was_named_and_the_last_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is left is one with the best: the next write must not go into it."""
    files = CheckpointFolder(tmp_path)
    files.write(state(0), best=True)
    os.link(files.best, tmp_path / ".new.pt")

    def half(_state: Any, file: Any) -> None:
        file.write(b"PK half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        files.write(state(1))
    assert whole(read(files.best)) == whole(read(files.last)) == 0


def test_killed_at_any_moment_of_writing(tmp_path: Path) -> None:
    """Twenty times: there always is a whole last one, and it never gets older."""
    files, newest = CheckpointFolder(tmp_path), 0
    files.write(state(0), best=True)
    chance = random.Random(0)
    for _ in range(20):
        child = os.fork()
        if child == 0:
            try:
                for number in range(newest + 1, newest + 10_000):
                    files.write(state(number), best=number % 2 == 0)
            finally:
                os._exit(1)
        while read(files.last)["number"] == newest and chance.random() < 0.9:
            time.sleep(chance.uniform(0.0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        path, found = files.newest()
        assert path == files.last
        assert whole(found) >= newest
        newest = whole(found)
        assert whole(read(files.best)) <= newest + 1
    assert newest > 0


def test_a_damaged_one_is_noticed_and_the_one_before_is_taken(tmp_path: Path) -> None:
    files = CheckpointFolder(tmp_path)
    files.write(state(0))
    files.write(state(1))
    sound = files.last.read_bytes()
    changed = bytearray(sound)
    changed[len(sound) // 2] ^= 1
    for damaged in (sound[: len(sound) // 2], bytes(changed), b"", b"no checkpoint at all"):
        files.last.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"last.pt is (cut off, )?damaged"):
            read(files.last)
        with pytest.warns(RuntimeWarning, match=r"going on from the one before it, .*previous.pt"):
            assert whole(files.newest()[1]) == 0
    files.previous.unlink()
    with pytest.raises(CheckpointError, match="damaged"):
        files.newest()
    files.last.unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        files.newest()


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("pwned",)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": "seismograd checkpoint", "schema": 1, "model": Evil()}, "zipped.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Evil()))
    for name in ("zipped.pt", "plain.pt"):
        with pytest.raises(CheckpointError):
            read(name)
    assert not Path("pwned").exists()


def test_files_of_others_and_of_later_versions(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1)}, tmp_path / "others.pt")
    with pytest.raises(CheckpointError, match="no checkpoint of Seismograd's trainer"):
        read(tmp_path / "others.pt")
    torch.save({"format": "seismograd checkpoint", "schema": SCHEMA + 1}, tmp_path / "later.pt")
    with pytest.raises(CheckpointError, match=f"schema {SCHEMA + 1}, this version reads up to {SCHEMA}: update"):
        read(tmp_path / "later.pt")


def test_what_could_only_be_pickled_is_named_before_the_first_step(tmp_path: Path) -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"seen": deque([1])}

    one = trainer(checkpoint_dir=tmp_path)
    one.model[0] = Extra(6, 16)
    with pytest.raises(TypeError, match=r"a collections.deque at \['model'\]\['0._extra_state'\]\['seen'\]"):
        one.train_sync()
    assert one.results["steps"] == 0


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path: Path) -> None:
    files = CheckpointFolder(tmp_path)
    files.write({"one": np.float64(0.5), "many": (np.int64(3), [np.bool_(True)])})
    found = read(files.last)
    assert (found["one"], found["many"]) == (0.5, (3, [True]))
    assert type(found["one"]) is float


def test_a_model_that_does_not_fit_is_told_by_its_keys(tmp_path: Path) -> None:
    StopAfter(2)(trainer(checkpoint_dir=tmp_path))
    other = trainer(checkpoint_dir=tmp_path, resume=True)
    other.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3, bias=False))
    before = [parameter.clone() for parameter in other.model.parameters()]
    with pytest.raises(CheckpointError) as raised:
        other.train_sync()
    text = str(raised.value)
    assert "missing in the file: 2.bias, 2.num_batches_tracked" in text
    assert "not in the model: 3.bias" in text
    assert "0.weight (16, 6) for (8, 6)" in text
    assert all(torch.equal(one, two) for one, two in zip(before, other.model.parameters(), strict=True))


def test_an_optimizer_that_does_not_fit(tmp_path: Path) -> None:
    StopAfter(2)(trainer(checkpoint_dir=tmp_path))

    def in_two_groups(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": parameters[:2]}, {"params": parameters[2:]}])

    with pytest.raises(CheckpointError, match="what it has of the optimizer does not fit"):
        trainer(checkpoint_dir=tmp_path, resume=True, optimizer=in_two_groups).train_sync()
    other = trainer(checkpoint_dir=tmp_path, resume=True, optimizer=torch.optim.RMSprop)
    before = [parameter.clone() for parameter in other.model.parameters()]
    with pytest.raises(CheckpointError, match="was trained by AdamW, and this optimizer is RMSprop"):
        other.train_sync()
    assert all(torch.equal(one, two) for one, two in zip(before, other.model.parameters(), strict=True))


def test_a_full_disk_does_not_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(checkpoint_dir=tmp_path, max_epochs=2)
    steps = one._step

    def full(group: Any) -> Tensor:
        monkeypatch.setattr(checkpoint_files.torch, "save", refuses)
        return steps(group)

    def refuses(*_args: Any) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")

    one._step = full  # type: ignore[method-assign]
    with pytest.warns(RuntimeWarning, match="the checkpoint of step (6|12) was not written .*is the disk full"):
        results = one.train_sync()
    assert results["stopped"] == "finished"
    assert [event["event_type"] for event in results["events"]] == ["checkpoint_failed"] * 2
    monkeypatch.undo()
    again = trainer(checkpoint_dir=tmp_path, max_epochs=2, resume=True)  # the one from before the first step
    again.train_sync()
    same(everything(again), everything(one))


def test_the_folder_of_another_run_is_not_written_over(tmp_path: Path) -> None:
    StopAfter(2)(trainer(checkpoint_dir=tmp_path))
    with pytest.raises(FileExistsError, match="resume='auto' goes on with it"):
        trainer(checkpoint_dir=tmp_path)
    with pytest.raises(CheckpointError, match="'auto' begins anew"):
        trainer(checkpoint_dir=tmp_path / "empty", resume=True)
    with pytest.raises(CheckpointError, match="there is no such file or folder"):
        trainer(resume=tmp_path / "nothing.pt")
    with pytest.raises(ValueError, match="there is no checkpoint_dir to look in"):
        trainer(resume="auto")
    with pytest.raises(ValueError, match="resume is 3"):
        trainer(resume=3)
    assert trainer(checkpoint_dir=tmp_path / "other", resume=tmp_path / "last.pt").train_sync()["steps"] == 18
    assert trainer(checkpoint_dir=tmp_path / "third", resume=tmp_path).train_sync()["steps"] == 18


def test_with_and_without_compiling_a_checkpoint_fits(tmp_path: Path) -> None:
    StopAfter(2)(trainer(checkpoint_dir=tmp_path))
    other = trainer(checkpoint_dir=tmp_path, resume=True)
    other.model = torch.compile(other.model, backend="eager")
    other.train_sync()
    assert not any("_orig_mod" in name for name in read(tmp_path / "last.pt")["model"])
