"""Graph breaks are counted and explained; what cannot be compiled runs as it is, and that is said."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seismograd.optimize.compiling import graph_breaks
from seismograd.optimize.models import Optimized, optimized

EAGER = {"backend": "eager"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(self.norm(self.linear(x)))
        if y.sum() > 1e9:
            y = y + 1
        return y * 2


def refuses(_graph: Any, _inputs: Any) -> Any:
    raise RuntimeError("no compiler today")


def told(model: nn.Module) -> Any:
    assert isinstance(model, Optimized)
    return model.optimization


def test_graph_breaks_are_counted_with_their_lines() -> None:
    fast = optimized(Branching(), "compilation", compile_options=EAGER)
    assert told(fast).graph_breaks is None, "not yet known"
    fast(torch.randn(4, 8)).sum().backward()
    metrics = told(fast)
    assert metrics.compiled
    assert metrics.graph_breaks == 1
    (found,) = metrics.breaks
    assert found.file == __file__
    assert found.code == "if y.sum() > 1e9:"
    assert "depends on the values of a tensor" in found.reason
    assert "torch.where" in str(found)
    assert any("test_compiling.py" in note for note in metrics.notes)
    assert metrics.to_dict()["breaks"] == [str(found)]


def test_breaks_of_code_that_is_compiled_already_are_not_said_to_be_none() -> None:
    for _ in range(2):
        fast = optimized(Branching(), "compilation", compile_options=EAGER)
        fast(torch.randn(4, 8))
    assert told(fast).graph_breaks is None
    assert "graph_breaks()" in told(fast).notes[0]


def test_breaks_of_a_model_that_is_not_compiled() -> None:
    model, x = Branching(), torch.randn(4, 8)
    before, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    (found,) = graph_breaks(model, x)
    assert found.code == "if y.sum() > 1e9:"
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert graph_breaks(nn.Linear(8, 2), x) == []


@pytest.mark.parametrize("options", [{"backend": refuses}, {"backend": "eager", "fullgraph": True}])
def test_a_failure_to_compile_is_a_result(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Branching(), torch.randn(4, 8)
    fast = optimized(copy.deepcopy(model), "full_optimization", compile_options=options)
    slow = optimized(model, "amp")
    for each in (slow, fast):
        torch.manual_seed(1)
        each(x).sum().backward()
    assert not told(fast).compiled
    assert "torch.compile failed, and the model runs uncompiled" in told(fast).notes[-1]
    if options["backend"] is refuses:
        assert "no compiler today" in told(fast).notes[-1]
    pairs = zip(slow.parameters(), fast.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)
    assert all(map(torch.equal, slow.buffers(), fast.buffers())), "what ran before the failure was put back"


def test_a_wrong_call_raises_as_the_model_does_and_is_no_failure_of_the_compiler() -> None:
    fast = optimized(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), "compilation", compile_options=EAGER)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        fast(torch.randn(4, 9))
    assert fast(torch.randn(4, 8)).shape == (4, 4)
    assert told(fast).compiled


class Scriptable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.dropout(self.norm(self.linear(x))) * scale


class OnlyTraceable(Scriptable):
    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        return super().forward(x) + sum(more)


@pytest.mark.parametrize("kind", [Scriptable, OnlyTraceable])
def test_torchscript_over_the_same_weights(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = kind(), torch.randn(4, 8)
    fast = optimized(copy.deepcopy(model), "compilation", scripted=True)
    for each in (model, fast):
        torch.manual_seed(1)
        each(x).sum().backward()
    assert all(
        torch.allclose(one.grad, other.grad) for one, other in zip(model.parameters(), fast.parameters(), strict=True)
    )
    assert all(map(torch.equal, model.buffers(), fast.buffers()))
    assert torch.allclose(fast.eval()(x), model.eval()(x)), "dropout is off in evaluation"
    wide = fast.double()(x.double())
    assert torch.allclose(wide, model.double()(x.double()))
    assert ("traced" if kind is OnlyTraceable else "scripted") in told(fast).notes[0]


def test_what_cannot_be_torchscript_says_so() -> None:
    class Neither(nn.Module):
        def forward(self, x: Tensor, *_more: Any) -> Tensor:
            return x * float(x.sum())

    with pytest.raises(RuntimeError, match=r"Neither cannot be TorchScript .* would hold for this batch only"):
        optimized(Neither(), "compilation", scripted=True)(torch.randn(3))


@pytest.mark.thorough
def test_the_compiler_of_torch_itself() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), torch.randn(4, 8)
    fast = optimized(copy.deepcopy(model), "full_optimization")
    for each in (model, fast):
        each(x).float().sum().backward()
    assert told(fast).compiled
    pairs = zip(model.parameters(), fast.parameters(), strict=True)
    assert all(torch.allclose(one.grad, other.grad, atol=0.05) for one, other in pairs)
