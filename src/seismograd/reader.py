"""Turns a moment of the loop into a reading: asks the probes, fetches once, hands the reading on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from seismograd.governor import Governor
from seismograd.probes.gradients import Gradients
from seismograd.probes.learning_rates import LearningRates
from seismograd.probes.memory import Memory
from seismograd.probes.pack import Fetch, Pack, Values
from seismograd.probes.parameters import Parameters, Updates
from seismograd.probes.timing import Timing
from seismograd.probes.watched import Watched
from seismograd.protocols import Probe
from seismograd.readings import Draft, complete
from seismograd.records import Reading


@dataclass(slots=True)
class Moment:
    """The gradients as the last outermost backward left them, until a step uses them."""

    losses: list[Tensor] = field(default_factory=list)
    """One 0-d tensor for each backward, unscaled, still on the device."""
    divisors: set[float] = field(default_factory=set)
    """What the losses had been divided by just before backward; 1 stands for nothing."""
    backwards: int = 0
    pack: Pack | None = None
    """The gradients' statistics, still on the device; `None` where they have not been measured."""
    places: list[int] = field(default_factory=list)
    scaler: Any = None
    sentinel: tuple[Tensor, int, int] | None = None
    """A parameter, its gradient's id and version: tells whether gradients were zeroed or replaced since."""
    closed: set[int] = field(default_factory=set)
    """The optimizers that have stepped on these gradients; -1 for one that torch does not know."""
    values: Values | None = None
    marks: set[str] = field(default_factory=set)

    def loss(self) -> Tensor:
        """That of the large batch: the mean over the backwards, or their sum where each was divided by their number."""
        losses = self.losses
        if len(losses) == 1:
            return losses[0]
        together = torch.stack([loss.float() for loss in losses])
        return together.sum() if self.divisors == {float(len(losses))} else together.mean()

    def zeroed(self) -> bool:
        """Whether the gradients were cleared, or changed in place, since."""
        if self.sentinel is None:
            return False
        parameter, _, version = self.sentinel
        return parameter.grad is None or parameter.grad._version != version

    def replaced(self) -> bool:
        """Whether other gradients stand where these stood, without a backward in between."""
        if self.sentinel is None:
            return True
        parameter, identity, _ = self.sentinel
        return parameter.grad is not None and id(parameter.grad) != identity


class Reader:
    """Owns the probes. `measure` reads gradients while they are fresh, `read` makes the reading when a step closes."""

    def __init__(
        self,
        watched: Watched,
        governor: Governor,
        *,
        take: Callable[[Reading], object],
        fail: Callable[[str, Exception], None],
        lag: int,
        rank: int,
    ) -> None:
        self._watched, self._governor = watched, governor
        self._take, self._fail = take, fail
        self._lag, self._rank = lag, rank
        self.timing = Timing()
        self._gradients = Gradients(watched)
        self._parameters = Parameters(watched)
        self._updates = Updates(watched)
        self._rates = LearningRates(watched)
        self._probes: list[Probe] = [
            self._gradients,
            self._parameters,
            self._updates,
            self._rates,
            self.timing,
            Memory(),
        ]
        self._every_time = [self._rates, *self._probes[4:]]
        self._in_flight: tuple[Fetch, list[tuple[Draft, Fetch | None]]] | None = None
        self._broken = 0
        self.logged: dict[str, float | Tensor] = {}

    # -- gradients, while they are fresh -------------------------------------------------------------------------

    def measure(self, moment: Moment) -> None:
        pack = moment.pack = Pack()
        self._try(self._gradients, self._gradients.read, pack)
        if self._governor.takes_tables:
            self._dear(self._gradients, self._gradients.read_more, pack)
        moment.places = self._gradients.places

    def measure_inside(self, moment: Moment, norms: dict[int, Tensor]) -> None:
        """Takes the norms that were read while an optimizer stepped inside backward, by the parameters' ids."""
        pack = moment.pack = Pack()
        moment.marks.add("inside-backward")
        moment.places = [at for at, p in enumerate(self._watched.parameters) if id(p) in norms]
        pack.add("gradient/norm", [norms[id(self._watched.parameters[at])] for at in moment.places])

    def sentinel(self) -> tuple[Tensor, int, int] | None:
        for parameter in self._watched.parameters:
            gradient = parameter.grad
            if gradient is not None:
                return None if gradient.is_inference() else (parameter, id(gradient), gradient._version)
        return None

    # -- parameters, around the step -----------------------------------------------------------------------------

    def before_step(self, owner: int | None, step: int) -> None:
        if self._governor.takes_tables:
            self._dear(self._updates, self._updates.before, owner, step)

    def after_step(self) -> None:
        if self._governor.takes_tables:
            self._dear(self._updates, self._updates.after)

    def forget_step(self) -> None:
        """The step that was announced did not take place, or has been measured."""
        self._updates.drop()

    # -- the reading ---------------------------------------------------------------------------------------------

    def read(self, owner: int, moment: Moment, first: bool, step: int) -> None:
        """The reading of one optimizer's step. `first`: no other has stepped on these gradients before."""
        if moment.values is None and moment.pack is None:
            if first and moment.backwards:
                moment.marks.add("pre-step")
            self.measure(moment)
        several = owner >= 0 and len(self._watched.optimizers) > 1
        self._rates.owner = owner if several else None
        if not first:
            pack = Pack()
            self._try(self._rates, self._rates.read, pack)
        else:
            pack = moment.pack or Pack()
            self._add_scalars(pack, moment)
            for probe in tuple(self._every_time):
                self._try(probe, probe.read, pack)
            if self._governor.takes_tables:
                self._dear(self._parameters, self._parameters.read, pack)
            self._try(self._updates, self._updates.read, pack)
        draft = Draft(
            step=step,
            rank=self._rank,
            series=owner if several else None,
            marks=frozenset(moment.marks) if moment.marks else _NO_MARKS,
            watched=self._watched,
            places=moment.places,
            update_places=self._updates.places,
            update_decay=self._updates.decay,
            host=pack.host,
            scaled=moment.scaler is not None,
            confirm=self._lag == 0,
            thorough=self._broken & (self._broken - 1) == 0,  # the 0th, 1st, 2nd, 4th, 8th bad reading
        )
        fetch = pack.send()
        if not first:  # the gradients have been fetched for another optimizer already, or are on their way
            if self._in_flight is not None:
                self._in_flight[1].append((draft, fetch))
            elif moment.values is not None:
                self._take(complete(draft, {**moment.values, **fetch.values()}, own_only=True))
            return
        self.land()
        if self._lag:
            fetch.start()
            self._in_flight = (fetch, [(draft, None)])
            return
        moment.values = fetch.values()
        self._pass_on(complete(draft, moment.values))

    def land(self) -> None:
        """Judges the reading that was on its way (`lag=1`)."""
        if self._in_flight is not None:
            (fetch, drafts), self._in_flight = self._in_flight, None
            values = fetch.values()
            for draft, more in drafts:
                self._pass_on(complete(draft, {**values, **(more.values() if more else {})}, own_only=more is not None))

    def glance(self, moment: Moment, step: int) -> None:
        """Reads gradients that no step will use: only what is not finite is worth a reading."""
        pack = moment.pack
        if pack is None:
            return
        self._add_scalars(pack, moment)
        values = pack.send().values()
        if all(math.isfinite(value) for name in ("loss", "gradient/norm") for value in values.get(name, ())):
            return
        self.land()
        draft = Draft(
            step=step,
            rank=self._rank,
            marks=frozenset(moment.marks),
            watched=self._watched,
            places=moment.places,
            host={},
            scaled=moment.scaler is not None,
            confirm=False,
        )
        self._take(complete(draft, values))

    def validated(self, loss: float, step: int) -> None:
        self.land()
        self._take(Reading(step=step, scalars={"val_loss": loss}, rank=self._rank))

    def close(self) -> None:
        for probe in list(self._probes):
            self._try(probe, probe.close)

    def _pass_on(self, reading: Reading) -> None:
        if "nonfinite" in reading.tensors or "nonfinite_parameter" in reading.tensors:
            self._broken += 1
        self._take(reading)

    # -- inside --------------------------------------------------------------------------------------------------

    def _add_scalars(self, pack: Pack, moment: Moment) -> None:
        if moment.losses:
            pack.add("loss", [moment.loss()])
        if moment.scaler is not None:
            scale = scale_of(moment.scaler)
            if isinstance(scale, Tensor):
                pack.add("amp/scale", [scale.detach().clone().reshape(())])  # `update()` changes it in place
            else:
                pack.host["amp/scale"] = scale
        if self.logged:
            for name, value in self.logged.items():
                if isinstance(value, Tensor):
                    pack.add(name, [value])
                else:
                    pack.host[name] = value
            self.logged.clear()

    def _try(self, probe: Probe, read: Callable[..., None], *args: Any) -> None:
        """Runs part of a probe; one that fails is dropped, and the rest goes on."""
        if probe not in self._probes:
            return
        try:
            read(*args)
        except Exception as error:
            self._probes.remove(probe)
            if probe in self._every_time:
                self._every_time.remove(probe)
            self._fail(f"probe {probe.name}", error)

    def _dear(self, probe: Probe, read: Callable[..., None], *args: Any) -> None:
        """As `_try`, for what is only done on sampled steps: the governor hears what it cost."""
        began = perf_counter()
        self._try(probe, read, *args)
        self._governor.spend_on_tables(perf_counter() - began)


_NO_MARKS: frozenset[str] = frozenset()


def scale_of(scaler: Any) -> Tensor | float:
    """The scale, still on the device where it lies there."""
    scale = getattr(scaler, "_scale", None)
    return scale if isinstance(scale, Tensor) else float(scaler.get_scale())
