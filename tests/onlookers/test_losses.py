"""What the onlooker of losses tells of real loops."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import seismograd as sg
from seismograd.onlookers.loss.losses import Losses
from seismograd.sinks.memory import Memory


@pytest.fixture
def told(monkeypatch):
    """Trains a few steps and returns what was told of the second."""

    def train(model, loss_fn, x, y, steps=3):
        monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Losses,))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        memory = Memory()
        with sg.watch(model, optimizer, sinks=[memory]):
            for _ in range(steps):
                optimizer.zero_grad()
                loss_fn(model(x), y).backward()
                optimizer.step()
        return next((reading.facts["loss"] for reading in memory.readings if reading.facts and reading.step == 1), {})

    torch.manual_seed(0)
    return train


def mlp(*last, outputs=3):
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, outputs), *last)


X, LABELS, Y = torch.randn(16, 5), torch.randint(0, 3, (16,)), torch.linspace(-2, 2, 16)


@pytest.mark.parametrize(
    ("last", "loss_fn", "makers"),
    [
        ([], F.cross_entropy, ["Addmm"]),
        ([nn.Softmax(1)], F.cross_entropy, ["Softmax", "Addmm"]),
        ([nn.LogSoftmax(1)], F.nll_loss, ["LogSoftmax", "Addmm"]),
        ([nn.Softmax(1)], lambda out, y: F.nll_loss(out.log(), y), ["Log", "Softmax", "Addmm"]),
        ([nn.Softmax(1)], lambda out, y: F.cross_entropy(out.t().t()[:8].view(-1, 3), y[:8]), ["Softmax", "Addmm"]),
        ([nn.Sigmoid()], lambda out, y: F.cross_entropy(torch.stack([*out]), y), ["Sigmoid", "Addmm"]),
        ([nn.Softmax(1)], lambda out, y: F.cross_entropy(2.0 * out, y), ["Mul"]),
    ],
)
def test_the_op_that_made_the_input(told, last, loss_fn, makers):
    (call,) = told(mlp(*last), loss_fn, X, LABELS)["calls"]
    assert call["makers"] == makers
    assert call["file"].endswith("test_losses.py")


def test_rows(told):
    def loss(out, y):
        return F.cross_entropy(out.exp() / out.exp().sum(1, keepdim=True), y)

    (call,) = told(mlp(), loss, X, LABELS)["calls"]
    assert call["sum_low"] == pytest.approx(1.0)
    assert call["sum_high"] == pytest.approx(1.0)
    assert 0.0 < call["low"] < call["high"] < 1.0


def test_a_loss_that_is_only_looked_at_is_not_told(told):
    def loss(out, y):
        F.cross_entropy(out.softmax(1), y)  # a metric
        with torch.no_grad():
            F.mse_loss(out, out)
        return F.cross_entropy(out, y)

    (call,) = told(mlp(), loss, X, LABELS)["calls"]
    assert call["makers"] == ["Addmm"]


@pytest.mark.parametrize("loss_fn", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_shapes_before_they_were_broadcast(told, loss_fn):
    (call,) = told(mlp(outputs=1), loss_fn, X, Y)["calls"]
    assert (call["shape"], call["target_shape"], call["result_shape"]) == ([16, 1], [1, 16], [16, 16])
    assert not call["meant"]


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda out, y: ((out - y) ** 2).mean(),
        lambda out, y: torch.abs(y - out).sum(),
        lambda out, y: (2.0 * (out - y).pow(2)).mean() + 0.1,
        lambda out, y: -(F.logsigmoid(out) * y).mean(),
        lambda out, y: ((out.squeeze(1) - y.unsqueeze(1)) ** 2).mean(),
        lambda out, y: -torch.distributions.Normal(out, 1.0).log_prob(y).mean(),
    ],
)
def test_shapes_of_a_loss_by_hand(told, loss_fn):
    (call,) = told(mlp(outputs=1), loss_fn, X, Y)["calls"]
    assert (call["name"], call["result_shape"]) == ("by hand", [16, 16])
    assert call.get("unlike_outer", 0.0) < 1e-5


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda out, y: ((out.squeeze(1) - y) ** 2).mean(),
        lambda out, y: (out - out.t()).abs().mean(),
        lambda out, y: (out.squeeze(1)[:, None] - y[None, :]).abs().mean(),
        lambda out, y: ((out - 1.0) ** 2).mean(),
        lambda out, y: (out.squeeze(1).softmax(0) * y).sum(),
    ],
)
def test_nothing_is_broadcast(told, loss_fn):
    assert "calls" not in told(mlp(outputs=1), loss_fn, X, Y)


def test_a_square_target_is_no_outer_product(told):
    facts = told(mlp(outputs=1), lambda out, y: ((out - y) ** 2).mean(), X, torch.randn(16, 16))
    assert facts["calls"][0]["unlike_outer"] > 0.01


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda out, y: F.mse_loss(out.squeeze(1), y),
        lambda out, y: ((out.squeeze(1) - y) ** 2).mean(),
        lambda out, y: (y - out.squeeze(1)).abs().mean(),
        lambda out, y: 0.5 * ((out - y[:, None]) ** 2).sum(),
    ],
)
def test_what_an_activation_cannot_reach(told, loss_fn):
    (call,) = told(mlp(nn.Tanh(), outputs=1), loss_fn, X, Y)["calls"]
    assert call["bounds"] == [-1.0, 1.0]
    assert (call["target_low"], call["target_high"]) == pytest.approx((-2.0, 2.0), abs=1e-5)
    assert call["outside"] == pytest.approx(0.5)
    assert call["unreachable"] == pytest.approx(0.14, abs=0.05)


def test_stacked_layers(told):
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(), nn.Linear(8, 8), nn.Linear(8, 3))
    (stack,) = told(model, F.cross_entropy, X, LABELS)["stacks"]
    assert stack["layers"] == ["0.weight", "2.weight", "3.weight"]
    assert (stack["widths"], stack["plain"], stack["whole"]) == ([5, 8, 8, 3], True, True)


@pytest.mark.parametrize("between", [nn.ReLU(), nn.Tanh(), nn.LayerNorm(8), nn.Softmax(1), nn.PReLU()])
def test_no_stack_where_something_lies_between(told, between):
    model = nn.Sequential(nn.Linear(5, 8), between, nn.Linear(8, 3))
    assert "stacks" not in told(model, F.cross_entropy, X, LABELS)


def test_a_part_is_not_the_whole(told):
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
    (stack,) = told(model, F.cross_entropy, X, LABELS)["stacks"]
    assert (stack["layers"], stack["whole"]) == (["2.weight", "3.weight"], False)


class Checkpointed(nn.Module):
    """A low-rank pair, whose input only a second forward pass would bring back."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(5, 2), nn.Linear(2, 8)), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False).relu())


def test_the_widths_of_checkpointed_layers_are_known_by_their_weights(told):
    (stack,) = told(Checkpointed(), F.cross_entropy, X, LABELS)["stacks"]
    assert (stack["layers"], stack["widths"]) == (["body.0.weight", "body.1.weight"], [5, 2, 8])


def test_a_loss_that_raises_is_told_at_once(monkeypatch):
    monkeypatch.setattr("seismograd.lookout.ONLOOKERS", (Losses,))
    model, memory = mlp(), Memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[memory]) as watch:
        for step in range(60):
            optimizer.zero_grad()
            if step == 50:
                with pytest.raises(IndexError, match="out of bounds"):
                    F.cross_entropy(model(X), LABELS + 1)
                break
            F.cross_entropy(model(X), LABELS).backward()
            optimizer.step()
        (finding,) = watch.findings
        assert (finding.id, finding.step) == ("label-out-of-range", 50)
    failed = next(
        reading.facts["loss"]["failed"] for reading in memory.readings if "failed" in reading.facts.get("loss", {})
    )
    assert (failed["classes"], failed["labels"]) == (3, [3])
    assert failed["bad"] == int((LABELS == 2).sum())


def test_nothing_is_kept_alive(told):
    kept = []

    def loss(out, y):
        kept.extend([weakref.ref(out), weakref.ref(y)])
        return F.cross_entropy(out.softmax(1), y)

    model, labels = mlp(), LABELS.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]):
        for _ in range(3):
            optimizer.zero_grad()
            loss(model(X), labels.clone()).backward()
            optimizer.step()
        model(X)  # the next step begins
        gc.collect()
        assert all(reference() is None for reference in kept)
