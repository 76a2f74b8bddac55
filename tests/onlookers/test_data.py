"""What the onlooker of the data tells of real loops."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import seismograd as sg
import seismograd.sinks
from seismograd.onlookers.data.data import Data
from seismograd.onlookers.data.relation import Relation
from seismograd.onlookers.data.workers import Workers, _constant_seed, _draws, _own_generators


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Data,))
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def train(model, batches, loss_fn, steps=None) -> list[dict]:
    """The facts of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    memory = sg.sinks.Memory()
    with sg.watch(model, optimizer, sinks=[memory], detectors=[], replay=False):
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    told = [dict(reading.facts["data"]) for reading in memory.readings if "data" in reading.facts]
    assert told[-1] == {"over": True}
    return told[:-1]


def net(*sizes):
    return nn.Sequential(nn.Linear(sizes[0], 8), nn.ReLU(), nn.Linear(8, sizes[1]))


def test_labels_and_guesses():
    y = torch.tensor([0, 2, 1, 1])
    model = net(3, 3)
    x = torch.randn(4, 3)
    expected = model(x).argmax(1).tolist()
    (facts,) = train(model, [(x, y)], F.cross_entropy)
    (loss,) = facts["losses"]
    assert loss["labels"] == [0, 2, 1, 1]
    assert loss["guesses"] == expected
    assert (loss["kind"], loss["classes"], loss["rows"], loss["batch"]) == ("classes", 3, 4, 4)
    assert loss["alone"]
    assert not loss["weighted"]
    assert facts["optimizers"] == 1


def test_one_logit_and_weights():
    x, y = torch.randn(6, 3), torch.tensor([0.0, 1, 1, 0, 0, 1]).unsqueeze(1)
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    (facts,) = train(net(3, 1), [(x, y)], loss_fn)
    (loss,) = facts["losses"]
    assert loss["labels"] == [0, 1, 1, 0, 0, 1]
    assert loss["weighted"]
    assert [score > 0 for score in loss["scores"]] == [bool(guess) for guess in loss["guesses"]]


@pytest.mark.parametrize("classes", [2, 3])
def test_a_label_for_each_place(classes):
    torch.manual_seed(0)
    model = nn.Conv2d(1, classes, 3, padding=1)
    x, y = torch.randn(2, 1, 4, 4), torch.randint(0, classes, (2, 4, 4))
    guesses = model(x).argmax(1).flatten().tolist()
    (facts,) = train(model, [(x, y)], F.cross_entropy)
    (loss,) = facts["losses"]
    assert (loss["labels"], loss["guesses"]) == (y.flatten().tolist(), guesses)
    assert len(loss["scores"]) == 32


def test_a_flag_for_each_place():
    model = nn.Conv2d(1, 1, 3, padding=1)
    x, y = torch.randn(2, 1, 4, 4), torch.rand(2, 1, 4, 4).round()
    guesses = (model(x) > 0).flatten().tolist()
    (facts,) = train(model, [(x, y)], F.binary_cross_entropy_with_logits)
    (loss,) = facts["losses"]
    assert (loss["labels"], loss["guesses"], loss["certain"]) == (y.bool().flatten().tolist(), guesses, [True])
    (facts,) = train(model, [(x, torch.rand(2, 1, 4, 4))], F.binary_cross_entropy_with_logits)
    assert facts["losses"][0]["certain"] == [False], "grey levels are no labels"
    assert (
        train(net(3, 5), [(torch.randn(4, 3), torch.rand(4, 5).round())], nn.BCEWithLogitsLoss())[0].get("losses")
        is None
    )


def test_numbers_and_sums():
    x, y = torch.randn(8, 3), 5 + torch.randn(8, 1)
    (facts,) = train(net(3, 1), [(x, y)], nn.MSELoss(reduction="sum"))
    (loss,) = facts["losses"]
    assert loss["moments"][:2] == pytest.approx([float(y.mean()), float(y.std(correction=0))], rel=1e-4)
    assert loss["value"] < 60  # per element


def test_other_terms_and_unused_losses():
    def with_penalty(out, y):
        F.l1_loss(out, y)  # only logged
        return F.mse_loss(out, y) + out.pow(2).mean()

    (facts,) = train(net(3, 1), [(torch.randn(8, 3), torch.randn(8, 1))], with_penalty)
    (loss,) = facts["losses"]
    assert loss["name"] == "mse_loss"
    assert not loss["alone"]


def test_a_scaled_loss_is_alone():
    (facts,) = train(net(3, 1), [(torch.randn(8, 3), torch.randn(8, 1))], lambda out, y: F.mse_loss(out, y) * 64 / 4)
    assert facts["losses"][0]["alone"]


def test_a_loss_for_each_sample_is_not_alone():
    """Policy gradients weigh each by its advantage."""
    pairs = [(torch.randn(8, 3), torch.randint(0, 2, (8,)))]
    (facts,) = train(net(3, 2), pairs, lambda out, y: (F.cross_entropy(out, y, reduction="none") * out[0, 0]).mean())
    assert not facts["losses"][0]["alone"]


def test_the_scale_is_that_of_the_first_layer():
    class Dividing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x / 255)

    x, y = 255 * torch.rand(16, 4), torch.randint(0, 2, (16,))
    (facts,) = train(Dividing(), [(x, y)], F.cross_entropy)
    (one,) = facts["inputs"]
    assert one["module"] == "layer"
    assert one["high"] <= 1.0
    (facts,) = train(nn.Sequential(nn.Linear(4, 2)), [(x, y)], F.cross_entropy)
    assert facts["inputs"][0]["largest"] > 100


@pytest.mark.parametrize(
    ("model", "shape", "scale"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)), (8, 3, 6, 6), 50.0),
        (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 2)), (8, 5), None),
        (nn.Sequential(nn.Linear(5, 2, bias=False)), (8, 5), 50.0),
    ],
)
def test_first_layers_of_other_kinds(model, shape, scale):
    (facts,) = train(model, [(50 * torch.randn(shape), torch.randint(0, 2, (8,)))], F.cross_entropy)
    if scale is None:
        assert "inputs" not in facts
    else:
        assert facts["inputs"][0]["largest"] == pytest.approx(scale, rel=0.6)


def test_nothing_is_kept_and_nothing_changes():
    torch.manual_seed(0)
    model, x, y = net(3, 2), torch.randn(80, 3), torch.randint(0, 2, (80,))
    references = [weakref.ref(x), weakref.ref(y)]
    before = torch.get_rng_state()
    train(model, [(x, y)] * 20, F.cross_entropy)
    assert torch.equal(torch.get_rng_state(), before)
    del x, y
    gc.collect()
    assert [reference() for reference in references] == [None, None]


@pytest.mark.parametrize(
    ("rule", "related"),
    [
        (lambda x: torch.randint(0, 2, (len(x),), generator=torch.Generator().manual_seed(5)), False),
        (lambda x: (x[:, 0] > 0).long(), True),
        (lambda x: (x.norm(dim=1) > x.norm(dim=1).median()).long(), True),
        (lambda x: ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long(), True),
    ],
)
def test_relation(rule, related):
    torch.manual_seed(0)
    relation = Relation()
    x = torch.randn(1024, 3)
    y = rule(x)
    for at in range(0, 1024, 64):
        relation.add(relation.features(x[at : at + 64]), y[at : at + 64], 2)
    strength = float(relation.strength(16))
    assert (strength * 1024 > 20) is related


def test_relation_stops_where_data_come_again():
    relation = Relation()
    x, y = torch.randn(64, 3), torch.randint(0, 2, (64,))
    for _ in range(5):
        marks = relation.add(relation.features(x), y, 2)
        if marks is not None:
            relation.remember(marks.tolist())
    assert relation.told()["samples"] == 128


# -- workers -------------------------------------------------------------------------------------------------------


class Own(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __getitem__(self, at):
        return self.rng.normal()


class ByIndex(Own):
    def __getitem__(self, at):
        return np.random.default_rng(at).normal()


class Lazy(Own):
    def __getitem__(self, at):
        if torch.utils.data.get_worker_info() is not None:
            self.rng = np.random.default_rng(torch.utils.data.get_worker_info().seed)
        return self.rng.normal()


class Shuffles(Own):
    def shuffle(self):
        return self.rng.permutation(10)

    def __getitem__(self, at):
        return at


class Calls(Own):
    def __getitem__(self, at):
        return self.noise()

    def noise(self):
        return self.rng.normal()


class Unused(Own):
    def __getitem__(self, at):
        return at


class Jitter:
    def __init__(self):
        self.random = np.random.RandomState(0)

    def __call__(self, x):
        return x + self.random.randn()


class Transformed(Dataset):
    def __init__(self):
        self.transforms = [Jitter()]

    def __getitem__(self, at):
        return self.transforms[0](at)


_rng = np.random.default_rng(0)


class ByGlobal(Dataset):
    def __getitem__(self, at):
        return _rng.normal()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Own, ["self.rng"]),
        (Transformed, ["self.random"]),
        (ByGlobal, ["_rng"]),
        (Calls, ["self.rng"]),
        (Shuffles, []),
        (ByIndex, []),
        (Lazy, []),
        (Unused, []),
    ],
)
def test_generators_that_workers_copy(kind, names):
    assert [name for _, name, _ in _own_generators(kind())] == names


def _seed_of(worker):
    np.random.seed(torch.initial_seed() % 2**32)


def _add_worker(worker):
    np.random.seed(3 + worker)


def _constant(worker):
    np.random.seed(3)


def test_seeds_that_are_all_alike():
    assert _constant_seed(_constant) is _constant
    assert _constant_seed(lambda _: torch.manual_seed(0)) is not None
    assert _constant_seed(_seed_of) is None
    assert _constant_seed(_add_worker) is None
    assert _constant_seed(lambda worker: None) is None
    assert _draws(ByIndex(), _constant)
    assert not _draws(Unused(), _constant)


class Iterator:
    """As much of a loader's iterator as is looked at."""

    _num_workers, _worker_init_fn, _persistent_workers, _rcvd_idx = 2, None, False, 0

    def __init__(self, dataset):
        self._dataset = dataset


def bring(batches):
    workers, iterator = Workers(), Iterator(Unused())
    for batch in batches:
        iterator._rcvd_idx += 1
        workers.batch_came(batch, iterator)
    return workers.told()


def test_batches_that_all_workers_bring():
    batches = [torch.randn(4, 8) for _ in range(4)]
    twice = [batch.clone() for batch in batches for _ in range(2)]
    assert bring(twice)["same"]["rounds"] == 4
    assert bring(batches) == {}
    assert bring([batches[0]] * 8) == {}  # one batch for ever is another matter
    assert bring([torch.zeros(4, 8)] * 8) == {}


def test_a_real_loader(monkeypatch):
    class Sums(Dataset):
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def __len__(self):
            return 32

        def __getitem__(self, at):
            return torch.from_numpy(self.rng.normal(size=3)).float(), torch.zeros(1)

    facts = train(net(3, 1), DataLoader(Sums(), batch_size=4, num_workers=2), F.mse_loss)
    told = [one["workers"] for one in facts if "workers" in one]
    assert told[0]["generator"]["name"] == "self.rng"
    assert "same" in told[-1]
