"""Values that are not finite are replaced only where it is asked for, and every one is counted."""

from __future__ import annotations

import warnings
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seismograd as sg
from seismograd.optimize.models import optimized

Pair = namedtuple("Pair", "value other")


class Bad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x * self.weight)  # NaN below zero, -Inf at zero


def network() -> nn.Module:
    return nn.Sequential(Bad(), nn.Linear(4, 2))


X = torch.tensor([[1.0, -1.0, 0.0, 2.0]])


def test_values_are_replaced_counted_and_told() -> None:
    model, events = network(), []
    with sg.replace_nonfinite(model, record=events.append) as replaced:
        with pytest.warns(RuntimeWarning, match="0, call 0: 1 NaN and 1 Inf of 4 values were replaced by 0"):
            output = model(X)
        model(X)  # and no second warning
    assert torch.isfinite(output).all()
    assert replaced.counts == {"0": 4}
    assert replaced.total == 4
    assert [(one.module, one.call, one.nan, one.infinite) for one in replaced.replacements] == [
        ("0", 0, 1, 1),
        ("0", 1, 1, 1),
    ]
    assert [event["event_type"] for event in events] == ["nonfinite_replaced"] * 2, "when it began, and in sum"
    assert events[0]["module"] == "0"
    assert events[1]["total"] == 4
    assert not torch.isfinite(model(X)).all(), "the hooks are gone"
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:seismograd")
def test_no_gradient_flows_through_what_was_replaced() -> None:
    model = network()
    x = X.clone().requires_grad_()
    with sg.replace_nonfinite(model, value=7.0, modules="0"):
        hidden = model[0](x)
        assert hidden.tolist() == [[0.0, 7.0, 7.0, pytest.approx(0.6931, abs=1e-3)]]
        hidden.sum().backward()
    assert x.grad is not None
    assert x.grad[0, [0, 3]].tolist() == [1.0, 0.5]
    assert x.grad[0, 1] == 0


@pytest.mark.filterwarnings("ignore:seismograd")
@pytest.mark.parametrize(
    "give",
    [lambda x: (x, [x.double()]), lambda x: {"a": x, "n": 3}, lambda x: Pair(x, None), lambda x: x.to(torch.complex64)],
)
def test_outputs_of_any_structure(give: Any) -> None:
    class Any_(nn.Module):  # noqa: N801
        def forward(self, x: Tensor) -> Any:
            return give(x)

    model = Any_()
    with sg.replace_nonfinite(model) as replaced:
        output = model(torch.tensor([float("nan"), 1.0]))
    assert type(output) is type(give(torch.ones(2)))
    assert replaced.total in (1, 2)
    assert torch.isfinite(next(iter(output.values()) if isinstance(output, dict) else iter(output)).flatten()).all()


def test_what_is_finite_is_handed_on_as_it_is() -> None:
    model = nn.Sequential(nn.Identity())
    x = torch.ones(2)
    with warnings.catch_warnings(), sg.replace_nonfinite(model) as replaced:
        warnings.simplefilter("error")
        assert model(x) is x
    assert replaced.total == 0


@pytest.mark.filterwarnings("ignore:seismograd")
def test_only_the_chosen_modules() -> None:
    model = nn.Sequential(nn.Sequential(Bad(), Bad()), Bad())
    with sg.replace_nonfinite(model, modules=["0.*"]) as replaced:
        model[0][1](X), model[1](X)
    assert replaced.counts == {"0.1": 2}
    with sg.replace_nonfinite(model, modules=model[1]) as replaced:
        model[1](X)
    assert replaced.counts == {"1": 2}


@pytest.mark.filterwarnings("ignore:seismograd")
def test_a_checkpoint_counts_once_and_computes_the_same() -> None:
    model = nn.Sequential(*[nn.Sequential(Bad(), nn.Linear(4, 4), nn.ReLU()) for _ in range(3)])
    lean = optimized(model, "memory_efficient")
    gradients, counts = [], []
    for each in (model, lean):
        model.zero_grad()
        with sg.replace_nonfinite(model) as replaced:
            each(X).sum().backward()
        counts.append(dict(replaced.counts))
        gradients.append([p.grad for p in model.parameters()])
    assert counts[0] == counts[1]
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(*gradients, strict=True))


@pytest.mark.filterwarnings("ignore:seismograd")
def test_a_watch_and_a_debugger_are_told() -> None:
    debugger, model = sg.PyTorchDebugger(), network()
    with sg.watch(model, sinks=[], strict=True) as watch, sg.replace_nonfinite(model, record=watch):
        model(X)
    assert [event["event_type"] for event in watch.events].count("nonfinite_replaced") == 2
    with sg.replace_nonfinite(model, record=debugger):
        model(X)
    assert debugger.event_counts["nonfinite_replaced"] == 2


def test_mistakes_are_told() -> None:
    model = network()
    with pytest.raises(ValueError, match="value is nan"):
        sg.replace_nonfinite(model, float("nan"))
    with pytest.raises(ValueError, match="'head', which is no module"):
        sg.replace_nonfinite(model, modules=["head"])
    assert not any(module._forward_hooks for module in model.modules())
