"""The second look: what it sees, when it is silent, and that nobody notices."""

import copy
import gc
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.replay.second_look import may_be_noticed
from seismograd.sinks.memory import Memory


class Rnn(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.rnn = nn.GRU(3, 8, batch_first=batch_first)
        self.norm, self.drop, self.head = nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
        self.calls = 0
        self.kept = []
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.kept.append(self.calls)
        self.seen += 1
        noise = random.random() + float(np.random.rand()) + float(torch.rand(()))
        return self.head(self.drop(self.norm(self.rnn(x)[0][:, -1]))) + 0 * noise


def data(count=64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 5, 3, generator=generator), torch.randint(0, 2, (count,), generator=generator)


def train(model, *, watched=True, loaded=True, steps=6):
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    batches = list(loader) * 4 if not loaded else None
    memory = Memory()
    watch = sg.watch(model, optimizer, sinks=[memory]) if watched else None
    done = 0
    while done < steps:
        for xb, yb in batches or loader:
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
    if watch is not None:
        watch.close()
    facts = [reading.facts["samples"] for reading in memory.readings if "samples" in reading.facts]
    return facts, [p.detach() for p in (*model.parameters(), *model.buffers())], torch.get_rng_state()


@pytest.mark.parametrize("loaded", [True, False])
def test_it_sees_samples_that_mix_and_which_module_mixes_them(loaded):
    (facts,), *_ = train(Rnn(False), loaded=loaded)
    assert facts["mixing"]["samples"] == 16
    assert facts["mixing"]["affected"] > 0
    assert (facts["mixing"]["module"], facts["mixing"]["kind"]) == ("rnn", "GRU")
    assert facts["at"]["file"].endswith("test_second_look.py")


@pytest.mark.parametrize("loaded", [True, False])
def test_batch_norm_and_dropout_mix_nothing(loaded):
    (facts,), *_ = train(Rnn(True), loaded=loaded)
    assert facts["mixing"]["affected"] == 0


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_run_is_the_same_to_the_bit(batch_first):
    torch.manual_seed(0)
    model = Rnn(batch_first)
    twin = copy.deepcopy(model)
    _, with_watch, state = train(model)
    _, without, twin_state = train(twin, watched=False)
    assert all(torch.equal(one, other) for one, other in zip(with_watch, without, strict=True))
    assert torch.equal(state, twin_state)
    assert (model.calls, model.kept) == (twin.calls, twin.kept)


def test_nothing_is_kept_alive():
    model = Rnn(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data(16)
    with sg.watch(model, optimizer, sinks=[]):
        for _ in range(3):
            batch = x.clone()
            optimizer.zero_grad()
            F.cross_entropy(model(batch), y).backward()
            optimizer.step()
        gone = weakref.ref(batch)
        del batch
        gc.collect()
        assert gone() is None


def test_without_replay_there_is_no_second_look():
    model = Rnn(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data(16)
    with sg.watch(model, optimizer, sinks=[], replay=False) as watch:
        for _ in range(4):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert "batch-mixing" not in [finding.id for finding in watch.findings]


def test_models_that_would_notice_are_left_alone():
    model = nn.Sequential(nn.Linear(2, 2))
    assert not may_be_noticed(model)
    handle = model[0].register_forward_hook(lambda *_: None)
    assert may_be_noticed(model)
    handle.remove()
    assert not may_be_noticed(torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    assert may_be_noticed(Counted())
    assert may_be_noticed(Logged())


class Counted(nn.Module):
    def forward(self, x):
        global count  # noqa: PLW0603
        count = 1
        return x


LOG: list[float] = []


class Logged(nn.Module):
    def forward(self, x):
        LOG.append(float(x.sum()))
        return x


class Words(nn.Module):
    def __init__(self, padding):
        super().__init__()
        self.embed, self.padding = nn.Embedding(12, 8), padding
        self.conv, self.head = nn.Conv1d(8, 8, 3), nn.Linear(8, 12)

    def forward(self, x):
        return self.head(self.conv(F.pad(self.embed(x).transpose(1, 2), self.padding)).transpose(1, 2))


def words(model, *, flat=True, time_first=False):
    torch.manual_seed(0)
    tokens = torch.randint(0, 12, (6, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(4):
            logits = model(tokens[:, :-1])
            optimizer.zero_grad()
            if flat:
                loss = F.cross_entropy(logits.reshape(-1, 12), tokens[:, 1:].reshape(-1))
            else:
                loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
            loss.backward()  # only autograd has the target now
            optimizer.step()
    return [reading.facts["samples"] for reading in memory.readings if "samples" in reading.facts]


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(("padding", "ahead"), [((2, 0), 0), ((1, 1), 1), ((0, 2), 2)])
def test_positions_that_see_what_comes_after_them(padding, ahead, flat):
    (facts,) = words(Words(padding), flat=flat)
    assert facts["lookahead"]["ahead"] == ahead
    assert facts["lookahead"]["positions"] == 9
    assert facts["mixing"] == {"samples": 6, "affected": 0}
