"""Blocks that are computed again, though they write into what they were given."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seismograd.optimize.measuring import saved_bytes
from seismograd.optimize.models import optimized


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.norm(self.inner(x)))


class _Doubles(_Block):
    """Writes into what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(2))


def _starts_in_place() -> nn.Module:
    layers = [(nn.ReLU(inplace=True), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)) for _ in range(5)]
    return nn.Sequential(*(nn.Sequential(*each) for each in layers))


def _cut_in_place() -> nn.Module:
    layers = [(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.2)) for _ in range(5)]
    return nn.Sequential(*(layer for each in layers for layer in each))


@pytest.mark.parametrize(
    "make", [_starts_in_place, _cut_in_place, lambda: nn.Sequential(*(_Doubles() for _ in range(4)))]
)
def test_blocks_that_write_into_their_inputs(make: Any) -> None:
    torch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model)
    fast: Any = optimized(model, "memory_efficient")
    assert fast.optimization.checkpointed
    given = torch.randn(6, 8)
    for _ in range(2):
        seen = []
        for each in (twin, fast):
            torch.manual_seed(1)
            x = given.clone()
            each(x).pow(2).sum().backward()
            seen.append(x)
        assert torch.equal(*seen), "what the caller sees of it"
    for one, other in zip(twin.parameters(), model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    for one, other in zip(twin.buffers(), model.buffers(), strict=True):
        assert torch.equal(one, other)


def test_what_is_kept_of_blocks_that_write_is_counted() -> None:
    model = nn.Sequential(*(_Doubles() for _ in range(4)))
    fast = optimized(model, "memory_efficient")
    for _ in range(2):
        kept = saved_bytes(model, lambda: fast(torch.randn(64, 8)))
        assert 4 * 64 * 8 * 4 <= kept < 5 * 64 * 8 * 4, "an input for each block"


def test_an_input_that_is_written_into_afterwards_is_an_error_as_it_is_for_torch() -> None:
    class Outside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(_Block() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                y = x.clone()
                x = block(y)
                y.add_(1)
            return x

    fast = optimized(Outside(), "memory_efficient")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            fast(torch.randn(6, 8)).sum().backward()
