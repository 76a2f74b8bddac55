"""One call of a component, kept so that it can be made again, and what a second run says about a bad one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seismograd import patches
from seismograd.places import Spot, chain
from seismograd.records import Origin
from seismograd.replay.investigation import Investigation
from seismograd.replay.numbers import is_bad, tensors_in
from seismograd.replay.recorder import Call, Output, Step
from seismograd.replay.surroundings import Autocast, Randomness, generators_of


class Called(nn.Module):
    """A function as a module, so that it can be run again as modules are."""

    def __init__(self, function: Callable[..., Any], owner: Any) -> None:
        super().__init__()
        self.__dict__["function"] = function  # no attribute of the module's: it may be one itself
        if isinstance(owner, nn.Module):
            self.owner = owner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["function"](*args, **kwargs)


@dataclass
class Taken:
    """A call of a component that has begun: its name, its arguments, and what it found around it."""

    name: str
    owner: Any
    method: str | None
    """Its name, where it is not the module itself that is called."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]
    randomness: Randomness
    autocast: Autocast
    state: dict[str, Any] | None
    """What an owner that is no module held: a scheduler counts its steps."""
    spots: tuple[Spot, ...]

    @staticmethod
    def now(name: str, owner: Any, method: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Taken:
        given = [tensor for _, tensor in tensors_in((args, dict(kwargs)))]
        generators = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator)]
        held = [one for one in (*args, *kwargs.values()) if isinstance(one, (list, tuple))]
        generators += [one for many in held for one in many if isinstance(one, torch.Generator)]
        if isinstance(owner, nn.Module):
            generators += generators_of(owner.modules())
        state = None if isinstance(owner, nn.Module) else {key: _copied(one) for key, one in vars(owner).items()}
        return Taken(
            name,
            owner,
            method,
            tuple(args),
            dict(kwargs),
            [(tensor, -1 if tensor.is_inference() else tensor._version) for tensor in given],
            Randomness.now(own=generators),
            Autocast.now(),
            state,
            chain(sys._getframe(1)),
        )

    @property
    def shown(self) -> str:
        return self.name if self.method is None else f"{self.name}.{self.method}"

    def bad_inputs(self) -> list[str]:
        """The arguments that are not finite, by the way to them."""
        found = tensors_in({"args": self.args, "kwargs": self.kwargs})
        return [
            path.replace("['args']", "args").replace("['kwargs']", "kwargs") for path, tensor in found if is_bad(tensor)
        ]

    def origin(self, output: Any, models: Mapping[str, nn.Module]) -> Origin:
        """Where what is bad in the output was made, as a second run shows it. Nothing of it is left behind."""
        module = self._module()
        call = Call(
            module,
            self.args,
            self.kwargs,
            self.versions,
            self.randomness,
            self.autocast,
            [bool(each.training) for each in module.modules()],
            [],
            self.spots,
            True,
            [Output(path, tensor.detach()) for path, tensor in tensors_in(output, "output")],
        )
        after = Randomness.now(own=[generator for generator, _ in self.randomness.own])
        try:
            with patches.apart():
                return Investigation(Step(calls=[call]), models, finite_loss=True).of_call(call)
        except Exception as error:
            return Origin("", note=f"the second run failed ({type(error).__name__}: {error})", sure=False)
        finally:
            after.restore()

    def _module(self) -> nn.Module:
        if self.method is None:
            assert isinstance(self.owner, nn.Module)
            return self.owner
        owner = self.owner
        if self.state is not None:
            owner = object.__new__(type(self.owner))
            owner.__dict__.update(self.state)
        named: Any = type(self.shown, (Called,), {})  # what has no place in a model is told by its class
        module: nn.Module = named(getattr(owner, self.method), owner)
        return module


def _copied(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value
