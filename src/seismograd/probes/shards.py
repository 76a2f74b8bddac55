"""The shards of FSDP2 (`fully_shard`), and the gathered copies that a pass works with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn


def gathered(modules: Iterable[nn.Module]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each gathered parameter and the shard it is made of. It stands in the shard's place during forward and backward,
    is a leaf of the graph, and has no memory in between."""
    for module in modules:
        if not hasattr(type(module), "_get_fsdp_state"):
            continue
        for parameter in _sharded(module):
            for name in ("_unsharded_param", "_sharded_post_forward_param"):
                copy = getattr(parameter, name, None)
                if isinstance(copy, Tensor):
                    yield copy, parameter.sharded_param


def shards(modules: Iterable[nn.Module]) -> dict[int, Tensor]:
    """By the id of a gathered parameter its shard."""
    return {id(copy): shard for copy, shard in gathered(modules)}


def _sharded(module: Any) -> list[Any]:
    """What FSDP2 knows of its parameters; private, and of another shape in each torch."""
    try:
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        return [parameter for group in groups for parameter in group.fsdp_params]
    except Exception:  # then only the shards themselves are known
        return []
