"""The probe that compares the input's columns with the target."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd.sinks.memory import Memory


def told(make, loss_fn, inputs=6, outputs=1, steps=6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(outputs)) if inputs is None else nn.Linear(inputs, outputs)
    if inputs is None:
        model(make()[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory]):
        for _ in range(steps):
            x, y = make()
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    return [reading.facts["columns"] for reading in memory.readings if "columns" in reading.facts]


def with_target():
    x = torch.randn(32, 6)
    return x, x[:, 3:4].clone()


def test_an_equal_column_is_told_once():
    facts = told(with_target, F.mse_loss)
    assert len(facts) == 1
    assert facts[0] | {"correlation": 1.0} == {
        **{"column": 3, "equal": True, "varies": True, "classes": False, "correlation": 1.0},
        **{"rows": 128, "features": 6, "batches": 4},
    }
    assert facts[0]["correlation"] == pytest.approx(1.0)


def scaled_label():
    y = torch.randint(0, 2, (32,))
    return torch.cat([torch.randn(32, 5), -3 * y.float().unsqueeze(1) + 1], 1), y


def test_a_scaled_label():
    (facts,) = told(scaled_label, F.cross_entropy, outputs=2)
    assert (facts["column"], facts["equal"], facts["classes"]) == (5, False, True)
    assert facts["correlation"] > 0.99999


def test_the_last_position_of_windows():
    def windows():
        series = torch.randn(32, 8, 2)
        return series, series[:, -1, 1:2].clone()

    def first():
        series = torch.randn(32, 8, 2)
        return series, series[:, 0, 1:2].clone()

    (facts,) = told(windows, F.mse_loss, inputs=None)
    assert facts["equal"]
    (facts,) = told(first, F.mse_loss, inputs=None)
    assert not facts["equal"]


def test_nothing_in_common():
    (facts,) = told(lambda: (torch.randn(32, 6), torch.randn(32, 1)), F.mse_loss)
    assert facts["correlation"] < 0.6
    assert not facts["equal"]


@pytest.mark.parametrize(
    ("make", "outputs"),
    [
        (lambda: (torch.randn(8, 6), torch.randn(8, 1)), 1),
        (lambda: ((x := torch.randn(32, 6)), x), 6),
    ],
)
def test_small_batches_and_whole_inputs_are_not_looked_at(make, outputs):
    assert told(make, F.mse_loss, outputs=outputs) == []


def test_no_tensor_is_kept():
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]):
        x, y = with_target()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        model(torch.randn(32, 6))
        gone = weakref.ref(x)
        del x, y
        gc.collect()
        assert gone() is None
