"""`AsyncTrainingLogger`: the log of a training whose loop is a coroutine. Nothing here holds up the event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from operator import index
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from seismograd.errors import ErrorRecord, ErrorTracker
from seismograd.logger import LIMIT, LogLevel, TrainingLogger, TrainingPhase
from seismograd.progress import Progress
from seismograd.protocols import Detector
from seismograd.records import Finding, Reading
from seismograd.sinks import Logging
from seismograd.training import TrainingDebugger

if TYPE_CHECKING:
    from torch import Tensor, nn

P = ParamSpec("P")
T = TypeVar("T")


class AsyncTrainingLogger(TrainingLogger):
    """Logs a training from coroutines: its progress, which is judged like any run's, and what is said on the way.

    Whatever may take time (reading a tensor, judging, writing) is done on a thread of its own, in the order in which it
    was asked for. A call that is cancelled is safe: its work is done or left, never half done.

    - `user_id`, `model_name`: stand in the run's record; the model's name is the run's, unless `name` gives another.
    - `enable_autograd_debug`: autograd's anomaly mode, from `start_training()` until `close()`, which puts back what
      was before. A backward pass that makes a NaN then raises; it takes half as long again.
    - `store`: where the run is recorded, as in `watch()`; `.seismograd` without it, nowhere with `False`.
    - `detectors`, `ignore`, `notify`: as in `watch()`. `level`, `limit`, `logger`: as in `create_training_logger()`.

    Use it as a context manager, `with` or `async with`, or `close()` it (`await aclose()`).
    """

    def __init__(
        self,
        user_id: Any = None,
        model_name: str = "model",
        enable_autograd_debug: bool = False,
        store: Any = None,
        *,
        name: str | None = None,
        detectors: Iterable[Detector] | None = None,
        ignore: Iterable[str] | str = (),
        notify: Any = None,
        level: LogLevel | str | int = LogLevel.DEBUG,
        limit: int = LIMIT,
        logger: logging.Logger | str = "seismograd",
    ) -> None:
        super().__init__(level=level, limit=limit, logger=logger)
        self.user_id, self.model_name, self.enable_autograd_debug = user_id, str(model_name), enable_autograd_debug
        self.debugger = TrainingDebugger(
            detectors=detectors,
            ignore=ignore,
            sinks=[Logging(self.logger)],
            name=name or self.model_name,
            store=store,
            notify=notify,
            about={"user_id": user_id, "model_name": self.model_name},
        )
        """What judges the progress."""
        self.phase = TrainingPhase.INITIALIZATION
        self.errors = ErrorTracker()
        """The last errors that were logged."""
        self._progress = Progress()
        self._measured: dict[str, float] = {}
        """What was read since the last progress, for its reading."""
        self._last_error: int | None = None
        self._counts = dict.fromkeys(("warnings", "errors", "anomalies"), 0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seismograd-logger")
        self._mode = _AnomalyMode()
        self._leave = weakref.finalize(self, _end, self._thread, self._mode, self.debugger)

    @property
    def run_id(self) -> str | None:
        """The id of the run in the store; `None` where it is not recorded."""
        return None if self.debugger.recorder is None else self.debugger.id

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with the training, as far as its progress shows it."""
        return self.debugger.findings

    # -- the training ------------------------------------------------------------------------------------------------

    def start_training(self, total_epochs: int | None = None, total_steps: int | None = None) -> None:
        """The training begins. `total_steps` are those of all epochs."""
        if self.closed:
            raise RuntimeError("the logger is closed: a training needs a new one")
        for what, value in (("total_epochs", total_epochs), ("total_steps", total_steps)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{what} is {value!r}: it takes a whole number, 1 or more, or None if it is not known")
        self._progress = Progress(total_epochs, total_steps)
        if self.enable_autograd_debug:
            self._mode.enter()
        totals = {"total_epochs": total_epochs, "total_steps": total_steps}
        self._log("training_started", f"the training of {self.model_name} begins", LogLevel.INFO, totals)
        self.set_phase(TrainingPhase.TRAINING)

    def set_phase(self, phase: TrainingPhase | str) -> None:
        """The training does something else from here on."""
        phase = TrainingPhase.of(phase)
        if phase is not self.phase:
            before, self.phase = self.phase, phase
            text = "the training is over" if phase is TrainingPhase.COMPLETED else f"{phase.value} begins"
            self._log("phase", text, LogLevel.INFO, {"phase": phase, "before": before})

    def update_progress(
        self,
        epoch: int = 0,
        step: int = 0,
        loss: Tensor | float | None = None,
        learning_rate: float | None = None,
        **metrics: Tensor | float,
    ) -> None:
        """Takes the values of a step, which are stored and judged: the loss, the learning rate, any others by name."""
        values = _given(loss, learning_rate, metrics)
        self._submit(self._take, epoch, step, values, _marks(values.values())).result()
        self._do_errands()

    async def update_progress_async(
        self,
        epoch: int = 0,
        step: int = 0,
        loss: Tensor | float | None = None,
        learning_rate: float | None = None,
        **metrics: Tensor | float,
    ) -> None:
        """As `update_progress`, aside from the event loop. Who was asked to stop, from outside, is stopped here."""
        values = _given(loss, learning_rate, metrics)
        await self._aside(self._take, epoch, step, values, _marks(values.values()))
        self._do_errands()

    def _take(self, epoch: int, step: int, values: Mapping[str, Any], marks: list[Any]) -> None:
        _wait_for(marks)
        scalars = {name: _number(name, value) for name, value in values.items()}
        number = self._progress.stepped(epoch, _whole(step), scalars)
        measured, self._measured = self._measured, {}
        self.debugger._take(Reading(number, {**measured, "epoch": float(epoch), **scalars}, rank=self.debugger.rank))

    def _do_errands(self) -> None:
        if self.debugger.errands.waiting:
            self.debugger.errands.step_over()

    def get_training_summary(self) -> dict[str, Any]:
        """How far the training is, how long it may take, and how many of its steps had something wrong."""
        return {
            "model_name": self.model_name,
            "user_id": self.user_id,
            "phase": self.phase.value,
            **self._progress.told(),
            **self._counts,
            **self.debugger.get_training_summary(),
            "status": self.debugger.status,
        }

    # -- tensors -----------------------------------------------------------------------------------------------------

    def check_tensor_anomalies(self, tensor: Tensor, name: str = "tensor") -> dict[str, Any]:
        """Whether the tensor holds NaN or Inf (`has_nan`, `has_inf`), and what it holds: over the finite values."""
        return self._submit(self._check_tensor, tensor, name, _marks([tensor])).result()

    async def check_tensor_anomalies_async(self, tensor: Tensor, name: str = "tensor") -> dict[str, Any]:
        """As `check_tensor_anomalies`, aside from the event loop: it may wait for a device."""
        return await self._aside(self._check_tensor, tensor, name, _marks([tensor]))

    def check_gradient_anomalies(self, model: nn.Module) -> dict[str, Any]:
        """How many of the model's parameters have a gradient, and how many one with NaN, with Inf, or all zeros."""
        return self._submit(self._check_gradients, model, _marks(_gradients(model))).result()

    async def check_gradient_anomalies_async(self, model: nn.Module) -> dict[str, Any]:
        """As `check_gradient_anomalies`, aside from the event loop: it may wait for a device."""
        return await self._aside(self._check_gradients, model, _marks(_gradients(model)))

    def _check_tensor(self, tensor: Tensor, name: str, marks: list[Any]) -> dict[str, Any]:
        from seismograd.debugger.gradients import nonfinite
        from seismograd.stats.describe import describe

        _wait_for(marks)
        info = describe(tensor, name)
        if not info.is_finite:
            found = nonfinite({name: info}, "loss", self._progress.next) if name == "loss" else None
            self._anomaly(f"{name} holds {_held(info.num_nans, info.num_infs)}", found, {"tensor": info.to_dict()})
        return info.to_dict()

    def _check_gradients(self, model: nn.Module, marks: list[Any]) -> dict[str, Any]:
        from seismograd.debugger.gradients import describe_gradients, nonfinite, norm_of

        _wait_for(marks)
        infos = describe_gradients(model)
        norm = norm_of(model.parameters())
        self._measured["grad/norm"] = norm
        names = {
            "nan": [name for name, info in infos.items() if info.has_nan],
            "inf": [name for name, info in infos.items() if info.has_inf],
            "zero": [name for name, info in infos.items() if info.numel and info.num_zeros == info.numel],
        }
        result: dict[str, Any] = {
            "total_params": sum(1 for _ in model.parameters()),
            "params_with_grad": len(infos),
            **{f"params_with_{kind}_grad": len(found) for kind, found in names.items()},
            **{f"{kind}_params": found for kind, found in names.items()},
            "gradient_norm": norm,
            "has_nan": bool(names["nan"]),
            "has_inf": bool(names["inf"]),
        }
        if found := nonfinite(infos, "gradient", self._progress.next):
            self._anomaly(found.message, found, result)
        return result

    def _anomaly(self, message: str, found: Finding | None, data: Mapping[str, Any]) -> None:
        self._counts["anomalies"] += 1
        self._log("anomaly", message, LogLevel.WARNING, {"phase": self.phase, **data})
        if found is not None:
            self.debugger.found(found)

    # -- what is said ------------------------------------------------------------------------------------------------

    def log_info(self, message: str, phase: TrainingPhase | str | None = None, **data: Any) -> None:
        self._log("info", message, LogLevel.INFO, self._with_phase(phase, data))

    def log_warning(self, message: str, phase: TrainingPhase | str | None = None, **data: Any) -> None:
        self._counts["warnings"] += 1
        self._log("warning", message, LogLevel.WARNING, self._with_phase(phase, data))

    def log_error(
        self,
        message: BaseException | str,
        phase: TrainingPhase | str | None = None,
        context: Mapping[str, Any] | None = None,
        **data: Any,
    ) -> None:
        """Logs an exception, with its place and traceback, or a message; `context` becomes part of the event's data."""
        record = self.errors.track_error(message, context=context)
        self._counts["errors"] += 1
        self._last_error = id(message)  # no more: an exception keeps its frames alive
        told = {**self._with_phase(phase, data), **dict(context or {})}
        if isinstance(message, BaseException):
            told["error"] = _error_told(record)
        text = record.message if isinstance(message, str) else f"{record.type}: {record.message}"
        self._log("error", text, LogLevel.ERROR, told)

    def _with_phase(self, phase: TrainingPhase | str | None, data: Mapping[str, Any]) -> dict[str, Any]:
        """A phase of the user's own is taken as it is: a word about a training is no place to fail."""
        return {"phase": self.phase if phase is None else str(phase), **data}

    def _write(self, event: Mapping[str, Any]) -> None:
        self.debugger.note(event["event_type"], event["message"], event["level"], data=event["data"])
        if self.debugger.recorder is not None:
            self.debugger.recorder.open()

    # -- the end -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Waits until everything so far is in the store."""
        if not self.closed:
            self._thread.submit(int).result()
            self.debugger.flush()

    def close(self) -> None:
        """Ends the run, and puts autograd's mode back. It waits for what is still to be written: see `aclose`."""
        if self.closed:
            return
        try:
            if self._progress.started is not None and self.phase is not TrainingPhase.COMPLETED:
                self.set_phase(TrainingPhase.COMPLETED)
        finally:
            super().close()

    async def aclose(self) -> None:
        """As `close`, aside from the event loop."""
        await asyncio.to_thread(self.close)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ends_with(error)
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ends_with(error)
        await self.aclose()

    def _ends_with(self, error: BaseException | None) -> None:
        if error is None or self.closed:
            return
        crashed = isinstance(error, Exception)
        if crashed and id(error) != self._last_error:
            self.log_error(error)
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        self.debugger.ended({"code": 1 if crashed else None, "exception": told}, crashed=crashed)

    def _submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has it done on the logger's thread."""
        if self.closed:
            raise RuntimeError("the logger is closed: a training needs a new one")
        return self._thread.submit(work, *args, **kwargs)

    async def _aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._submit(work, *args, **kwargs))


class _AnomalyMode:
    """Autograd's anomaly mode, on for whoever wants it; off again, or as it was, when the last of them has left."""

    _lock = threading.Lock()
    _wanted = 0
    _before = (False, True)

    def __init__(self) -> None:
        self._entered = False

    def enter(self) -> None:
        import torch

        mode = _AnomalyMode
        with mode._lock:
            if self._entered:
                return
            self._entered = True
            if not mode._wanted:
                mode._before = (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
            mode._wanted += 1
            torch.autograd.set_detect_anomaly(True)

    def leave(self) -> None:
        mode = _AnomalyMode
        with mode._lock:
            if not self._entered:
                return
            import torch

            self._entered = False
            mode._wanted -= 1
            if not mode._wanted:
                torch.autograd.set_detect_anomaly(*mode._before)


def _end(thread: ThreadPoolExecutor, mode: _AnomalyMode, debugger: TrainingDebugger) -> None:
    try:
        thread.shutdown(wait=True)
    finally:
        mode.leave()
        debugger.close()


def _given(loss: Any, learning_rate: Any, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a step by their names in a reading; what was left out is not among them."""
    values = {"loss": loss, "lr/0": learning_rate, **metrics}
    return {name: value for name, value in values.items() if value is not None}


def _marks(values: Iterable[Any]) -> list[Any]:
    """On each CUDA device that has some of these: the point up to which its stream has to be waited for.

    The thread that reads them has another stream, which knows nothing of this one's work.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    marks = []
    for device in {value.device for value in values if isinstance(value, torch.Tensor) and value.is_cuda}:
        mark = torch.cuda.Event()
        mark.record(torch.cuda.current_stream(device))
        marks.append(mark)
    return marks


def _wait_for(marks: Iterable[Any]) -> None:
    for mark in marks:
        mark.synchronize()


def _gradients(model: nn.Module) -> list[Tensor]:
    if isinstance(model, type) or not callable(getattr(model, "named_parameters", None)):
        raise TypeError(f"the model is {model!r}, not an nn.Module")
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _number(name: str, value: Any) -> float:
    shown = {"lr/0": "learning_rate"}.get(name, name)
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{shown} is {_short(value)}: it takes a single number") from None


def _whole(step: Any) -> int:
    try:
        return index(step)
    except TypeError:
        raise ValueError(f"step is {_short(step)}: it takes a whole number") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _held(nans: int | None, infs: int | None) -> str:
    return " and ".join(f"{count} {word}" for count, word in ((nans, "NaN"), (infs, "Inf")) if count)


def _error_told(record: ErrorRecord) -> dict[str, Any]:
    told = record.to_dict()
    return {part: told[part] for part in ("type", "category", "where", "traceback")}
