"""Turns a moment of the loop into a reading: asks the probes, fetches once, hands the reading on."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from torch import Tensor

from seismograd.detectors.running import Window
from seismograd.governor import Governor
from seismograd.probes.gradients import Gradients
from seismograd.probes.learning_rates import LearningRates
from seismograd.probes.memory import Memory
from seismograd.probes.pack import Fetch, Pack, Values
from seismograd.probes.parameters import Parameters, Updates
from seismograd.probes.shares import Share, loss_of
from seismograd.probes.timing import Timing
from seismograd.probes.watched import Roster, Watched
from seismograd.protocols import Probe
from seismograd.readings import Draft, bad_parameters, complete
from seismograd.records import DebugLevel, Origin, Reading
from seismograd.stats.tensors import all_finite, dense


@dataclass(slots=True)
class Measured:
    """Statistics of the gradients after one backward, still on the device until the first reading fetches them."""

    roster: Roster
    places: list[int]
    pack: Pack
    values: Values | None = None


@dataclass(slots=True)
class Moment:
    """The gradients of one optimizer as the last outermost backward left them, until a step uses them."""

    losses: list[Tensor] = field(default_factory=list)
    """One 0-d tensor for each forward pass that led here, unscaled, still on the device."""
    backwards: list[int] = field(default_factory=list)
    """The numbers of the backwards that added to these gradients."""
    measured: Measured | None = None
    scaler: Any = None
    sentinel: tuple[Tensor, weakref.ref[Tensor], int] | None = None
    """A parameter, its gradient and that one's version: tells whether gradients were changed since."""
    closed: bool = False
    marks: set[str] = field(default_factory=set)
    shares: list[Share | None] = field(default_factory=list)
    """Which share of the step's loss each of these is."""
    divides_by: int | None = None
    """The number of batches that this loop divides its losses by, once it is known."""

    def loss(self) -> Tensor | None:
        if len(self.shares) != len(self.losses):  # told by hand
            self.shares = [None] * len(self.losses)
        return loss_of(self.losses, self.shares, self.divides_by) if self.losses else None

    def untouched(self) -> bool:
        """Whether the gradients are still as they were."""
        if self.sentinel is None:
            return False
        parameter, known, version = self.sentinel
        gradient = parameter.grad
        return gradient is not None and gradient is known() and _version(gradient) == version

    def zeroed(self) -> bool:
        """Whether the gradients were cleared since. Waits for the device only where they were changed in place."""
        if self.sentinel is None or self.untouched():
            return False
        gradient = self.sentinel[0].grad
        return gradient is None or not bool(dense(gradient).any())

    def remember(self, roster: Roster, places: set[int] | None) -> None:
        """Notes how the gradients are now."""
        self.sentinel = None
        for place in range(len(roster.parameters)) if places is None else places:
            parameter = roster.parameters[place]
            if parameter.grad is not None:
                self.sentinel = (parameter, weakref.ref(parameter.grad), _version(parameter.grad))
                return


def _version(gradient: Tensor) -> int:
    return 0 if gradient.is_inference() else gradient._version


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
        self._gradients, self._parameters, self._updates = Gradients(), Parameters(), Updates()
        self._rates, self._memory = LearningRates(), Memory()
        self._probes: list[Probe] = [
            self._gradients,
            self._parameters,
            self._updates,
            self._rates,
            self.timing,
            self._memory,
        ]
        self._in_flight: tuple[Measured, Fetch, list[tuple[Draft, Fetch | None]]] | None = None
        self._broken = 0
        self.investigate: Callable[[Reading], Origin | None] | None = None
        """Finds out where the values of a reading that are not finite were made."""
        self._investigations = self._skips = 0
        self.insight: Callable[[], dict[str, Any]] | None = None
        """Says how the gradient of a step whose loss stands out came about."""
        self._losses = Window(64)
        self._sound = True
        self.last_sound: Reading | None = None
        """The last reading in which everything was finite."""
        self.logged: dict[str, float | Tensor] = {}
        self.surroundings: Mapping[str, Any] = {}
        """What is known of the framework that the loop belongs to."""

    # -- gradients, while they are fresh -------------------------------------------------------------------------

    def measure(self) -> Measured:
        roster, pack = self._watched.roster, Pack()
        places = self._try(self._gradients, self._gradients.read, pack, roster) or []
        if self._governor.takes_tables:
            self._dear(self._gradients, self._gradients.read_more, pack, roster)
        return Measured(roster, places, pack)

    def measure_inside(self, norms: dict[int, Tensor]) -> Measured:
        """From norms that were read while an optimizer stepped inside backward, by the parameters' ids."""
        roster, pack = self._watched.roster, Pack()
        places = [at for at, p in enumerate(roster.parameters) if id(p) in norms]
        pack.add("gradient/norm", [norms[id(roster.parameters[at])] for at in places])
        return Measured(roster, places, pack)

    # -- parameters, around the step -----------------------------------------------------------------------------

    def before_step(self, owner: int) -> None:
        if self._governor.takes_tables:
            self._dear(self._updates, self._updates.before, self._watched.roster, owner)

    def after_step(self, owner: int, step: int) -> None:
        if self._governor.takes_tables:
            self._dear(self._updates, self._updates.after, owner, step)

    def forget_step(self) -> None:
        self._updates.drop()

    def phase_over(self, phase: str) -> None:
        """Notes what is held once the `forward`, `backward` or `step` of a sampled step is over."""
        if self._governor.takes_tables and self._governor.level is not DebugLevel.BASIC:
            self._try(self._memory, self._memory.after, phase)

    # -- the reading ---------------------------------------------------------------------------------------------

    def read(self, owner: int, moment: Moment, step: int, *, with_loss: bool) -> None:
        """The reading of one optimizer's step (-1: one that torch does not know)."""
        measured = moment.measured
        if measured is None:
            if moment.backwards:
                moment.marks.add("pre-step")
            measured = moment.measured = self.measure()
        several = owner >= 0 and len(self._watched.optimizers) > 1
        fetched = measured.values is not None or (self._in_flight is not None and self._in_flight[0] is measured)
        pack = Pack() if fetched else measured.pack  # another optimizer's reading may have fetched the gradients
        self._add_scalars(pack, moment, with_loss)
        self._try(self._rates, self._rates.read, pack, self._watched.optimizers, owner if several else None)
        if not fetched:
            self._try(self.timing, self.timing.read, pack)
            self._try(self._memory, self._memory.read, pack)
            if self._governor.takes_tables:
                self._dear(self._parameters, self._parameters.read, pack, measured.roster)
        draft = Draft(
            step=step,
            roster=measured.roster,
            places=measured.places,
            host=pack.host,
            rank=self._rank,
            series=owner if several else None,
            members=self._members(measured.roster, owner) if several else None,
            marks=frozenset(moment.marks) if moment.marks else _NO_MARKS,
            update=self._try(self._updates, self._updates.read, pack, max(owner, 0)),
            models=self._watched.models,
            scaled=moment.scaler is not None,
            confirm=self._lag == 0,
            thorough=self._broken & (self._broken - 1) == 0,  # the 0th, 1st, 2nd, 4th, 8th bad reading
        )
        fetch = pack.send()
        if fetched and measured.values is None and self._in_flight is not None:
            self._in_flight[2].append((draft, fetch))
        elif fetched:
            self._pass_on(complete(draft, {**(measured.values or {}), **fetch.values()}))
        else:
            self.land()
            if self._lag:
                fetch.start()
                self._in_flight = (measured, fetch, [(draft, None)])
            else:
                measured.values = fetch.values()
                self._pass_on(complete(draft, measured.values))
                measured.values = _only_gradients(measured.values)

    def _members(self, roster: Roster, owner: int) -> set[int] | None:
        """The places of this optimizer's parameters on the roster that was measured."""
        now = self._watched.roster
        if now is roster:
            return now.of(owner)
        mine = {id(now.parameters[at]) for at in now.of(owner) or ()}
        return {at for at, parameter in enumerate(roster.parameters) if id(parameter) in mine}

    def land(self) -> None:
        """Judges the reading that was on its way (`lag=1`)."""
        if self._in_flight is None:
            return
        (measured, fetch, drafts), self._in_flight = self._in_flight, None
        values = fetch.values()
        measured.values = _only_gradients(values)
        for draft, own in drafts:
            self._pass_on(complete(draft, values if own is None else {**measured.values, **own.values()}))

    def glance(self, moment: Moment, step: int) -> None:
        """Looks at gradients that no step will use: only what is not finite is worth a reading."""
        measured = moment.measured
        if measured is None:
            return
        self.land()
        pack = Pack() if measured.values is not None else measured.pack
        self._add_scalars(pack, moment, with_loss=True)
        values = {**(measured.values or {}), **pack.send().values()}
        if all(math.isfinite(value) for name in ("loss", "gradient/norm") for value in values.get(name, ())):
            return
        self._pass_on(complete(self._bare_draft(step, measured, moment), values))

    def _bare_draft(self, step: int, measured: Measured, moment: Moment) -> Draft:
        return Draft(
            step=step,
            roster=measured.roster,
            places=measured.places,
            host={},
            rank=self._rank,
            marks=frozenset(moment.marks),
            models=self._watched.models,
            scaled=moment.scaler is not None,
            confirm=False,
        )

    def look_at_the_end(self, step: int, loss: Tensor | None = None) -> None:
        """Says so if parameters, or the last loss of a line search, have become non-finite since the last reading."""
        if self._broken or (loss is not None and math.isfinite(float(loss))):
            return
        if loss is None and all_finite(self._watched.roster.parameters):
            return
        bad = bad_parameters(self._watched.roster, self._watched.models)
        scalars = {} if loss is None else {"loss": float(loss)}
        if bad is not None or scalars:
            tables = {} if bad is None else {"nonfinite_parameter": bad}
            self._pass_on(Reading(step, scalars, tables, self._rank, frozenset({"after-step"})))

    def look_at_evaluation(self, step: int, loss: Tensor) -> None:
        """Says so if the loss of a line search's later evaluation is not finite."""
        if not self._broken and not math.isfinite(value := float(loss)):
            self._broken += 1
            self._pass_on(Reading(step, {"loss": value}, {}, self._rank, frozenset({"after-step"})))

    def left_alone(self, step: int, loss: float, origin: Origin) -> None:
        """A loss that is not finite, and that the loop did not train on."""
        if self._sound and self._investigations < MOST_INVESTIGATIONS:
            self._investigations += 1
            marks = frozenset({"not-stepped"})
            self._take(Reading(step, {"loss": loss}, {}, self._rank, marks, origin=origin if origin.phase else None))

    def validated(self, loss: float, step: int) -> None:
        self.land()
        self._take(Reading(step=step, scalars={"val_loss": loss}, rank=self._rank))

    def close(self) -> None:
        for probe in list(self._probes):
            self._try(probe, probe.close)

    # -- inside --------------------------------------------------------------------------------------------------

    def _pass_on(self, reading: Reading) -> None:
        if "nonfinite" in reading.tensors or "nonfinite_parameter" in reading.tensors:
            self._broken += 1
        if is_broken(reading):
            if self.surroundings:
                reading = replace(reading, facts={**reading.facts, "surroundings": self.surroundings})
            reading = self._investigated(reading)
        elif "grad/norm" in reading.plain().scalars:
            self.last_sound, self._sound = reading, True
            if self.insight is not None and reading.series is None and self._stands_out(reading.scalars.get("loss")):
                reading = replace(reading, insight=self.insight())
        self._take(reading)

    def _stands_out(self, loss: float | None) -> bool:
        """Whether the loss is far above all of the last ones: what caused it can be seen only now."""
        if loss is None:
            return False
        losses = self._losses
        out = len(losses) >= _KNOWN and loss > losses.highest + max(
            8.0 * losses.spread, 2.0 * (losses.highest - losses.median)
        )
        losses.add(loss)
        return out

    def _investigated(self, reading: Reading) -> Reading:
        """The reading with its origin: of the first bad one, and of one that comes after the run had recovered."""
        skipped = "amp-skipped" in reading.marks and math.isfinite(reading.plain().scalars.get("loss", 0.0))
        if self.investigate is None or not self._sound or self._investigations >= MOST_INVESTIGATIONS:
            return reading
        if skipped:
            self._skips += 1
            if self._skips & (self._skips - 1):  # the 1st, 2nd, 4th, 8th
                return reading
        else:
            self._investigations += 1
        origin: Origin | None = None
        try:
            origin = self.investigate(reading)
        except Exception as error:
            self._fail("the replay", error)
        if skipped:  # the scaler did its duty, unless there is a fault at its scale of 1, too
            return replace(reading, origin=origin) if origin is not None and origin.phase else reading
        self._sound = origin is not None and not origin.phase  # it may be seen the next time
        return replace(reading, origin=origin)

    def _add_scalars(self, pack: Pack, moment: Moment, with_loss: bool) -> None:
        loss = moment.loss() if with_loss else None
        if loss is not None:
            pack.add("loss", [loss])
        if moment.scaler is not None:
            scale = scale_of(moment.scaler)
            if isinstance(scale, Tensor):
                pack.add("amp/scale", [scale.detach().clone().reshape(())])  # `update()` changes it in place
            else:
                pack.host["amp/scale"] = scale
        if self.logged:
            for name, value in self.logged.items():
                if isinstance(value, Tensor):
                    pack.add(LOGGED + name, [value])
                else:
                    pack.host[name] = value
            self.logged.clear()

    def _try(self, probe: Probe, call: Callable[..., Any], *args: Any) -> Any:
        """Runs part of a probe; one that fails is dropped, and the rest goes on."""
        if probe not in self._probes:
            return None
        try:
            return call(*args)
        except Exception as error:
            self._probes.remove(probe)
            self._fail(f"probe {probe.name}", error)

    def _dear(self, probe: Probe, call: Callable[..., Any], *args: Any) -> None:
        """As `_try`, for what is only done on sampled steps: the governor hears what it cost."""
        began = perf_counter()
        self._try(probe, call, *args)
        self._governor.spend_on_tables(perf_counter() - began)


_KNOWN = 16
"""After so many losses it is known which one stands out."""

MOST_INVESTIGATIONS = 6
"""So often in one run a bad step is run again."""


def is_broken(reading: Reading) -> bool:
    """Whether something in it is not finite."""
    if "nonfinite" in reading.tensors or "nonfinite_parameter" in reading.tensors:
        return True
    return not math.isfinite(reading.plain().scalars.get("loss", 0.0))


_NO_MARKS: frozenset[str] = frozenset()

LOGGED = "log:"
"""In a pack, what stands before the names of the user's own series."""


def _only_gradients(values: Values) -> Values:
    """What a second optimizer's reading of the same gradients may use."""
    return {name: numbers for name, numbers in values.items() if name.startswith("gradient/")}


def scale_of(scaler: Any) -> Tensor | float:
    """The scale, still on the device where it lies there."""
    scale = getattr(scaler, "_scale", None)
    return scale if isinstance(scale, Tensor) else float(scaler.get_scale())
