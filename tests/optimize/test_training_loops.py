"""A training loop in a mode: it trains the model itself, keeps the gradient, and says what the mode brought."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.optimize.tuning import training_loops


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(training_loops, "_SECONDS", 0.05)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def a_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def data(count: int = 64) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def trained(batches: Any, criterion: Any = None, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options.setdefault("optimization_mode", "none")
    loop = sg.PyTorchOptimizer()
    result = loop.optimize_training_loop(model, batches, optimizer, criterion or nn.CrossEntropyLoss(), **options)
    return model, result


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_accumulated_micro_batches_have_the_gradient_of_the_large_batch(reduction: str, clip: float | None) -> None:
    x, y = data(26)
    pieces = [(x[at : at + 5], y[at : at + 5]) for at in range(0, 26, 5)]  # the last has one sample
    large = [(x[:15], y[:15]), (x[15:], y[15:])]
    criterion = nn.CrossEntropyLoss(reduction=reduction)
    options: dict[str, Any] = {"epochs": 3, "gradient_clip": clip}
    one, many = (
        trained(batches, criterion, accumulation_steps=steps, **options) for batches, steps in ((large, 1), (pieces, 3))
    )
    torch.testing.assert_close(weights_of(one[0]), weights_of(many[0]))
    assert one[1]["losses"] == pytest.approx(many[1]["losses"])
    naive, _ = trained(pieces, criterion, **options)
    assert not torch.allclose(weights_of(naive), weights_of(many[0])), "without accumulation it differs"


def test_it_is_the_loop_that_one_would_write() -> None:
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    torch.manual_seed(5)
    model, result = trained(loader, epochs=2, optimization_mode="memory_efficient")
    plain = a_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    torch.manual_seed(0)  # as `a_model` leaves it
    a_model()
    for _ in range(2):
        for inputs, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(plain(inputs), target).backward()
            optimizer.step()
    assert torch.equal(weights_of(model), weights_of(plain)), "measuring changed nothing, and drew nothing"
    assert len(result["losses"]) == 2
    assert result["total_time"] > 0


def test_metrics_are_told_and_kept() -> None:
    debugger = sg.PyTorchDebugger()
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = sg.PyTorchOptimizer(debugger)
    x, y = data()
    result = loop.optimize_training_loop(
        model=model,
        dataloader=[(x[:32], y[:32]), (x[32:], y[32:])],
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        epochs=3,
        optimization_mode=sg.OptimizationMode.AMP,
    )
    metrics = result["optimization_metrics"]
    assert metrics["amp_enabled"] is True
    assert metrics["speedup_factor"] > 0
    assert metrics["speedup_interval"][0] <= metrics["speedup_factor"] <= metrics["speedup_interval"][1]
    assert metrics["memory_savings"] < 1
    assert metrics["execution_time"] > 0
    assert result["losses"][-1] < result["losses"][0]
    kept = debugger.optimization_metrics[-1]
    assert (kept.mode, kept.amp_enabled) == (sg.OptimizationMode.AMP, True)
    assert kept.speedup_factor == metrics["speedup_factor"]


def test_the_modes_are_compared_on_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", cannot)
    model = a_model()
    before, randomness = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(*data()), batch_size=16, shuffle=True)
    results = sg.PyTorchOptimizer().benchmark_optimizations(model, loader, optimizer, nn.CrossEntropyLoss(), epochs=2)
    assert list(results) == [mode.value for mode in sg.OptimizationMode]
    assert results["none"]["speedup_factor"] == 1.0
    assert results["none"]["memory_savings"] == 0.0
    for mode in ("none", "amp", "memory_efficient"):
        assert results[mode]["loss_parity"] is True, results[mode]
        assert len(results[mode]["losses"]) == 2
    assert results["memory_efficient"]["losses"] == pytest.approx(results["none"]["losses"]), "the same data"
    assert "no C++ compiler" in results["compilation"]["error"]
    assert "no C++ compiler" in results["full_optimization"]["error"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not optimizer.state
    assert torch.equal(torch.get_rng_state(), randomness)


def test_a_model_that_cannot_be_measured_is_trained_all_the_same() -> None:
    class Locked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = a_model()

        def __deepcopy__(self, _memo: Any) -> Any:
            raise TypeError("there is only one")

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    model = Locked()
    before = weights_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    result = sg.PyTorchOptimizer().optimize_training_loop(
        model, [data()], optimizer, nn.CrossEntropyLoss(), optimization_mode="amp"
    )
    assert result["optimization_metrics"]["speedup_factor"] is None
    assert "there is only one" in result["optimization_metrics"]["notes"][-1]
    assert not torch.equal(weights_of(model), before)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"epochs": 0}, ValueError, "epochs is 0"),
        ({"accumulation_steps": 0}, ValueError, "accumulation_steps is 0"),
        ({"gradient_clip": -1.0}, ValueError, "gradient_clip is -1"),
        ({"optimization_mode": "fast"}, ValueError, "'fast' is unknown"),
        ({"criterion": nn.CrossEntropyLoss}, TypeError, "criterion is"),
        ({"batches": iter([data()])}, TypeError, "cannot be walked again"),
        ({"batches": []}, ValueError, "batches is empty"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], error: type[Exception], words: str) -> None:
    batches = options.pop("batches", [data()])
    with pytest.raises(error, match=words):
        trained(batches, options.pop("criterion", None), **options)
