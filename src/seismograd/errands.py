"""What is asked of a live run from outside, and done in the training: another level, a stop, a step saved, a trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seismograd import folders
from seismograd.governor import BUDGETS
from seismograd.records import DebugLevel, Reading

if TYPE_CHECKING:
    from seismograd.profiling.session import Profile
    from seismograd.training import TrainingDebugger

KINDS = ("level", "budget", "clear", "stop", "capture", "trace")

TRACED = 5
"""Steps of a trace, if nothing else is asked for."""
LONGEST_TRACE = 100
MOST_TRACES = 10
"""In one run: each takes some megabytes."""
PATIENCE = 50
"""So many readings without a recorded step, and a capture is given up."""


@dataclass(frozen=True, slots=True)
class Errand:
    """One thing that is asked for; `answer` takes the sentence that says what came of it."""

    kind: str
    value: Any
    answer: Callable[[str], None]


class Errands:
    """Takes what is asked for on any thread, and sees to it. No error of it reaches the training.

    What needs no step is done at once. The rest waits for the end of a step, on the thread that trains: a loop looks at
    `waiting` there, and calls `step_over`.
    """

    def __init__(self, debugger: TrainingDebugger) -> None:
        self._debugger = debugger
        self.waiting = False
        """Whether there is something to be done when a step is over, or when it has been read."""
        self.stop: Callable[[], None] = _interrupt
        """Ends the training, from the thread that trains."""
        self._asked: deque[Errand] = deque()
        self._saving: list[Errand] = []
        self._looked = 0
        self._tracing: tuple[Errand, Profile, int] | None = None
        self._traced = -1
        """The newest step that the trace was told of."""
        self._traces = 0
        self._over = False

    def ask(self, kind: str, value: Any, answer: Callable[[str], None]) -> None:
        """Takes a request; it is answered now or later, once, and never raises."""
        errand = Errand(kind, value, answer)
        try:
            if self._over:
                self._answer(errand, "the run has ended", refused=True)
            elif kind == "level":
                self._answer(errand, self._set_level(value))
            elif kind == "budget":
                self._answer(errand, self._set_budget(value))
            elif kind == "clear":
                self._debugger.clear()
                self._answer(errand, "the counters of the training summary start again; the recorded run stays")
            elif kind in KINDS:
                self._check(errand)
                self._asked.append(errand)
                self.waiting = True
                if self._over:  # the run ended meanwhile
                    self.close()
            else:
                raise ValueError(f"{kind!r} cannot be asked of a run: use one of {', '.join(KINDS)}")
        except (ValueError, TypeError) as error:
            self._answer(errand, str(error), refused=True)
        except Exception as error:
            self._answer(errand, f"it failed: {type(error).__name__}: {error}", refused=True)

    # -- at once -----------------------------------------------------------------------------------------------------

    def _set_level(self, value: Any) -> str:
        self._debugger.level = level = DebugLevel.of(value)
        budget = self._debugger.governor.budget
        text = f"the level is {level} now, with a budget of {budget:.3g}"
        if budget < BUDGETS[level]:
            text += f": less than its usual {BUDGETS[level]:g}, so what it reads more is read rarely"
        return text

    def _set_budget(self, value: Any) -> str:
        self._debugger.budget = value
        governor = self._debugger.governor
        measured = f", and {governor.share:.3g} was measured so far" if governor.elapsed else ""
        return f"the budget is {governor.budget:.3g} of the time now{measured}"

    def _check(self, errand: Errand) -> None:
        """A `ValueError` if it cannot be done in this run."""
        kind, value, debugger = errand.kind, errand.value, self._debugger
        if kind == "trace":
            number = TRACED if value is None else value
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= LONGEST_TRACE:
                raise ValueError(f"trace takes how many steps, from 1 to {LONGEST_TRACE}, and not {value!r}")
            if self._traces >= MOST_TRACES:
                raise ValueError(f"{MOST_TRACES} traces were made in this run already, and each takes some megabytes")
        elif value is not None:
            raise ValueError(f"{kind} takes no value, and was given {value!r}")
        if kind == "stop":
            return
        if debugger.loop is None:
            raise ValueError(f"this run is told of its steps by hand: a {kind} needs one under seismograd.watch()")
        if kind == "capture" and not debugger.replays:
            raise ValueError("replay is off in this run, so its steps are not recorded and none can be saved")
        if kind == "capture" and (not debugger.saves_steps or not folders.wanted()):
            raise ValueError("saving steps is off in this run (capture in pyproject.toml, --no-capture)")

    # -- where the training is -----------------------------------------------------------------------------------------

    def step_over(self) -> None:
        """A step of the training has just ended, on this thread."""
        self.waiting = False  # first: what is asked for from here on sets it again
        self._look_at_trace()
        stops = []
        while self._asked:
            errand = self._asked.popleft()
            if errand.kind == "stop":
                stops.append(errand)
            elif errand.kind == "trace":
                self._begin_trace(errand)
            else:
                self._saving.append(errand)
                self._debugger.governor.insists = True
        if self._saving or self._tracing is not None:
            self.waiting = True
        if stops:
            for errand in stops:
                self._answer(errand, f"the training was stopped at the end of step {self._debugger.newest_step}")
            self.stop()

    def reading_came(self, reading: Reading) -> None:
        """A step has been read, and what it was made of is still there."""
        if not self._saving or "grad/norm" not in reading.plain().scalars:
            return
        try:
            text, refused = self._saved(reading), False
            if text is None:
                return
        except Exception as error:
            if self._debugger.passes_on is not None and self._debugger.passes_on(error):
                raise
            text, refused = f"the step was not saved: {_reason(error)}", True
        saving, self._saving, self._looked = self._saving, [], 0
        self._debugger.governor.insists = False
        for errand in saving:
            self._answer(errand, text, refused=refused)

    def _saved(self, reading: Reading) -> str | None:
        """Where the step was saved; `None` if it was not recorded and the next one may be."""
        debugger = self._debugger
        captures, loop = debugger.captures, debugger.loop
        if loop is None or captures is None:
            raise ValueError("its loop does not record steps")
        saved = loop.with_step(reading, captures.asked)
        if saved is not None:
            path, notes = saved
            return "; ".join([f"step {reading.step} was saved in {folders.shown(path)}", *notes[:1]])
        self._looked += 1
        if self._looked < PATIENCE:
            return None
        raise ValueError(f"no call of the model was recorded in {PATIENCE} steps")

    def _begin_trace(self, errand: Errand) -> None:
        from seismograd.profiling.session import Profile

        if self._tracing is not None:
            self._answer(errand, "a trace is being made already", refused=True)
            return
        first = self._debugger.newest_step + 1
        steps = TRACED if errand.value is None else errand.value
        try:
            folder = folders.made(self._debugger.home or folders.home(), self._debugger.id)
            # a hook of its own on optimizers would come and go while torch walks through them
            profile = Profile(folder / f"trace-{first:06}.json.gz", schedule=(0, 0, steps), steps_from_optimizer=False)
            profile.__enter__()
        except Exception as error:
            self._answer(errand, f"no trace was made: {_reason(error)}", refused=True)
            return
        self._tracing, self._traced = (errand, profile, first), first - 1
        if not profile.recording:
            self._end_trace()

    def _look_at_trace(self) -> None:
        if self._tracing is None:
            return
        profile, newest = self._tracing[1], self._debugger.newest_step
        if newest > self._traced:
            self._traced = newest
            profile.step()
        if not profile.recording:
            self._end_trace()

    def _end_trace(self) -> None:
        assert self._tracing is not None
        (errand, profile, first), self._tracing = self._tracing, None
        try:
            profile.__exit__(None, None, None)
        except Exception as error:
            self._answer(errand, f"no trace was made: {_reason(error)}", refused=True)
            return
        result = profile.result
        if result is None or result.trace is None:
            why = "; ".join(result.notes) if result is not None else "nothing was recorded"
            self._answer(errand, f"no trace was made: {why}", refused=True)
            return
        self._traces += 1
        span = f"step {first} was" if result.steps == 1 else f"steps {first} to {first + result.steps - 1} were"
        text = f"{span} traced: {folders.shown(Path(result.trace))}"
        self._answer(errand, ". ".join([text, *result.verdict[:1]]))

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The run is over: what was not done is answered so."""
        self._over, self.waiting = True, False
        if self._tracing is not None:
            self._end_trace()
        saving, self._saving = self._saving, []
        while self._asked:
            saving.append(self._asked.popleft())
        for errand in saving:
            self._answer(errand, "the run ended before its next step", refused=True)

    def _answer(self, errand: Errand, text: str, *, refused: bool = False) -> None:
        level = "warning" if refused else "info"
        told = {"kind": errand.kind, "value": errand.value}
        self._debugger.note("request", f"{errand.kind}: {text}", level=level, data=told)
        errand.answer(text)


def _interrupt() -> None:
    raise KeyboardInterrupt("the training was stopped on request")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
