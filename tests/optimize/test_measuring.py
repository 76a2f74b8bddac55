"""What an optimisation brought is measured next to the model, and leaves no trace on it."""

from __future__ import annotations

import copy
import json
from functools import partial

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.optimize.measuring import saved_bytes


def deep(blocks: int = 8) -> nn.Module:
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.Dropout(0.1)) for _ in range(blocks)]
    )


@pytest.fixture
def debugger() -> sg.PyTorchDebugger:
    return sg.PyTorchDebugger()


def test_bytes_are_those_of_activations_and_count_once() -> None:
    model, x = nn.Linear(16, 16), torch.randn(4, 16)
    both = nn.Linear(16, 16)
    assert saved_bytes(model, lambda: model(x)) == x.numel() * 4
    assert saved_bytes(nn.ModuleList([model, both]), lambda: model(x) + both(x)) == x.numel() * 4


def test_a_sample_tells_savings_and_speed(debugger: sg.PyTorchDebugger) -> None:
    torch.manual_seed(0)
    model, x = deep(), torch.randn(64, 16)
    lean = debugger.optimize_model(model, sg.OptimizationMode.MEMORY_EFFICIENT, sample_input=x)
    metrics = debugger.optimization_metrics[-1]
    plain, less = (saved_bytes(model, partial(each, x)) for each in (model, lean))
    assert metrics.memory_savings == pytest.approx(1 - less / plain)
    assert less < 0.5 * plain
    assert metrics.max_difference == 0
    assert metrics.speedup_factor is not None
    assert metrics.speedup_factor > 0
    assert metrics.execution_time > 0


def test_measuring_leaves_no_trace(debugger: sg.PyTorchDebugger) -> None:
    model, x = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), torch.randn(6, 8)
    model(x).sum().backward()
    gradients = [(p.grad, p.grad.clone()) for p in model.parameters()]
    state, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    debugger.optimize_model(model, "amp", sample_input=x)
    assert all(torch.equal(one, state[name]) for name, one in model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    for parameter, (gradient, copied) in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, copied)


def test_the_debugger_tells_of_its_optimisations(debugger: sg.PyTorchDebugger) -> None:
    model = deep(4)
    assert debugger.optimize_model(model, "none") is model
    fast = debugger.optimize_model(model=model, optimization_mode=sg.OptimizationMode.AMP)
    metrics = debugger.optimization_metrics
    assert [each.mode.value for each in metrics] == ["none", "amp"]
    assert metrics[1].amp_enabled
    assert metrics[1].amp_dtype == "bfloat16"
    assert metrics[1].speedup_factor is None
    assert metrics[1].memory_savings is None
    assert metrics[0].speedup_factor == 1.0
    assert debugger.get_debug_summary()["total_optimizations"] == 2
    assert debugger.event_counts["optimization"] == 2
    report = debugger.debug_report()
    assert json.loads(json.dumps(report))["performance"]["optimizations"][1]["mode"] == "amp"
    assert fast(torch.randn(2, 16)).dtype is torch.bfloat16
    debugger.clear_debug_data()
    assert debugger.optimization_metrics == []


def test_in_evaluation_savings_are_not_measured(debugger: sg.PyTorchDebugger) -> None:
    debugger.optimize_model(deep(4).eval(), "memory_efficient", sample_input=(torch.randn(2, 16),))
    metrics = debugger.optimization_metrics[-1]
    assert metrics.memory_savings is None
    assert metrics.speedup_factor is not None
    assert "evaluation mode" in metrics.notes[-1]


def test_metrics_learn_from_the_first_call(debugger: sg.PyTorchDebugger) -> None:
    def refuses(_graph: object, _inputs: object) -> object:
        raise RuntimeError("no compiler today")

    fast = debugger.optimize_model(nn.Linear(3, 2), "compilation", compile_options={"backend": refuses})
    assert debugger.optimization_metrics[-1].compiled
    fast(torch.randn(2, 3))
    assert not debugger.optimization_metrics[-1].compiled
    assert "no compiler today" in debugger.optimization_metrics[-1].notes[-1]


def test_random_outputs_of_compiled_code_are_compared_without_chance(debugger: sg.PyTorchDebugger) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 2)), torch.randn(4, 8)
    debugger.optimize_model(model, "compilation", sample_input=x, compile_options={"backend": "aot_eager"})
    metrics = debugger.optimization_metrics[-1]
    assert metrics.max_difference is not None
    assert metrics.max_difference < 1e-5
    assert model.training


def test_outputs_that_differ_are_pointed_out(debugger: sg.PyTorchDebugger) -> None:
    class Narrow(nn.Module):
        """Cancels what bfloat16 has no digits for."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x + 1000) - self.linear(x * 0 + 1000)

    debugger.optimize_model(Narrow(), "amp", sample_input=torch.randn(4, 8))
    assert "is it right?" in debugger.optimization_metrics[-1].notes[-1]
