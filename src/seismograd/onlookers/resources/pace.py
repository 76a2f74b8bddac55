"""Steps that take far longer than their peers, and what was different in them."""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from seismograd.detectors.running import median
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.places import is_users
from seismograd.probes.pack import Pack, Values
from seismograd.probes.timing import Timing
from seismograd.probes.watched import Watched

WARM_UP = 8
"""So many steps at the beginning are slow by nature: allocators, autotuning, a first compilation."""

FACTOR, SPREADS, CERTAIN, LEAST = 3.0, 3.0, 10.0, 0.005
"""A slow step takes `FACTOR` times as long as its peers and lies `SPREADS` of their spreads above them, or takes
`CERTAIN` times as long; and it loses so many seconds."""

BETWEEN = ("evaluation", "checkpoint", "logging")
_WINDOW = 64
_EVERY = 16
_NOTICED = 0.05
_HEAVY = 0.2
_LARGE = 1.5


class Pace(Onlooker):
    """Adds up what slow steps lose, by what was different in them; says so when there was one, and now and then.

    Time that no cause explains is `stalled` where the thread did not run (another process had the core, or it slept),
    and `unknown` where it did.
    """

    topic: ClassVar[str] = "pace"

    def __init__(self, watched: Watched, timing: Timing) -> None:
        super().__init__(watched)
        self._timing = timing
        self._peers: deque[tuple[float, float, float, int]] = deque(maxlen=_WINDOW)  # length, data, stalls, elements
        self._typical, self._limit = 0.0, math.inf
        self._size = 0
        self._iterator: weakref.ref[Any] | None = None
        self._begins_pass = False
        self._compiles = Compiles()
        self._timed = 0
        self._seconds = self._gc = 0.0
        self._between: defaultdict[str, float] = defaultdict(float)
        self._gc_steps = 0
        self._lost: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._phases: Counter[str] = Counter()
        self._worst: dict[str, Any] = {}
        self._large = 0
        self._tells = self._over = False

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if ours and trains:
            first = args[0] if args else None
            if not isinstance(first, Tensor):
                first = next(tensors_in(args or dict(kwargs)), None)
            if first is not None:
                self._size += first.numel()

    def data_came(self, batch: Any, loader: Any) -> None:
        if self._iterator is None or self._iterator() is not loader:
            self._iterator = weakref.ref(loader)
            self._begins_pass = True

    def timed(self, phases: Mapping[str, float]) -> None:
        size, self._size = self._size, 0
        begins, self._begins_pass = self._begins_pass, False
        self._timed += 1
        recompiled = self._compiles.since()
        if recompiled:
            self._tells = True
        if self._timed <= WARM_UP:
            self._seconds += recompiled  # they count from the first step on, so the time they took has to
            return
        told = phases.get
        between = told("evaluation", 0.0) + told("checkpoint", 0.0) + told("logging", 0.0)
        waited = told("collective", 0.0)  # for other ranks: how long a step takes here, that says nothing of
        alone = phases["step"] - phases["watch"] - between - waited
        self._seconds += alone + between + waited
        if between:
            for phase in BETWEEN:
                self._between[phase] += phases.get(phase, 0.0)
        self._gc += phases["gc"]
        if phases["gc"] > _HEAVY * alone:
            self._gc_steps += 1
        if alone <= 0:
            return
        if alone > self._limit and not recompiled:
            self._explain(phases, alone - self._typical, size, begins)
            self._tells = True
        self._peers.append((alone, told("data", 0.0), told("stalled", 0.0), size))
        if self._timed % _EVERY == 0:
            self._set_limit()

    def passed_over(self) -> None:
        self._size, self._begins_pass = 0, False

    def restart(self) -> None:
        self._size = 0

    def finished(self) -> None:
        self._over = True

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        """Nothing of it lies on a device."""

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        noticed = self._gc + sum(self._between.values()) > _NOTICED * self._seconds
        due = self._tells or self._over or (noticed and self._timed % _EVERY == 0)
        if not due or not self._seconds:
            return None
        self._tells = False
        spot = self._timing.collected_at
        return {
            "steps": max(0, self._timed - WARM_UP),
            "seconds": self._seconds,
            "typical": self._typical,
            "lost": dict(self._lost),
            "counts": dict(self._counts),
            "phase": self._phases.most_common(1)[0][0] if self._phases else None,
            "worst": self._worst,
            "sizes": [self._usual(3), self._large],
            "gc": self._gc,
            "gc_steps": self._gc_steps,
            "gc_line": None
            if spot is None
            else {"file": spot.file, "line": spot.line, "code": (spot.source or "").strip() or None},
            "between": dict(self._between),
            "recompiles": self._compiles.told(),
        }

    def close(self) -> None:
        self._compiles.close()
        self._iterator = None

    # -- inside --------------------------------------------------------------------------------------------------

    def _set_limit(self) -> None:
        """Says anew how long a slow step takes."""
        count = len(self._peers)
        lengths = sorted(length for length, *_ in self._peers)
        self._typical = lengths[count // 2]
        spread = math.log(lengths[(3 * count) // 4] / lengths[count // 4]) / 1.349
        factor = max(FACTOR, min(math.exp(SPREADS * spread), CERTAIN))
        self._limit = max(factor * self._typical, self._typical + LEAST)

    def _usual(self, column: int) -> float:
        return median([peer[column] for peer in self._peers]) if self._peers else 0.0

    def _explain(self, phases: Mapping[str, float], lost: float, size: int, begins: bool) -> None:
        """Shares out what the step lost: each cause has what it is known to have taken, in this order."""
        left = lost
        for cause, seconds in self._causes(phases, lost, size, begins):
            taken = min(left, max(0.0, seconds))
            if taken > 0.1 * lost:
                self._lost[cause] += taken
                self._counts[cause] += 1
                left -= taken
        if left > 0.1 * lost:
            self._lost["unknown"] += left
            self._counts["unknown"] += 1
            inner = {phase: phases.get(phase, 0.0) for phase in ("forward", "backward", "optimizer", "rest")}
            self._phases[max(inner, key=inner.__getitem__)] += 1
        if lost > self._worst.get("lost", 0.0):
            self._worst = {"lost": lost, "seconds": lost + self._typical}

    def _causes(self, phases: Mapping[str, float], lost: float, size: int, begins: bool) -> Iterator[tuple[str, float]]:
        yield "gc", phases["gc"]
        yield "pass" if begins else "data", phases.get("data", 0.0) - self._usual(1)
        usual = self._usual(3)
        if usual and size >= _LARGE * usual:
            self._large = max(self._large, size)
            yield "size", lost
        yield "stalled", phases.get("stalled", 0.0) - self._usual(2)


class Compiles:
    """The recompilations of `torch.compile` so far: code that was compiled before, and is compiled again."""

    def __init__(self) -> None:
        self._known: int | None = None
        self._count, self._seconds = 0, 0.0
        self._last: Any = None

    def since(self) -> float:
        """Seconds of recompilations since it was last asked."""
        dynamo: Any = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return 0.0
        graphs = int(dynamo.counters["stats"]["unique_graphs"])
        known, self._known = self._known, graphs
        if known is None or graphs <= known:
            return 0.0
        spent = 0.0
        for made in dynamo.get_compilation_metrics()[-(graphs - known) :]:
            if getattr(made, "cache_size", 0):
                spent += float(getattr(made, "entire_frame_compile_time_s", None) or 0.0)
                self._count += 1
                self._last = made
        self._seconds += spent
        return spent

    def told(self) -> dict[str, Any] | None:
        if self._last is None:
            return None
        reason = str(getattr(self._last, "recompile_reason", None) or "")
        return {
            "count": self._count,
            "seconds": self._seconds,
            "reason": reason.partition(": ")[2] or reason,
            "file": self._last.co_filename if is_users(self._last.co_filename) else None,
            "line": self._last.co_firstlineno,
        }

    def close(self) -> None:
        self._last = None
