"""What is told of a loop that waits for its data: on real loaders, with and without workers."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import threading
from time import sleep

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler

import seismograd as sg
from seismograd.onlookers.resources import trial
from seismograd.onlookers.resources.loading import Loading
from seismograd.onlookers.resources.safety import caches, refusal
from seismograd.onlookers.resources.stacks import Samples, stage_of
from seismograd.onlookers.resources.trial import Order, make
from seismograd.sinks import Memory

NAP = 0.008  # far more than a step takes on a busy machine


class Items(Dataset):
    """Samples that take a nap each, in one stage or another."""

    def __init__(self, stage="sample", count=160, nap=NAP):
        self.stage, self.count, self.nap = stage, count, nap

    def __len__(self):
        return self.count

    def load(self, index):
        if self.stage == "reading":
            sleep(self.nap)
        return torch.full((3,), index / self.count)

    def __getitem__(self, index):
        if self.stage == "sample":
            sleep(self.nap)
        x = self.load(index)
        if self.stage == "transform":
            x = Augmentation(self.nap)(x)
        return x + 0.1 * torch.rand(3), index % 2


class Augmentation:
    def __init__(self, nap):
        self.nap = nap

    def __call__(self, x):
        sleep(self.nap)
        return -x


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(160):
            sleep(NAP)
            yield torch.rand(3), index % 2


def slowly_together(samples):
    sleep(len(samples) * NAP)
    return torch.utils.data.default_collate(samples)


@pytest.fixture(autouse=True)
def _read_in_full(monkeypatch):
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def train(loader, epochs=1):
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, lambda: run(model, optimizer, loader, epochs)


def run(model, optimizer, loader, epochs):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def told(loader, epochs=1):
    model, optimizer, program = train(loader, epochs)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory], replay=False, strict=True) as watch:
        program()
    facts = [reading.facts["loading"] for reading in memory.readings if "loading" in reading.facts]
    return (dict(facts[-1]) if facts else None), watch


@pytest.mark.parametrize("stage", ["reading", "transform", "sample", "collate"])
def test_the_stage_and_its_line(stage):
    collate = slowly_together if stage == "collate" else None
    facts, watch = told(DataLoader(Items(stage), batch_size=5, shuffle=True, collate_fn=collate))
    assert next(iter(facts["stages"])) == stage
    assert facts["line"]["code"].startswith("sleep(")
    assert facts["line"]["file"].endswith("test_loading.py")
    (finding,) = [found for found in watch.findings if found.id == "data-starvation"]
    assert finding.evidence["stage"] == stage
    assert finding.where.code == facts["line"]["code"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_stage_in_workers(method):
    loader = DataLoader(Items("reading", nap=0.03), batch_size=5, num_workers=1, multiprocessing_context=method)
    facts, _ = told(loader)
    assert facts["workers"] == 1
    assert next(iter(facts["stages"])) == "reading"
    assert [made["workers"] for made in facts["trial"]["rounds"]] == [1, 4]
    assert facts["refused"] is None


def test_naps_side_by_side():
    """Sleeping costs no CPU: four processes make batches faster than one, however busy the machine is."""
    samples, before = Samples(), psutil.Process().children()
    order = Order(Items(nap=0.02), torch.utils.data.default_collate, True, None, [[at] for at in range(12)])
    one, four = make(order, 1, samples), make(order, 4, samples)
    assert (one.error, four.error) == (None, None)
    assert four.rate > 1.5 * one.rate
    assert one.size == 3 * 4 + 8
    assert next(iter(samples.shares())) == "sample"
    assert psutil.Process().children() == before


def test_a_dataset_that_keeps_what_it_made_is_fast_again():
    class Keeping(Items):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def __getitem__(self, index):
            if index not in self.cache:
                self.cache[index] = super().__getitem__(index)
            return self.cache[index]

    keeping = Keeping()
    assert caches(keeping)
    assert not caches(Items())
    order = Order(keeping, torch.utils.data.default_collate, True, None, [[at] for at in range(4)])
    assert make(order, 1, Samples()).again > 3
    assert keeping.cache == {}


def test_one_that_fails_in_a_copy_is_told_of():
    class Broken(Items):
        def __getitem__(self, index):
            raise OSError("no such host")

    order = Order(Broken(), torch.utils.data.default_collate, True, None, [[0], [1]])
    assert make(order, 1, Samples()).error == "OSError: no such host"


def test_one_that_hangs_is_given_up(monkeypatch):
    class Hanging(Items):
        def __getitem__(self, index):
            sleep(600)

    monkeypatch.setattr(trial, "PATIENCE", 0.3)
    before = psutil.Process().children()
    order = Order(Hanging(), torch.utils.data.default_collate, True, None, [[0], [1]])
    assert "in time" in make(order, 2, Samples()).error
    assert psutil.Process().children() == before


def test_a_copy_says_nothing(capfd):
    class Loud(Items):
        def __getitem__(self, index):
            print("reading", index, flush=True)
            os.write(2, b"reading")
            return super().__getitem__(index)

    order = Order(Loud(), torch.utils.data.default_collate, True, None, [[0], [1]])
    assert make(order, 1, Samples()).error is None
    assert capfd.readouterr() == ("", "")


class Own(Sampler):
    def __iter__(self):
        return iter(["a", "b"])

    def __len__(self):
        return 2


def holding(**attributes):
    dataset = Items()
    vars(dataset).update(attributes)
    return dataset


_lock = threading.Lock()


class ByGlobal(Items):
    def __getitem__(self, index):
        with _lock:
            return super().__getitem__(index)


class Remembering(Items):
    def __init__(self):
        super().__init__()
        self.table = torch.zeros(160)

    def __getitem__(self, index):
        self.table[index] = 1.0
        return super().__getitem__(index)


class Writing(Items):
    def __getitem__(self, index):
        np.save("/nowhere", index)
        return super().__getitem__(index)


def test_what_is_not_copied(tmp_path):
    def why(dataset, **options):
        return refusal(iter(DataLoader(dataset, batch_size=4, **options)))

    assert why(Items(), shuffle=True) is None
    assert why(Items(), sampler=RandomSampler(Items())) is None
    assert why(holding(transform=torch.nn.Identity(), table=torch.ones(3), names=["a", "b"])) is None
    assert "iterable" in why(Stream())
    assert "Own" in why(Items(), sampler=Own())
    with open(tmp_path / "file", "w") as file:
        assert "is an open file" in why(holding(inner={"file": file}))
    with sqlite3.connect(":memory:") as base:
        assert "sqlite3" in why(holding(base=base))
    assert "lock" in why(holding(guard=threading.Lock()))
    assert "lock" in why(ByGlobal())
    assert why(holding(table=torch.ones(3).share_memory_())) is None
    remembering = Remembering()
    assert why(remembering) is None
    remembering.table.share_memory_()
    assert "processes share" in why(remembering)
    assert "may write (`save`)" in why(Writing())
    assert "mapped" in why(holding(table=np.memmap(tmp_path / "map", dtype="f4", mode="w+", shape=4)))


def test_a_stream_is_sampled_but_not_tried():
    facts, _ = told(DataLoader(Stream(), batch_size=5))
    assert facts["trial"] is None
    assert "iterable" in facts["refused"]
    assert next(iter(facts["stages"])) == "sample"


def test_what_is_fast_is_left_alone():
    facts, watch = told(DataLoader(Items(nap=0.0), batch_size=5))
    assert facts is None
    assert [found.id for found in watch.findings if found.id == "data-starvation"] == []


def test_of_accumulated_batches_each_counts_alone():
    """Eight quick batches for one step are no slow loader."""
    loading = Loading(None, lambda seconds: None)
    loader = iter(DataLoader(torch.rand(64, 3), batch_size=1))
    for _ in range(4):
        for _ in range(8):
            loading.data_came(next(loader), loader)
        loading.timed({"data": 0.016, "step": 0.024, "watch": 0.0})
    assert [wait for wait, _ in loading._judged] == pytest.approx([0.002] * 3)  # a pass begins unjudged
    assert not loading._waits_for(0.5, 0.004)


def test_workers_that_keep_up_are_left_alone():
    """A step of its own length, and workers that need less than that."""

    class Slow(nn.Linear):
        def forward(self, x):
            sleep(0.02)
            return super().forward(x)

    model = Slow(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[], replay=False, strict=True) as watch:
        run(model, optimizer, DataLoader(Items(nap=0.001, count=120), batch_size=4, num_workers=2), 1)
    assert [found.id for found in watch.findings if found.id == "data-starvation"] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["workers", "own generator", "shuffled", "sampler", "persistent workers"])
def test_training_is_the_same_to_the_bit(kind, monkeypatch):
    monkeypatch.setattr(trial, "PATIENCE", 30.0)  # however busy the machine is

    def loader():
        dataset = Items("reading", count=200)
        if kind == "own generator":
            return DataLoader(dataset, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(3))
        if kind == "sampler":
            chosen = RandomSampler(dataset, replacement=True, num_samples=200)
            return DataLoader(dataset, batch_size=5, sampler=chosen)
        workers = 1 if "workers" in kind else 0
        dataset.nap = 0.02 if workers else NAP
        again = kind == "persistent workers"
        return DataLoader(dataset, batch_size=5, shuffle=True, num_workers=workers, persistent_workers=again)

    def states():
        numpy = np.random.get_state()
        return torch.get_rng_state().tolist(), numpy[1].tolist(), numpy[2], random.getstate()

    model, _, program = train(loader(), 2)
    program()
    alone = [parameter.detach().clone() for parameter in model.parameters()], states()
    model, optimizer, program = train(loader(), 2)
    with sg.watch(model, optimizer, sinks=[], strict=True) as watch:
        program()
        watched = [parameter.detach().clone() for parameter in model.parameters()], states()
    assert "data-starvation" in [finding.id for finding in watch.findings]
    assert [finding.evidence.get("not_tried") for finding in watch.findings if finding.id == "data-starvation"] == [
        None
    ]
    assert all(torch.equal(a, b) for a, b in zip(alone[0], watched[0], strict=True))
    assert alone[1] == watched[1]
    assert not [thread for thread in threading.enumerate() if thread.name == "seismograd-sampler"]


def test_nothing_of_the_users_is_kept(monkeypatch):
    import gc
    import weakref

    loader = DataLoader(Items(), batch_size=5)
    gone = weakref.ref(loader.dataset)
    model, optimizer, program = train(loader)
    with sg.watch(model, optimizer, sinks=[], replay=False, strict=True):
        program()
        del loader, program
        gc.collect()
        assert gone() is None


def test_sampler_frames_of_the_loop_are_no_wait():
    seen = Samples()
    seen.look(__import__("sys")._getframe())
    assert len(seen) == 0
    assert seen.shares() == {}


def test_sequential_sampler_is_known():
    assert refusal(iter(DataLoader(Items(), batch_size=4, sampler=SequentialSampler(Items())))) is None


def test_a_loader_without_workers_never_waits_for_them():
    seen = []

    iterator = iter(DataLoader(Items(nap=0.0), batch_size=2, pin_memory=False))
    plain = type(iterator)._next_data

    def in_between(self):
        seen.append(stage_of(sys._getframe()))
        return plain(self)

    iterator._next_data = in_between.__get__(iterator)
    next(iterator)
    assert seen == [None]
