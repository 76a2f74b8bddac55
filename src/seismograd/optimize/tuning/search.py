"""The search for what is fastest: the knobs by themselves, then together, then the winner once more from the start."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from statistics import median

import torch

from seismograd.costs import samples_in
from seismograd.optimize.tuning.knobs import Knob, Variant
from seismograd.optimize.tuning.lanes import LEAST, MOST, Interval, Lane, compare, peak_memory, speedup
from seismograd.optimize.tuning.parity import PASSES, Reference
from seismograd.optimize.tuning.search_progress import Clock
from seismograd.optimize.tuning.setups import Bench
from seismograd.optimize.tuning.tuned import (
    CHANGES,
    FAILED,
    FASTER,
    NOT_TRIED,
    RECOMMENDED,
    SAME,
    SLOWER,
    UNCHECKED,
    UNSURE,
    Outcome,
    Tuning,
)
from seismograd.optimize.tuning.walks import DRAWS

_TIME_UP = "the time was up"
_OWN_CAVEAT = "another batch size is another training: tune its learning rate before you use it"
_MOST_VERIFIED = 3
_LATER = 0.3
"""The part of the time that is left for combinations and for measuring the best once more."""

_SHORTEST = 0.02
"""The part of the time that each variant gets at least, whatever it took to be compiled."""

_LONGER = 0.1
"""The part of the time that may be added where a variant has not been measured often enough."""

_HOPELESS, _FAR_SLOWER = 3, 2.0
"""Rounds, for what takes four times as long when it is warm: that it is slower need not be known exactly. What takes
twice as long in each of the rounds is slower, however few they are."""

_COMPILING = 20.0
"""Seconds: in less nothing is compiled."""

_WEIGHT = 3
"""What compiles gets so many times as much time."""


class Search:
    """One search: the knobs by themselves, then together, then the winner once more from the start."""

    def __init__(self, bench: Bench, clock: Clock, tuning: Tuning, knobs: list[Knob]) -> None:
        self.bench, self.clock, self.tuning, self.knobs = bench, clock, tuning, knobs
        self.tried: dict[tuple[Knob, ...], Outcome] = {}
        self.baselines: dict[bool, Lane] = {}
        self.base_memory = 0
        self.reference: Reference | None = None

    def run(self) -> None:
        tuning, clock = self.tuning, self.clock
        clock.show("the baseline")
        lane = self._baseline(loads=False)
        self.base_memory = peak_memory(lane.setup)
        tuning.outcomes = [
            Outcome("baseline", "", execution_time=lane.seconds, memory=self.base_memory, speedup=None),
        ]
        clock.show("the baseline in float64 and with other seeds")
        self.reference = reference = self._reference(lane.seconds)
        tuning.reference = reference.kind
        tuning.curves = {
            reference.kind: reference.exact.curve,
            "baseline": reference.plain.curve,
            **{f"seed {at}": trace.curve for at, trace in enumerate(reference.seeds, 1)},
        }
        clock.show("the baseline against itself")
        again = self._lane(Variant(), loads=False)
        rounds = self._compared([lane, again], clock.share(0.05))
        tuning.noise = speedup(rounds, 0, 1)
        tuning.baseline.execution_time = median(rounds[0]) * samples_in(self.bench.batches[0])
        del again
        self._one_by_one()
        best = self._together()
        if best is not None:
            self._verify(best)

    def _one_by_one(self) -> None:
        clock, waiting, compiling = self.clock, list(self.knobs), 0.0
        while waiting:
            knob = waiting.pop(0)
            left = clock.left - (_LATER if self._winners else _SHORTEST) * clock.limit
            if left <= 0 or (knob.compiles and (clock.limit < _COMPILING or left < 1.2 * compiling)):
                continue
            clock.show(knob.name)
            began = clock.now
            weights = sum(_WEIGHT if one.compiles else 1 for one in (knob, *waiting))
            self._try(Variant((knob,)), left * (_WEIGHT if knob.compiles else 1) / weights)
            if knob.compiles:
                compiling = max(compiling, clock.now - began)

    @property
    def _winners(self) -> bool:
        """Whether there is anything to be combined and measured again."""
        return any(outcome.verdict == FASTER for outcome in self.tried.values())

    # -- one variant ---------------------------------------------------------------------------------------------

    def _try(self, variant: Variant, quota: float) -> None:
        """Measures a variant against the baseline."""
        until = self.clock.now + quota

        def measure(lane: Lane, outcome: Outcome) -> None:
            base = self._baseline(loads=variant.loads)
            slower = 0.0 if variant.loads else lane.seconds / base.seconds
            most = _HOPELESS if slower > 4 else LEAST if slower > 2 else MOST
            rounds = self._compared([base, lane], max(until, self.clock.share(_SHORTEST)), most=most)
            self._note(outcome, rounds, base)

        self._measured(variant, measure)

    def _measured(self, variant: Variant, measure: Callable[[Lane, Outcome], None]) -> Outcome:
        """What becomes of a variant: it is compared with the reference, then measured. What it raises is its result."""
        outcome = Outcome(
            variant.name,
            FAILED,
            tuple(knob.name for knob in variant.knobs),
            amp_enabled="amp" in variant.kinds,
            code=variant.code,
        )
        self.tried[variant.knobs] = outcome
        try:
            lane = self._compared_with_reference(variant, outcome)
            outcome.memory = peak_memory(lane.setup)
            outcome.memory_savings = 1 - outcome.memory / self.base_memory if self.base_memory else 0.0
            measure(lane, outcome)
        except KeyboardInterrupt:
            del self.tried[variant.knobs]  # nothing is known of it
            raise
        except Exception as error:
            outcome.error = in_words(error)
        if variant.merged > 1 and outcome.error is None:
            outcome.note = _OWN_CAVEAT
        outcome.verdict = self._verdict(outcome)
        _clean(self.bench.device)
        return outcome

    def _compared_with_reference(self, variant: Variant, outcome: Outcome) -> Lane:
        """The variant in training, next to the reference; what it compiles it compiles now."""
        assert self.reference is not None
        setup = variant.turned(self.bench.setup())
        began, steps = self.clock.now, 0
        if self.reference.width % variant.merged == 0:
            trace = self.reference.trace(setup, merged=variant.merged, draws=variant.draws)
            steps = len(trace.curve) + (DRAWS if trace.averaged else 1)
            outcome.parity = self.reference.judge(trace, variant.dtype(setup), merged=variant.merged)
        took = self.clock.now - began
        lane = Lane(setup, loads=variant.loads)
        lane.warm_up()
        if variant.compiles:
            raise_if_uncompiled(lane)
            outcome.compile_time = max(0.0, took - steps * lane.seconds) + lane.compile_seconds
        return lane

    def _note(self, outcome: Outcome, rounds: list[list[float]], base: Lane) -> None:
        """The first lane is the baseline's, the last one the variant's."""
        outcome.speedup = speedup(rounds, 0, -1)
        outcome.execution_time = median(taken[-1] for taken in rounds) * samples_in(self.bench.batches[0])
        outcome.pays_off_after = _pays_off(base, outcome)

    def _verdict(self, outcome: Outcome) -> str:
        speed, parity = outcome.speedup, outcome.parity
        if outcome.error is not None or speed is None:
            return FAILED
        if parity is None:
            return UNCHECKED
        if not parity.ok:
            return CHANGES
        if speed.high < (1.0 if speed.sure else 1 / _FAR_SLOWER):
            return SLOWER
        if not speed.sure:
            return UNSURE
        return FASTER if speed.low > self._bar else SAME

    @property
    def _bar(self) -> float:
        """What has to be beaten: 1, and what the baseline seems to win against itself."""
        noise = self.tuning.noise
        return 1.0 if noise is None else max(1.0, noise.middle, 1 / noise.middle)

    # -- together ------------------------------------------------------------------------------------------------

    def _together(self) -> Variant | None:
        """The knobs that help, added one by one to the best, each only if it makes it faster still."""
        singles = [
            (knob, outcome)
            for knob in self.knobs
            if (outcome := self.tried.get((knob,))) is not None and outcome.parity is not None and outcome.parity.ok
        ]
        singles = [pair for pair in singles if pair[1].speedup is not None and pair[1].speedup.middle >= 1.0]
        singles.sort(key=lambda pair: -(pair[1].speedup_factor or 0.0))
        winners = [knob for knob, outcome in singles if outcome.verdict == FASTER]
        if not winners:
            return None
        best = Variant((winners[0],))
        rest = [*winners[1:], *(knob for knob, outcome in singles if outcome.verdict == SAME)]
        for knob in rest:
            if self.clock.left < 0.15 * self.clock.limit:
                break
            if set(knob.kind.split()) & best.kinds:
                continue
            candidate = best.with_knob(knob)
            self.clock.show(candidate.name)
            if self._adds(best, candidate):
                best = candidate
        return best

    def _adds(self, best: Variant, candidate: Variant) -> bool:
        """Whether the candidate is faster than the best so far, and still right."""
        gains: list[Interval] = []

        def measure(lane: Lane, outcome: Outcome) -> None:
            base, present = self._baseline(loads=candidate.loads), self._lane(best, loads=candidate.loads)
            rounds = self._compared([base, present, lane], self.clock.share(0.1))
            self._note(outcome, rounds, base)
            gains.append(speedup(rounds, 1, 2))

        outcome = self._measured(candidate, measure)
        return outcome.verdict == FASTER and all(gain.sure and gain.low > 1.0 for gain in gains)

    def _verify(self, best: Variant) -> None:
        """The best once more, with fresh copies: of many that were tried one is always lucky."""
        singles = [Variant((knob,)) for knob in best.knobs] if len(best.knobs) > 1 else []
        others = [
            Variant(knobs)
            for knobs, outcome in self.tried.items()
            if outcome.verdict == FASTER and knobs != best.knobs and len(knobs) == 1
        ]
        others.sort(key=lambda variant: -(self.tried[variant.knobs].speedup_factor or 0.0))
        queue = list({variant.knobs: variant for variant in (best, *others, *singles)}.values())
        for variant in queue[:_MOST_VERIFIED]:
            outcome = self.tried[variant.knobs]
            self.clock.show(f"{variant.name}, once more")
            first = outcome.speedup
            try:
                loads = self.bench.loader is not None  # the whole loop, with its loader
                lanes = [self._lane(Variant(), loads=loads), self._lane(variant, loads=loads)]
                rounds = self._compared(lanes, self.clock.share(0.1), most=2 * MOST)
            except Exception as error:
                outcome.error, outcome.verdict = in_words(error), FAILED
                continue
            self._note(outcome, rounds, lanes[0])
            outcome.verdict = self._verdict(outcome)
            del lanes
            _clean(self.bench.device)
            if outcome.verdict == FASTER:
                outcome.verdict = RECOMMENDED
                self.tuning.recommended = outcome
                return
            assert first is not None
            outcome.note = f"{first.middle:.2f}x at first, not when it was measured again"

    def finish(self, missing: dict[str, str]) -> None:
        """Puts everything that was tried, and what was not, into the result."""
        if not self.tuning.outcomes:
            self.tuning.outcomes = [Outcome("baseline", "")]
        self.tuning.outcomes += self.tried.values()
        known = {outcome.name for outcome in self.tried.values()}
        why = self.tuning.stopped or _TIME_UP
        waiting = {knob.name: why for knob in self.knobs if knob.name not in known}
        if self.clock.limit < _COMPILING and not self.tuning.stopped:
            short = f"to compile takes time: give {_COMPILING:.0f} seconds or more"
            waiting |= {knob.name: short for knob in self.knobs if knob.compiles}
        self.tuning.outcomes += [Outcome(name, NOT_TRIED, note=text) for name, text in {**waiting, **missing}.items()]
        self.baselines.clear()
        _clean(self.bench.device)

    # -- lanes ---------------------------------------------------------------------------------------------------

    def _lane(self, variant: Variant, *, loads: bool | None = None) -> Lane:
        lane = Lane(variant.turned(self.bench.setup()), loads=variant.loads if loads is None else loads)
        lane.warm_up()
        if variant.compiles:
            raise_if_uncompiled(lane)
        return lane

    def _baseline(self, *, loads: bool) -> Lane:
        if loads not in self.baselines:
            self.baselines[loads] = self._lane(Variant(), loads=loads)
        return self.baselines[loads]

    def _compared(self, lanes: list[Lane], until: float, most: int = MOST) -> list[list[float]]:
        return compare(lanes, until, until + _LONGER * self.clock.limit, self.clock.tick, most=most)

    def _reference(self, step: float) -> Reference:
        """As many batches for the loss curve as a third of the time allows, all trainings taken together."""
        trainings = 6.0 + len(self.knobs)
        affordable = 0.3 * self.clock.limit / max(step, 1e-6) / trainings
        width = max(2, min(len(self.bench.batches), int(affordable // PASSES)))
        width -= width % 2  # so that two can be joined
        late = self.clock.share(_LATER)
        return Reference(self.bench, max(1, width), tick=self.clock.tick, late=lambda: self.clock.now > late)


def in_words(error: BaseException) -> str:
    """What went wrong, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0][:300] if lines else ""
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in text.lower():
        return f"out of memory: {text}".rstrip(": ")
    return f"{type(error).__name__}: {text}".rstrip(": ")


class CompileError(RuntimeError):
    """What was to be compiled runs uncompiled."""


def raise_if_uncompiled(lane: Lane) -> None:
    known = getattr(lane.setup.model, "optimization", None)
    if known is not None and not known.compiled:
        raise CompileError(known.notes[-1] if known.notes else "torch.compile failed")


def _pays_off(base: Lane, outcome: Outcome) -> int | None:
    """After how many steps compiling has paid for itself; `None` where it never does."""
    if outcome.compile_time is None or outcome.speedup is None or outcome.speedup.middle <= 1.0:
        return None
    return math.ceil(outcome.compile_time / (base.seconds * (1 - 1 / outcome.speedup.middle)))


def _clean(device: torch.device) -> None:
    """Gives back what a variant took on the device; on the CPU the next comparison collects it."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
