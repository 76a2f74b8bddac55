"""What every probe of the loop's structure, the model and the data is: it hears what happens, and tells facts.

An onlooker never judges. It hears the events of a step, keeps little and nothing that would keep the user's tensors
alive, and when the step is over says what it saw: plain values under its topic, in a reading of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.onlookers.graph import Graph
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched


class Onlooker:
    """Overrides the events that it wants to hear. All run with gradients disabled; none may change anything.

    Numbers that are still on the device go into `look`'s pack, as 0-d tensors under names that begin with the topic,
    and come back in `facts`: `.item()` and whatever else waits for the device is forbidden.
    """

    topic: ClassVar[str]
    dear: ClassVar[bool] = False
    """Whether it hears only of steps that are looked at: all of the first ones, then as the governor allows."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.looks = True
        """Whether the present step is looked at in full: for what a cheap one does not do at every step."""

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        """An outermost module is called. `ours`: it holds watched parameters; `trains`: gradients are enabled."""

    def module_ended(self, module: nn.Module, output: Any, *, ours: bool, trains: bool) -> None: ...

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        """A loss of torch's was computed (`cross_entropy_loss`, see `patches.LOSSES`), in training or evaluation."""

    def loss_failed(self, name: str, args: Sequence[Any], error: Exception) -> Mapping[str, Any] | None:
        """A loss of torch's raised, and the script may end here: facts that are to be told at once, if there are any.

        Everyone hears it, and may wait for the device."""
        return None

    def forward_failed(self, error: BaseException) -> None:
        """A module raised. Everyone hears it."""

    def failed(self, error: BaseException) -> Mapping[str, Any] | None:
        """The run ends with this error: facts that are to be told at once. Everyone hears it."""
        return None

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        """An outermost backward begins. `graph` is there on steps that are looked at."""

    def backward_ended(self, owners: Sequence[int]) -> None:
        """`owners`: the optimizers whose gradients it changed (-1: parameters that no optimizer holds); may be none."""

    def backward_failed(self, error: BaseException) -> Mapping[str, Any] | None:
        """A backward raised, and the script may end here: facts that are to be told at once. Everyone hears it."""
        return None

    def step_starts(self, optimizer: Optimizer) -> None: ...

    def step_ended(self, optimizer: Optimizer) -> None: ...

    def cleared(self, owner: Optimizer | nn.Module) -> None:
        """`owner.zero_grad()` is called."""

    def clipped(self, parameters: Sequence[Tensor], limit: float, kind: str) -> None:
        """Gradients were clipped by torch's functions: `kind` is `norm` or `value`."""

    def unscaled(self, optimizer: Optimizer) -> None:
        """`GradScaler.unscale_(optimizer)` was called by the user."""

    def scaled(self, scaler: Any) -> None:
        """A `GradScaler` scaled a loss: the backward that comes next is of it."""

    def scaler_steps(self, optimizer: Optimizer) -> None:
        """`GradScaler.step(optimizer)` is called: the optimizer's own step comes next, unless the scaler skips it."""

    def scheduled(self, scheduler: Any) -> None:
        """A learning rate scheduler steps; not the step that it makes when it is built."""

    def steps_in(self, surroundings: Mapping[str, Any]) -> None:
        """A framework is about to have its optimizer step: its name, and what of its settings matters."""

    def data_came(self, batch: Any, loader: Any) -> None:
        """A `DataLoader`'s iterator gave a batch: `loader` is the iterator."""

    def timed(self, phases: Mapping[str, float]) -> None:
        """A reading has been made: `phases` are its times in seconds, as in `time/step`, without the `time/`."""

    def abandoned(self) -> None:
        """Gradients were made and cleared, and no step used them."""

    def passed_over(self) -> None:
        """A step was not read: its times are not told."""

    def seeded(self, seed: int) -> None:
        """`torch.manual_seed(seed)` was called."""

    def attends(self, module: nn.Module) -> bool:
        """Whether a call of this module without gradients is worth hearing of, while steps are only counted."""
        return False

    def restart(self) -> None:
        """Steps were missed: what was half seen is to be forgotten."""

    def finished(self) -> None:
        """The run is over, or this part of it: the last `look` comes next."""

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        """The step is over: what is still on the device goes into the pack."""

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        """What there is to tell about the step, if anything; called once after each `look`."""
        return None

    def close(self) -> None:
        """Lets go of everything."""
