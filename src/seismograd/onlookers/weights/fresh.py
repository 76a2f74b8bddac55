"""Whether a model's weights are still as torch made them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from seismograd.probes.watched import weight_of

_ENOUGH = 256
"""So many weights have to be within the bounds of their initialisation: a few may stay there while they learn."""


def fresh(model: nn.Module) -> Tensor | None:
    """Whether all layers of torch's keep to the bounds of their first values, or have a bias that is still zero.

    `None` where there are too few layers of a known kind to tell."""
    layers = [(bound, weights, bias) for module in model.modules() for bound, weights, bias in _known(module)]
    if sum(weight.numel() for _, weights, _ in layers for weight in weights) < _ENOUGH:
        return None
    told = [_is_fresh(bound, weights, bias) for bound, weights, bias in layers]
    return torch.stack([one.to(told[0].device) for one in told]).all()


def _known(module: nn.Module) -> Iterator[tuple[float, list[Tensor], Tensor | None]]:
    """The bound of a layer's first weights, those weights, and its bias."""
    if isinstance(module, nn.RNNBase):
        weights = [weight for weight in module._parameters.values() if weight is not None]
        if weights:
            yield 1.0 / math.sqrt(module.hidden_size), [weight.detach() for weight in weights], None
    elif isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
        weight, bias = weight_of(module), module._parameters.get("bias")
        if isinstance(weight, Tensor) and weight.ndim >= 2 and weight.numel():
            bound = 1.0 / math.sqrt(weight[0].numel())
            yield bound, [weight.detach()], None if bias is None else bias.detach()


def _is_fresh(bound: float, weights: list[Tensor], bias: Tensor | None) -> Tensor:
    small = torch.stack([weight.abs().max() <= bound * 1.001 for weight in weights]).all()
    return small if bias is None else small | (bias == 0).all()
