"""Models that a decorated function is given reach it optimised, and once."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.optimize.models import Optimized


@sg.optimize_model(optimization_mode=sg.OptimizationMode.AMP)
def infer(model: nn.Module, data: Any, *, other: nn.Module | None = None) -> tuple[Any, ...]:
    """What a model gives."""
    return model, model(data), other


def test_models_are_replaced_by_position_and_by_name() -> None:
    model, other, x = nn.Linear(4, 2), nn.Linear(4, 2), torch.randn(3, 4)
    fast, output, second = infer(model, x, other=other)
    assert isinstance(fast, Optimized)
    assert fast.original is model
    assert second.original is other
    assert output.dtype is torch.bfloat16
    assert infer(model=model, data=x)[0] is fast, "it is optimised once"
    assert infer(fast, x)[0] is fast
    assert infer.__name__ == "infer"
    assert infer.__doc__ == "What a model gives."


def test_coroutines_and_methods() -> None:
    class Service(nn.Module):
        @sg.optimize_model(optimization_mode="amp")
        def run(self, model: nn.Module, x: torch.Tensor) -> Any:
            return self, model(x)

    @sg.optimize_model
    async def serve(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return model(x)

    service, model, x = Service(), nn.Linear(4, 2), torch.randn(3, 4)
    owner, output = service.run(model, x)
    assert owner is service
    assert output.dtype is torch.bfloat16
    assert asyncio.iscoroutinefunction(serve)
    assert asyncio.run(serve(model, x)).dtype is torch.bfloat16


def test_a_model_goes_when_its_owner_lets_go() -> None:
    model = nn.Linear(4, 2)
    infer(model, torch.randn(3, 4))
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None


def test_a_copy_and_a_file_know_nothing_of_it() -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    infer(model, x)
    other = copy.deepcopy(model)
    fast, *_ = infer(other, x)
    assert fast.original is other
    file = io.BytesIO()
    torch.save(model, file)
    assert b"seismograd.optimize" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert infer(loaded, x)[0].original is loaded
    again = io.BytesIO()
    torch.save(loaded, again)
    assert b"seismograd.optimize" not in again.getvalue()


def test_mode_none_changes_nothing() -> None:
    same: Callable[..., Any] = sg.optimize_model(optimization_mode="none")(lambda model: model)
    model = nn.Linear(4, 2)
    assert same(model) is model
    with pytest.raises(TypeError, match="above a function"):
        sg.optimize_model(3)
    for what in (model, nn.Linear):  # neither would be optimised
        with pytest.raises(TypeError, match=r"PyTorchDebugger\(\).optimize_model\(model, mode\)"):
            sg.optimize_model(what)
    with pytest.raises(ValueError, match="'turbo' is unknown"):
        sg.optimize_model(optimization_mode="turbo")
