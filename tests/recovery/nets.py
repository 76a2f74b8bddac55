"""A small net, its good and its bad batch, and what a recovery did to it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import seismograd as sg

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
BAD = X * math.nan


def net(norm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    middle: list[nn.Module] = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.ReLU(), nn.Linear(16, 2))


def loss_of(model: nn.Module, x: Tensor = X) -> Tensor:
    return nn.functional.cross_entropy(model(x), Y)


def watch(model: Any, optimizer: Any, recovery: Any, *, strict: bool = True, **more: Any) -> Any:
    return sg.watch(model, optimizer, recovery=recovery, strict=strict, sinks=[], store=False, **more)


def done(watcher: Any) -> list[dict[str, Any]]:
    return [event["data"] for event in watcher.events if event["event_type"] == "recovery"]


def finite(module: nn.Module) -> bool:
    return all(bool(torch.isfinite(one).all()) for one in module.state_dict().values())
