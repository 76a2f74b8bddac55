"""What a call finds around it: the states of random number generators, and autocast."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class Randomness:
    """The states of all random number generators; `None` where one was not read."""

    torch: Tensor
    devices: tuple[Tensor, ...] = ()
    python: Any = None
    numpy: Any = None
    own: tuple[tuple[Any, Any], ...] = ()
    """Generators that modules hold, each with its state."""

    @staticmethod
    def now(python: bool = True, numpy: bool = True, own: Sequence[Any] = ()) -> Randomness:
        module = sys.modules.get("numpy") if numpy else None
        return Randomness(
            torch.get_rng_state(),
            tuple(torch.cuda.get_rng_state_all()) if _cuda() else (),
            random.getstate() if python else None,
            module.random.get_state(legacy=False) if module is not None else None,
            tuple((generator, _state_of(generator)) for generator in own),
        )

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        if self.devices:
            torch.cuda.set_rng_state_all(list(self.devices))
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        for generator, state in self.own:
            _set_state(generator, state)


def generators_of(modules: Iterable[nn.Module]) -> list[Any]:
    """The random number generators that modules hold as attributes."""
    found = []
    for module in modules:
        for held in module.__dict__.values():
            if isinstance(held, (torch.Generator, random.Random)) or hasattr(held, "bit_generator"):
                found.append(held)
    return found


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.getstate() if isinstance(generator, random.Random) else generator.bit_generator.state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state


@dataclass(frozen=True, slots=True)
class Autocast:
    """Whether autocast was on, for which devices, and to what."""

    kinds: tuple[tuple[str, bool, torch.dtype], ...]
    cache: bool

    @staticmethod
    def now() -> Autocast:
        kinds = ["cpu"]
        if _cuda():
            kinds.append("cuda")
        return Autocast(
            tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds),
            torch.is_autocast_cache_enabled(),
        )


def _cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def differ(one: Any, other: Any) -> bool:
    """Whether two states of NumPy's generator are not the same."""
    if one is None or other is None:
        return one is not other
    return repr(as_lists(one)) != repr(as_lists(other))


def as_lists(state: Any) -> Any:
    """The state of a generator of NumPy's without arrays."""
    if isinstance(state, dict):
        return {name: as_lists(value) for name, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state
