"""`Profile`: torch's profiler around a block of code, kept small, and read when the block is over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Literal

import torch
import torch.profiler
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity

from seismograd.complaints import complain
from seismograd.patches import listeners
from seismograd.profiling import trace
from seismograd.profiling.lines import find_lines
from seismograd.profiling.modules import Marks
from seismograd.profiling.quiet import quietly
from seismograd.profiling.reading import add_up
from seismograd.profiling.result import ProfileResult
from seismograd.profiling.result import seconds as in_words
from seismograd.profiling.tables import summarise

Schedule = Literal["auto"] | None | tuple[int, int, int] | tuple[int, int, int, int]

STEPS, FEW, SHORT = 20, 3, 0.3
"""Left to itself, a profile records so many steps; so few if they take longer than that, in seconds. An event takes
tens of microseconds to be read, and there may be a few hundred thousand in a second."""
LONG, AT_MOST = 2.0, 30.0
"""Seconds: without a step, and before the end of one."""

_lock = threading.Lock()
_open: list[Profile] = []
"""The profile that is at work in this process: torch has room for one."""


class Profile:
    """Records what torch does in a `with` block: a Chrome trace in `output_file`, and `result`, which says it.

    `output_file` may end in `.json` or `.json.gz`; Perfetto (ui.perfetto.dev) and chrome://tracing open it. Without it
    there is only the result.

    `schedule` says which steps are recorded. `"auto"`: all of a short block; of a long one the first 20 steps, or 3 if
    they take long. `None`: everything. `(wait, warmup, active)` or `(wait, warmup, active, repeat)`: as in
    `torch.profiler.schedule`; each further cycle is written to a file of its own, the result is of the last one.
    Steps are those of the optimizer; with `steps_from_optimizer=False` call `profile.step()`.

    `stacks` records Python's calls too, from which the lines come. Left at `None`, it is on unless a watch is at work,
    whose own calls would fill the trace.

    Inside another profile, of ours or of torch's, nothing is recorded twice: `result` says so.
    """

    def __init__(
        self,
        output_file: str | os.PathLike[str] | None = None,
        *,
        shapes: bool = True,
        memory: bool = True,
        stacks: bool | None = None,
        flops: bool = True,
        schedule: Schedule = "auto",
        steps_from_optimizer: bool = True,
    ) -> None:
        self.output_file = None if output_file is None else Path(output_file)
        self.steps_from_optimizer = steps_from_optimizer
        self.schedule = _checked(schedule)
        self._settings: dict[str, Any] = {
            "record_shapes": shapes,
            "profile_memory": memory,
            "with_stack": bool(stacks),
            "with_flops": flops,
        }
        self._stacks = stacks
        self._depth = 0
        self._taken = False
        self._outer: Profile | None = None
        self._result: ProfileResult | None = None
        self._torchs: Any = None
        self._kind: str | None = None
        self._hook: Any = None

    @property
    def result(self) -> ProfileResult | None:
        """What it showed, once the block is over; that of the profile around it, if it was inside of one."""
        if self._outer is not None and self._outer.result is not None:
            return self._outer.result
        return self._result

    @property
    def recording(self) -> bool:
        """Whether it records at present."""
        return self._depth > 0 and self._torchs is not None

    def __enter__(self) -> Profile:
        self._depth += 1
        if self._depth > 1:
            return self
        self._outer, self._result = None, None
        self._notes: list[str] = []
        with _lock:
            if _open:
                self._outer = _open[-1]
                self._result = _empty("It is part of the profile around it, which writes the trace and has the result.")
                return self
            if _somebody_profiles():
                self._result = _empty("torch.profiler is at work around it, and there is room for one only.")
                return self
            if self.output_file is not None:
                try:
                    trace.check(self.output_file)
                except OSError:
                    self._depth -= 1
                    raise
            _open.append(self)
            self._taken = True
        self._thread = threading.get_ident()
        self._steps: dict[int, int] = {}
        self._due = self._over = False
        self._cycles, self._began_at_step = 0, 0
        self._hook = register_optimizer_step_post_hook(self._stepped) if self.steps_from_optimizer else None
        self._marks = Marks(self._model_called)
        self._calls = False
        try:
            self._go_on()
        except BaseException:  # Ctrl-C
            self._depth = 0
            self._let_go()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth or not self._taken:
            return
        try:
            if self._torchs is not None:
                self._end()
            if self._result is None:
                self._result = _empty(*self._notes, self._never())
        finally:
            self._let_go()

    def step(self) -> None:
        """Says that a step is over, where there is no optimizer to say it."""
        if self._taken and self._depth:
            self._steps[0] = self._steps.get(0, 0) + 1
            self._due = True
            self._at_boundary()

    # -- steps ---------------------------------------------------------------------------------------------------

    @property
    def _step(self) -> int:
        return max(self._steps.values(), default=0)

    def _stepped(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        self._due = True
        if not self._calls or self._torchs is None:  # else before the next call of a model, outside of the optimizer
            self._at_boundary()
        self._calls = False

    def _model_called(self) -> None:
        if threading.get_ident() == self._thread:
            self._calls = True
            self._at_boundary()

    def _at_boundary(self) -> None:
        """Between two steps: does what the schedule says."""
        if self._over:
            return
        due, self._due = self._due, False
        if self.schedule is None or (self.schedule == "auto" and self._torchs is None):
            return
        if self.schedule == "auto":
            self._stop_if_long(due)
        elif due:
            self._go_on()

    def _stop_if_long(self, due: bool) -> None:
        lasted, steps = perf_counter() - self._began, self._step
        enough = steps >= STEPS or (steps >= FEW and lasted >= SHORT) if steps else lasted >= LONG
        if (enough and due) or (enough and not steps) or lasted >= AT_MOST:
            many = f"the first {steps} steps ({in_words(lasted)})" if steps else f"the first {in_words(lasted)}"
            self._notes.append(f"Recorded are {many}: `schedule=None` records everything, a tuple other steps.")
            self._end()
            self._over = True

    def _go_on(self) -> None:
        """Begins or ends what begins or ends at this step."""
        want, ends = self._wanted()
        if self._torchs is not None and (ends or want != self._kind):
            self._end(discard=self._kind == "warmup")
        if want is None:
            self._over = self._is_past()
        elif self._torchs is None:
            self._kind = want
            self._begin()

    def _wanted(self) -> tuple[str | None, bool]:
        """What is to be done in this step, and whether a cycle ended before it."""
        if not isinstance(self.schedule, tuple):
            return "active", False
        wait, warmup, active = self.schedule[:3]
        place = self._step % (wait + warmup + active)
        if self._is_past() or place < wait:
            return None, place == 0
        return ("warmup" if place < wait + warmup else "active"), place == 0

    def _is_past(self) -> bool:
        if not isinstance(self.schedule, tuple):
            return False
        repeat = self.schedule[3] if len(self.schedule) > 3 else 1
        return bool(repeat) and self._step >= sum(self.schedule[:3]) * repeat

    # -- torch's profiler ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if _somebody_profiles():
            self._notes.append("torch.profiler was at work already, and there is room for one only.")
            return
        try:
            activities, self._device = _activities()
            if self._stacks is None:
                self._settings["with_stack"] = not listeners()
                note = (
                    "A watch is at work: Python's calls, and with them the lines, are left out; `stacks=True` has them."
                )
                if listeners() and note not in self._notes:
                    self._notes.append(note)
            profiler: Any = torch.profiler.profile(activities=activities, **self._settings)
            with quietly():
                spare = torch.empty(1)
                profiler.__enter__()
                del spare  # the first memory from before that is freed is told of in the log: here nobody sees it
        except Exception as error:
            self._failed("start", error)
            return
        self._marks.open()
        self._lost, self._forget_others = False, _hear_of_others(self._other_started)
        self._torchs, self._began, self._began_at_step = profiler, perf_counter(), self._step

    def _other_started(self) -> None:
        self._lost = True

    def _failed(self, what: str, error: Exception) -> None:
        text = f"torch.profiler did not {what} ({type(error).__name__}: {error})."
        self._notes.append(text)
        self._over = True
        complain(f"seismograd: {text}")

    def _end(self, *, discard: bool = False) -> None:
        """Ends the recording, writes the trace, then reads it."""
        profiler, self._torchs = self._torchs, None
        lasted = perf_counter() - self._began
        self._marks.close()
        self._forget_others()
        if self._lost or not _profiler_enabled():
            self._notes.append("Another torch.profiler was started inside the block and took over; ours shows nothing.")
            return
        try:
            with quietly():
                profiler.__exit__(None, None, None)
        except Exception as error:
            self._failed("stop", error)
            return
        if discard:
            profiler.profiler = None
            return
        path = self._path()
        if path is not None:
            try:
                trace.write(path, profiler.export_chrome_trace)
            except Exception as error:
                complain(f"seismograd: the trace was not written to {str(path)!r} ({type(error).__name__}: {error})")
                path = None
        self._result = self._read(profiler, lasted, path)
        profiler.profiler = None  # its events: it is part of a cycle, and would stay for a while
        self._cycles += 1

    def _path(self) -> Path | None:
        path = self.output_file
        if path is None or not self._cycles:
            return path
        stem, dot, rest = path.name.partition(".")
        return path.with_name(f"{stem}.{self._cycles + 1}{dot}{rest}")

    def _read(self, profiler: Any, lasted: float, path: Path | None) -> ProfileResult:
        steps = self._step - self._began_at_step
        try:
            raw = profiler.profiler.kineto_results
            totals = add_up(raw.events(), self._marks.known)
            lines = find_lines(raw.experimental_event_tree()) if self._settings["with_stack"] else None
            return summarise(
                totals,
                lines,
                seconds=lasted,
                steps=steps,
                device=self._device,
                tensor_cores=_idle_tensor_cores(self._device),
                watched=bool(listeners()),
                notes=self._notes,
                trace=path,
            )
        except Exception as error:  # a torch whose events look different
            note = f"The events could not be read ({type(error).__name__}: {error}); the trace has them."
            return ProfileResult(
                seconds=lasted, steps=steps, notes=[*self._notes, note], trace=None if path is None else str(path)
            )

    def _never(self) -> str:
        if isinstance(self.schedule, tuple):
            return f"The block ended after {self._step} steps, before the schedule {self.schedule} recorded any."
        return "Nothing was recorded."

    def _let_go(self) -> None:
        self._taken = False
        self._marks.close()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        with _lock, suppress(ValueError):
            _open.remove(self)


def _hear_of_others(tell: Callable[[], None]) -> Callable[[], None]:
    """Tells of any profiler of torch's that starts from now on: it ends ours, without a word. Returns the way back."""
    owner: Any = torch.autograd.profiler.profile
    original = owner._start_trace

    @wraps(original)
    def started(*args: Any, **kwargs: Any) -> Any:
        tell()
        return original(*args, **kwargs)

    owner._start_trace = started

    def undo() -> None:
        if owner._start_trace is started:
            owner._start_trace = original

    return undo


_profiler_enabled: Any = torch._C._autograd._profiler_enabled


def _somebody_profiles() -> bool:
    """Whether a profiler of torch's is at work, on this thread or another: a second one would end it, or crash."""
    return bool(_profiler_enabled() or getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def _activities() -> tuple[list[ProfilerActivity], str | None]:
    """What can be recorded here, and the name of the accelerator."""
    supported: Any = torch.profiler.supported_activities
    there = supported()
    for name in ("cuda", "xpu"):
        activity: Any = getattr(ProfilerActivity, name.upper(), None)
        if activity in there and getattr(torch, name).is_available():
            return [ProfilerActivity.CPU, activity], name
    return [ProfilerActivity.CPU], None


def _idle_tensor_cores(device: str | None) -> bool:
    """Whether float32 matrix products could run on tensor cores, and do not."""
    if device != "cuda" or torch.version.hip is not None:
        return False
    capable = torch.cuda.get_device_capability() >= (8, 0)
    return capable and torch.get_float32_matmul_precision() == "highest"


def _checked(schedule: Any) -> Schedule:
    if schedule is None or schedule == "auto":
        return schedule  # type: ignore[no-any-return]
    numbers = isinstance(schedule, (tuple, list)) and len(schedule) in (3, 4)
    if not numbers or not all(isinstance(part, int) and part >= 0 for part in schedule) or schedule[2] < 1:
        raise ValueError(
            f"schedule {schedule!r} is unknown: use 'auto', None, or (wait, warmup, active) or"
            " (wait, warmup, active, repeat) in steps, with one active step at least"
        )
    return tuple(schedule)


def _empty(*notes: str) -> ProfileResult:
    return ProfileResult(notes=notes, verdict=())
