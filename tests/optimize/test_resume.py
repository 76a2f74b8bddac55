"""A run that is gone on with is the run that was never interrupted, bit by bit."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from seismograd.optimize.models import optimized

from .trainings import Noisy, StopAfter, data, everything, same, trainer

PLACES = {"at the first step": 1, "in an epoch": 4, "before validation": 6, "in a later one": 9}
"""Steps after which a run of 3 epochs with 6 steps each is interrupted."""


def interrupted(folder: Path, after: int, kind: str = "mlp", **options: Any) -> dict[str, Any]:
    """Trains to a step, then, as in a new process, to the end; returns what came of it."""
    made: Callable[[], dict[str, Any]] = options.pop("fresh", dict)
    results = StopAfter(after)(trainer(kind, checkpoint_dir=folder, **options, **made()))
    assert results["stopped"] == "stopped"
    assert results["steps"] == after
    second = trainer(kind, checkpoint_dir=folder, resume=True, **options, **made())
    assert second.train_sync()["stopped"] == "finished"
    return everything(second)


def whole(folder: Path, kind: str = "mlp", **options: Any) -> dict[str, Any]:
    made: Callable[[], dict[str, Any]] = options.pop("fresh", dict)
    one = trainer(kind, checkpoint_dir=folder, **options, **made())
    assert one.train_sync()["stopped"] == "finished"
    return everything(one)


@pytest.mark.sample(5)
@pytest.mark.parametrize("after", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("kind", ["mlp", "cnn", "transformer"])
def test_wherever_it_is_interrupted(tmp_path: Path, kind: str, after: int) -> None:
    same(interrupted(tmp_path / "two", after, kind), whole(tmp_path / "one", kind))


@pytest.mark.sample(4)
@pytest.mark.parametrize("amp", ["bf16", "fp16"])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "transformer"])
def test_with_autocast_accumulation_clipping_and_a_scheduler(tmp_path: Path, kind: str, amp: str) -> None:
    options: dict[str, Any] = {
        "amp": amp,
        "accumulation_steps": 2,
        "gradient_clip": 0.5,
        "scheduler": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
        "schedule_per": "step",
        "patience": 2,
    }
    same(interrupted(tmp_path / "two", 4, kind, **options), whole(tmp_path / "one", kind, **options))


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5),
    "function": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step / 5)),
    "milestones": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [1, 2]),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 5)], [1]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_with_every_kind_of_scheduler(tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {"scheduler": SCHEDULERS[name], "optimizer": lambda ps: torch.optim.SGD(ps, 0.05, 0.9)}
    same(interrupted(tmp_path / "two", 8, **options), whole(tmp_path / "one", **options))


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Shuffled anew in each epoch, without a length."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        samples = list(zip(*data().tensors, strict=True))
        random.shuffle(samples)
        return iter(samples)


def with_generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


LOADERS: dict[str, Callable[[], Any]] = {
    "a list": lambda: list(DataLoader(data(), batch_size=8)),
    "a generator of its own": lambda: DataLoader(data(), batch_size=8, shuffle=True, generator=with_generator()),
    "drawn with replacement": lambda: DataLoader(
        data(), batch_size=8, sampler=RandomSampler(data(), replacement=True, generator=with_generator())
    ),
    "drawn by weight": lambda: DataLoader(
        data(), batch_size=8, sampler=WeightedRandomSampler(torch.rand(44).tolist(), 44)
    ),
    "a random data set": lambda: DataLoader(Noisy(), batch_size=8, shuffle=True),
    "a stream": lambda: DataLoader(Stream(), batch_size=8),
    "workers": lambda: DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2),
    "workers that live on": lambda: DataLoader(
        Noisy(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True, generator=with_generator()
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_with_every_kind_of_loader(tmp_path: Path, name: str) -> None:
    def fresh() -> dict[str, Any]:
        torch.manual_seed(1)
        return {"train_loader": LOADERS[name]()}

    same(interrupted(tmp_path / "two", 9, fresh=fresh), whole(tmp_path / "one", fresh=fresh))


def test_a_validation_that_draws_leaves_the_rest_of_the_run_as_it_was(tmp_path: Path) -> None:
    def fresh() -> dict[str, Any]:
        workers = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
        return {"val_loader": workers}

    same(interrupted(tmp_path / "two", 8, fresh=fresh), whole(tmp_path / "one", fresh=fresh))


class Stateful:
    """A loader that tells where it stands, as torchdata's does. It counts how many batches were made."""

    made = 0

    def __init__(self) -> None:
        self.at = self.epochs = 0
        self.batches = list(DataLoader(data(), batch_size=8))

    def __iter__(self) -> Iterator[Any]:
        torch.rand(1)  # as a DataLoader draws the seed of its workers
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        order = torch.randperm(len(self.batches), generator=torch.Generator().manual_seed(self.epochs)).tolist()
        while self.at < len(order):
            self.at += 1
            Stateful.made += 1
            yield self.batches[order[self.at - 1]]
        self.at, self.epochs = 0, self.epochs + 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epochs = state["at"], state["epochs"]


@pytest.mark.parametrize("after", PLACES.values(), ids=PLACES)
def test_a_loader_that_tells_its_state_passes_over_nothing(tmp_path: Path, after: int) -> None:
    def fresh() -> dict[str, Any]:
        return {"train_loader": Stateful()}

    reference = whole(tmp_path / "one", fresh=fresh)
    Stateful.made = 0
    same(interrupted(tmp_path / "two", after, fresh=fresh), reference)
    assert Stateful.made == 18


@pytest.mark.parametrize("mode", ["none", "memory_efficient"])
def test_what_modules_hold_and_do_not_save(mode: str, tmp_path: Path) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.draws = nn.Linear(6, 3), torch.Generator().manual_seed(2)
            self.register_buffer("seen", torch.zeros(()), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.seen += 1
            out: Tensor = self.layer(x + torch.rand(x.shape, generator=self.draws)) / self.seen
            return out

    def run(folder: Path, after: int | None) -> dict[str, Any]:
        def made(**more: Any) -> Any:
            one = trainer(checkpoint_dir=folder, **more)
            torch.manual_seed(0)
            from seismograd.optimize.trainer import Trainer

            model = optimized(Held(), mode)
            return Trainer(model, one.training_feed.loader, max_epochs=3, checkpoint_dir=folder, progress=False, **more)

        if after is not None:
            StopAfter(after)(made())
        one = made(resume="auto")
        one.train_sync()
        return {**everything(one), "seen": one.model.seen, "draws": one.model.draws.get_state()}

    same(run(tmp_path / "two", 9), run(tmp_path / "one", None))


def test_from_a_checkpoint_that_was_written_on_the_way(tmp_path: Path) -> None:
    """Killed without a word: what was saved every 2 steps is where it goes on."""
    first = trainer(checkpoint_dir=tmp_path / "two", save_every=2)
    steps = first._step

    def dies(group: Any) -> Tensor:
        if first.course.step == 9:
            raise MemoryError
        return steps(group)

    first._step = dies  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        first.train_sync()
    assert first.results["stopped"] == first.results["status"] == "crashed"
    second = trainer(checkpoint_dir=tmp_path / "two", resume="auto")
    began = []
    steps = second._step
    second._step = lambda group: (began.append(second.course.step), steps(group))[1]  # type: ignore[method-assign]
    second.train_sync()
    assert began[0] == 8
    same(everything(second), whole(tmp_path / "one"))


def test_ctrl_c_finishes_the_step_saves_and_returns_what_there_is(tmp_path: Path) -> None:
    first = trainer(checkpoint_dir=tmp_path / "two")
    first.loss_fn = pressing(lambda: first.course.step == 8, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    results = first.train_sync()
    assert signal.getsignal(signal.SIGINT) is before
    assert results["interrupted"]
    assert results["stopped"] == "interrupted"
    assert (results["steps"], results["epochs"], len(results["train_loss"])) == (9, 1, 1)
    second = trainer(checkpoint_dir=tmp_path / "two", resume=True)
    second.train_sync()
    same(everything(second), whole(tmp_path / "one"))


def test_ctrl_c_under_asyncio_cancels_saves_and_gets_through(tmp_path: Path) -> None:
    first = trainer(checkpoint_dir=tmp_path / "two")
    first.loss_fn = pressing(lambda: first.course.step == 8, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(first.train())
    assert (first.results["stopped"], first.results["steps"]) == ("cancelled", 9)
    second = trainer(checkpoint_dir=tmp_path / "two", resume=True)
    second.train_sync()
    same(everything(second), whole(tmp_path / "one"))


def test_watched_it_is_the_same_too(tmp_path: Path) -> None:
    options: dict[str, Any] = {"enable_pytorch_debugging": True, "debug_mode": True, "strict": True}
    same(interrupted(tmp_path / "two", 8, **options), whole(tmp_path / "one"))


def test_a_second_ctrl_c_gets_through_and_nothing_half_done_is_saved(tmp_path: Path) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    first = trainer(checkpoint_dir=tmp_path / "two", save_every=1)
    first.loss_fn = pressing(lambda: first.course.step == 8, twice)
    with pytest.raises(KeyboardInterrupt):
        first.train_sync()
    assert first.results["interrupted"]
    second = trainer(checkpoint_dir=tmp_path / "two", resume=True)
    second.train_sync()
    same(everything(second), whole(tmp_path / "one"))


def pressing(when: Callable[[], bool], what: Callable[[], object]) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss during which something happens."""

    def loss_fn(output: Tensor, target: Tensor) -> Tensor:
        if when() and output.requires_grad:
            what()
        return nn.functional.cross_entropy(output, target)

    return loss_fn


@pytest.mark.parametrize("after", [4, 6, 9])
def test_a_cancelled_task_saves_and_stops(tmp_path: Path, after: int) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(first.train())
        while first.course.step < after:
            await asyncio.sleep(0)
        task.cancel()
        await task

    first = trainer(checkpoint_dir=tmp_path / "two")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert first.results["stopped"] == "cancelled"
    assert first.results["steps"] == after
    second = trainer(checkpoint_dir=tmp_path / "two", resume=True)
    asyncio.run(second.train())
    same(everything(second), whole(tmp_path / "one"))


def test_cancelled_in_the_middle_of_a_validation_it_validates_again(tmp_path: Path) -> None:
    def fresh() -> dict[str, Any]:
        return {"val_loader": DataLoader(Noisy(), batch_size=8, shuffle=True, generator=with_generator())}

    async def cancelled() -> None:
        task = asyncio.create_task(first.train())
        while first.validation_feed is None or first.validation_feed.used < 2:
            await asyncio.sleep(0)
        assert not first.model.training
        task.cancel()
        await task

    torch.manual_seed(1)
    first = trainer(checkpoint_dir=tmp_path / "two", **fresh())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert first.model.training
    assert first.results["val_loss"] == []
    second = trainer(checkpoint_dir=tmp_path / "two", resume=True, **fresh())
    second.train_sync()
    same(everything(second), whole(tmp_path / "one", fresh=fresh))


SCRIPT = """
import sys, time, torch
sys.path.insert(0, {here!r})
from trainings import everything, trainer
if {slow}:
    forward = torch.nn.Linear.forward
    torch.nn.Linear.forward = lambda self, x: (time.sleep(0.02), forward(self, x))[1]
one = trainer(checkpoint_dir={folder!r}, resume="auto", save_every=1)
results = one.train_sync()
torch.save(everything(one), {folder!r} + "/everything")
print(results["stopped"], results["steps"], flush=True)
"""


def script(folder: Path, *, slow: bool) -> subprocess.Popen[str]:
    source = SCRIPT.format(here=str(Path(__file__).parent), folder=str(folder), slow=slow)
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=os.environ)


def ended_by(number: signal.Signals, folder: Path) -> None:
    """A process that trains, and is sent a signal when a step or two are done."""
    process = script(folder, slow=True)
    while not (folder / "previous.pt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == -number


def test_killed_and_gone_on_with_in_a_fresh_process(tmp_path: Path) -> None:
    ended_by(signal.SIGKILL, tmp_path / "two")
    said, _ = script(tmp_path / "two", slow=False).communicate(timeout=300)
    assert said == "finished 18\n"
    after: dict[str, Any] = torch.load(tmp_path / "two" / "everything", weights_only=False)
    same(after, whole(tmp_path / "one"))


def test_sigterm_saves_and_then_ends_the_process(tmp_path: Path) -> None:
    ended_by(signal.SIGTERM, tmp_path / "two")
    second = trainer(checkpoint_dir=tmp_path / "two", resume=True)
    second.train_sync()
    same(everything(second), whole(tmp_path / "one"))


def test_a_run_that_is_over_can_be_given_more_epochs(tmp_path: Path) -> None:
    first = trainer(checkpoint_dir=tmp_path / "two", max_epochs=2)
    first.train_sync()
    again = trainer(checkpoint_dir=tmp_path / "two", max_epochs=2, resume=True)
    assert again.train_sync()["steps"] == 12  # nothing more to do
    assert again.results["val_loss"] == first.results["val_loss"]
    second = trainer(checkpoint_dir=tmp_path / "two", max_epochs=3, resume=True)
    second.train_sync()
    same(everything(second), whole(tmp_path / "one"))


def test_another_loader_or_other_settings_are_told(tmp_path: Path) -> None:
    StopAfter(4)(trainer(checkpoint_dir=tmp_path))
    shorter = DataLoader(data(16), batch_size=8)
    with pytest.raises(ValueError, match=r"after 4 batches of epoch 1, and the loader has only 2"):
        trainer(checkpoint_dir=tmp_path, resume=True, train_loader=shorter).train_sync()
    with pytest.warns(RuntimeWarning, match=r"was saved with accumulation_steps 1, now 3"):
        trainer(checkpoint_dir=tmp_path, resume=True, accumulation_steps=3).train_sync()


def test_the_random_states_of_torch_numpy_and_python_go_on(tmp_path: Path) -> None:
    StopAfter(4)(trainer(checkpoint_dir=tmp_path))
    expected = torch.rand(1), random.random(), np.random.rand()
    torch.manual_seed(99)
    second = trainer(checkpoint_dir=tmp_path, resume=True)
    with second._session():
        assert (torch.rand(1), random.random(), np.random.rand()) == expected
        second.stop()
