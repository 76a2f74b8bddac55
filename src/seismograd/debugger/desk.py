"""`PyTorchDebugger`: checks, contexts, events and reports by hand. What does the work lies elsewhere."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.by_hand import scalar
from seismograd.costs import call
from seismograd.debugger import contexts, passes
from seismograd.debugger.contexts import Reentrant
from seismograd.debugger.gradients import (
    GradientReport,
    above,
    bad_backward,
    beyond,
    describe_gradients,
    describe_parameters,
    nonfinite,
    norm_of,
    out_of_bounds,
    sentences,
)
from seismograd.debugger.journal import Journal
from seismograd.debugger.modes import DebugMode, SaidSwitches, Switches
from seismograd.debugger.operations import Operation, OperationMetrics
from seismograd.debugger.summary import OF_GRADIENTS, summary_of
from seismograd.debugger.tracking import MemoryTrack
from seismograd.debugger.usage import memory_of
from seismograd.detectors import by_id
from seismograd.errors import ErrorHandlingDebuggingSystem
from seismograd.judge import Judge, ranked
from seismograd.logger import LogLevel
from seismograd.memory import snapshots
from seismograd.optimize.measuring import measured
from seismograd.optimize.metrics import Account, OptimizationMetrics
from seismograd.optimize.modes import OptimizationMode
from seismograd.profiling import ProfileResult
from seismograd.records import DebugLevel, Finding, Reading, Severity, TensorStats, rank
from seismograd.reports.report import build_report, write_report
from seismograd.stats.describe import TensorInfo, describe

Context = AbstractContextManager["PyTorchDebugger"]

_LEVELS = {Severity.INFO: LogLevel.INFO, Severity.WARNING: LogLevel.WARNING, Severity.CRITICAL: LogLevel.ERROR}
_TOLD = "_seismograd_told"
"""The attribute of an error that became a finding."""


class PyTorchDebugger:
    """Looks at gradients, parameters, tensors, passes, memory and time when it is asked to, and keeps what it saw.

    - `level`: how much a watch that it opens reads.
    - `debug_mode`: what happens in `debug_context`: a `DebugMode`; True checks gradients, False only measures.
    - `enable_...`: whether the contexts of that name do anything where they are not told; and the same for a session.
    - `logger` (or `training_logger`): a `logging.Logger`, or an object with `log_info`, `log_warning`, `log_error`.
    - `log_dir`: where reports are written; `debug_logs` if left out.
    - `history`: how many events, snapshots and measurements are kept; older ones are dropped.
    """

    def __init__(
        self,
        level: DebugLevel | str = DebugLevel.ADVANCED,
        *,
        debug_mode: DebugMode | str | bool = False,
        logger: Any = None,
        training_logger: Any = None,
        error_system: ErrorHandlingDebuggingSystem | None = None,
        enable_anomaly_detection: bool | None = None,
        enable_profiling: bool | None = None,
        enable_memory_tracking: bool | None = None,
        enable_gradient_checking: bool | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        history: int = 1000,
    ) -> None:
        self.level = DebugLevel.of(level)
        self.mode = DebugMode.of(debug_mode)
        self.said = SaidSwitches(
            enable_anomaly_detection, enable_profiling, enable_memory_tracking, enable_gradient_checking
        )
        self.switches = Switches.of(self.mode, self.said)
        self.error_system = error_system if error_system is not None else ErrorHandlingDebuggingSystem()
        self.log_dir = Path("debug_logs" if log_dir is None else log_dir)
        self._journal = Journal(logger if logger is not None else training_logger, history)
        self._snapshots: deque[dict[str, Any]] = deque(maxlen=history)
        self.debug_metrics: deque[OperationMetrics] = deque(maxlen=history)
        self.debug_history: deque[TensorInfo] = deque(maxlen=history)
        """The tensors that were analysed."""
        self.profiles: deque[ProfileResult] = deque(maxlen=min(history, 100))
        """What profilers saw: `print(debugger.profiles[-1])` shows the tables and the verdict."""
        self._optimizations: deque[Account] = deque(maxlen=min(history, 100))
        self.forward_layers: list[dict[str, Any]] = []
        """What the last `debug_forward_pass` saw, layer by layer."""
        self.operations: list[Operation] = []
        """Those that are open, the innermost last."""
        self.profilers = 0
        """How many are open."""
        self._started = datetime.now(UTC)
        self._forget()

    def _forget(self) -> None:
        self._judge = Judge([by_id("gradient-explosion"), by_id("gradient-vanishing")])
        self._seen_by_watches: dict[tuple[Any, ...], Finding] = {}
        self._models: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._track = MemoryTrack()
        self._step = -1

    # -- contexts ------------------------------------------------------------------------------------------------

    def anomaly_detection(self, enabled: bool | None = None) -> Context:
        """Autograd's anomaly mode inside: a backward that makes a NaN raises, and names its forward op. Costs 1.5x."""
        on = _first_said(enabled, self.said.anomalies)
        return Reentrant(lambda: contexts.detecting(self, on))

    autograd_anomaly_detection = anomaly_detection

    def profiling(
        self,
        enabled: bool | str | os.PathLike[str] | None = None,
        output_file: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Context:
        """`torch.profiler` inside; a Chrome trace in `output_file`, a table and a verdict in `profiles[-1]`.

        `options` are those of `seismograd.profiling.Profile`. The file may come first.
        """
        if isinstance(enabled, (str, os.PathLike)):
            enabled, output_file = None, enabled
        on = _first_said(enabled, self.said.profile)
        return Reentrant(lambda: contexts.profiled(self, on, output_file, options))

    def memory_tracking(self, enabled: bool | None = None) -> Context:
        """Snapshots of the memory before, after and, one a second at most, at the steps between; what leaks from step
        to step is found and named."""
        on = _first_said(enabled, self.said.memory)
        return Reentrant(lambda: contexts.memory_tracked(self, on))

    def debug_context(self, name: str = "operation") -> Context:
        """One operation, measured into `debug_metrics`, with what the debugger's mode asks for inside."""
        return Reentrant(lambda: contexts.operated(self, name))

    def raised(self, error: RuntimeError) -> None:
        """An error inside of anomaly detection: told once, though several contexts see it pass."""
        if not getattr(error, _TOLD, False):
            setattr(error, _TOLD, True)
            self.report_finding(bad_backward(error, max(self._step, 0)))

    # -- gradients, parameters, tensors --------------------------------------------------------------------------

    def check_gradients(
        self,
        model: nn.Module,
        loss: Tensor | float | None = None,
        gradient_threshold: float | None = None,
        *,
        scaler: Any = None,
    ) -> GradientReport:
        """The norm of the gradients that `model` holds, with what is wrong with them.

        A threshold, which may also come second, is a limit for the norm; without one the norm is judged by those that
        were checked before. Gradients that a `GradScaler` has scaled need it: the norm is unscaled then, and what is
        not finite is the scaler's to skip.
        """
        if gradient_threshold is None and loss is not None and not isinstance(loss, Tensor):
            gradient_threshold = float(loss)
            loss = None
        self._step += 1
        infos = describe_gradients(model)
        norm = norm_of(model.parameters()) / (1.0 if scaler is None else scaler.get_scale())
        anomalies = sentences(infos)
        findings = [self._nonfinite(infos, "gradient", skipped=scaler is not None)]
        if gradient_threshold is not None:
            findings.append(self.report_finding(above(norm, gradient_threshold, self._step)))
        elif not anomalies:
            findings += self._judged(model, infos, norm, loss)
        anomalies += [finding.message for finding in findings if finding is not None and finding.id in _SAID_AS_ONE]
        for operation in self.operations[-1:]:
            operation.anomalies += anomalies
        return GradientReport(norm, anomalies, infos)

    def check_model_parameters(self, model: nn.Module) -> dict[str, TensorInfo]:
        """What each parameter holds; what is not finite becomes an event."""
        infos = describe_parameters(model)
        self._nonfinite(infos, "parameter")
        return infos

    analyze_model_parameters = check_model_parameters

    def analyze_gradients(self, model: nn.Module) -> dict[str, TensorInfo]:
        """What each gradient holds; what is not finite becomes an event."""
        infos = describe_gradients(model)
        self._nonfinite(infos, "gradient")
        return infos

    def analyze_tensor(self, tensor: Tensor, name: str = "tensor", *, kind: str = "activation") -> TensorInfo:
        """What a tensor is and holds. `kind` says what it is: input, activation, loss, gradient or parameter."""
        info = describe(tensor, name)
        self._nonfinite({name: info}, kind)
        return info

    def check_gradient_explosion(self, model: nn.Module, threshold: float = 10.0) -> list[str]:
        """The parameters whose gradient norm is above the threshold, or not finite."""
        return self._beyond(model, threshold, vanishing=False)

    def check_gradient_vanishing(self, model: nn.Module, threshold: float = 1e-6) -> list[str]:
        """The parameters that have a gradient whose norm is below the threshold."""
        return self._beyond(model, threshold, vanishing=True)

    # -- passes --------------------------------------------------------------------------------------------------

    def debug_forward_pass(self, model: nn.Module, inputs: Any, layer_hooks: bool = True) -> Any:
        """The model's output for `inputs` (a tuple is its arguments, a dict its keywords); `forward_layers` tells of
        each layer."""
        layers: list[dict[str, Any]] = []
        began = perf_counter()
        try:
            with ExitStack() as stack:
                if layer_hooks:
                    stack.enter_context(passes.described(model, layers))
                outputs = call(model, inputs)
        finally:
            self.forward_layers = layers
            self.report_finding(passes.first_bad(layers, max(self._step, 0)))
        seconds = perf_counter() - began
        self._journal.log("forward_pass", f"{type(model).__name__}: {seconds:.3g} s", {"layers": len(layers)})
        return outputs

    def debug_backward_pass(self, loss: Tensor, retain_graph: bool = False) -> dict[str, Any]:
        """`loss.backward()`, and what it did: the norm of the gradients, how long it took, what is not finite."""
        leaves = passes.leaves_of(loss)
        seconds = self._backward(loss, retain_graph)
        infos = {f"leaf {at}": describe(leaf.grad) for at, leaf in enumerate(leaves) if leaf.grad is not None}
        self._nonfinite(infos, "gradient")
        told = {
            "loss": float(loss.detach()) if loss.numel() == 1 else None,
            "gradient_norm": norm_of(leaves),
            "gradient_anomalies": sentences(infos),
            "tensors": len(infos),
            "duration": seconds,
        }
        self._journal.log("backward_pass", f"{seconds:.3g} s", told)
        return told

    def debug_training_step(  # noqa: PLR0917 (the seed's order)
        self,
        model: nn.Module,
        inputs: Any,
        targets: Any,
        loss_fn: Any,
        optimizer: Optimizer,
        gradient_threshold: float | None = None,
        *,
        scaler: Any = None,
    ) -> dict[str, Any]:
        """One step as a plain loop does it, with a `GradScaler` if there is one, and what was seen at it."""
        told: dict[str, Any] = {}
        began = perf_counter()

        def evaluate() -> Tensor:
            optimizer.zero_grad()
            outputs = self.debug_forward_pass(model, inputs, layer_hooks=self.level is DebugLevel.EXTREME)
            loss: Tensor = loss_fn(outputs, targets)
            seconds = self._backward(loss if scaler is None else scaler.scale(loss))
            report = self.check_gradients(model, loss, gradient_threshold, scaler=scaler)
            told.update(loss=loss.item(), backward_time=seconds, **report.plain())
            return loss

        step: Any = optimizer.step
        if isinstance(optimizer, torch.optim.LBFGS):  # it evaluates by itself
            step(evaluate)
        else:
            evaluate()
            if scaler is None:
                step()
            else:
                scaler.step(optimizer)
                scaler.update()
        return {"step": self._step, **told, "duration": perf_counter() - began}

    # -- optimisation --------------------------------------------------------------------------------------------

    @property
    def optimization_metrics(self) -> list[OptimizationMetrics]:
        """What each `optimize_model` did, the oldest first, as far as it is known by now."""
        return [account.metrics for account in self._optimizations]

    def optimize_model(
        self,
        model: nn.Module,
        optimization_mode: OptimizationMode | str = OptimizationMode.AMP,
        sample_input: Any = None,
        **options: Any,
    ) -> nn.Module:
        """The model in this mode, over the same weights; `optimization_metrics[-1]` tells what was done.

        With a `sample_input` (a tensor, a tuple of arguments, a dict of keywords) its speed, its memory and its outputs
        are measured next to the model's. `options` are those of `seismograd.optimize.models.optimized`.
        """
        fast, account = measured(model, optimization_mode, sample_input, **options)
        self.take_optimization(model, account)
        return fast

    def take_optimization(self, model: nn.Module, account: Account) -> None:
        """Keeps what an optimisation of the model did."""
        self._optimizations.append(account)
        self._journal.log("optimization", f"{type(model).__name__}: {account.mode}", account.metrics.to_dict())

    # -- memory --------------------------------------------------------------------------------------------------

    @property
    def memory_snapshots(self) -> list[dict[str, Any]]:
        return list(self._snapshots)

    def profile_memory(self, name: str = "") -> dict[str, Any]:
        """A snapshot of the memory, kept under this name, and what leaks from one call to the next, as sentences."""
        taken = self.snap(name)
        accelerated = taken["cuda_reserved"] or taken["cuda_allocated"]
        return {
            **taken,
            "cpu_memory": taken["cpu_memory_percent"],
            "gpu_memory": taken["cuda_allocated"] / 2**20 if accelerated else None,
            "memory_leaks": self.leaks(self._track),
        }

    def profile_memory_usage(self, model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
        """The bytes of a model: parameters, gradients, buffers, the optimizer's state; shared memory counts once."""
        return memory_of(model, optimizer)

    def compare_memory(self, before: Mapping[str, Any] | str, after: Mapping[str, Any] | str) -> dict[str, Any]:
        """What changed between two snapshots, given themselves or by the names of `profile_memory`."""
        return snapshots.compare(self._snapshot_of(before), self._snapshot_of(after))

    # -- events and reports --------------------------------------------------------------------------------------

    @property
    def debug_events(self) -> list[dict[str, Any]]:
        """The last events, the oldest first: `timestamp`, `event_type`, `message`, `data`."""
        return self._journal.events

    @property
    def event_counts(self) -> dict[str, int]:
        """How many events there were of each type, those that are no longer kept included."""
        return dict(self._journal.counts)

    def log_debug_event(
        self,
        event_type: str,
        message: str,
        data: Mapping[str, Any] | None = None,
        level: LogLevel | str = LogLevel.INFO,
    ) -> None:
        """An event of the user's own."""
        self._journal.log(event_type, message, data, LogLevel.of(level))

    _log_debug_event = log_debug_event  # as a seed calls it

    @property
    def findings(self) -> list[Finding]:
        """What was found so far, by hand and by watches that it opened, in the order in which it should be read."""
        return ranked([*self._judge.findings, *self._seen_by_watches.values()])

    def report_finding(self, finding: Finding | None) -> Finding | None:
        """Takes a finding in: it becomes an event, and part of the report."""
        if finding is not None:
            self._note(finding)
            self._judge.add(finding)
        return finding

    def take_from_watch(self, finding: Finding, *, new: bool) -> None:
        """Takes in what a watch found, or how that went on."""
        if new:
            self._note(finding)
        self._seen_by_watches[finding.key] = finding

    def get_debug_summary(self) -> dict[str, Any]:
        """What was done and seen so far, in numbers, as strict JSON."""
        return summary_of(self)

    def debug_report(self) -> dict[str, Any]:
        """Everything that is kept, in the shape of every report."""
        report = build_report(
            run={"name": "debugger", "level": self.level.value, "steps": self._step + 1, "started": self._started},
            findings=self.findings,
            summary=self.get_debug_summary(),
            events=self.debug_events,
            memory=self.memory_snapshots,
            performance={
                "operations": [asdict(metrics) for metrics in self.debug_metrics],
                "profiles": [profile.to_dict() for profile in self.profiles],
                "layers": self.forward_layers,
                "optimizations": [metrics.to_dict() for metrics in self.optimization_metrics],
            },
        )
        report["violations"] = [each for each in report["findings"] if each["id"] in OF_GRADIENTS]
        return report

    def save_debug_report(self, filename: str | os.PathLike[str] | None = None) -> Path:
        """Writes the report into `log_dir`, or to a path that is whole, and says where it is."""
        name = filename if filename is not None else f"debug_report_{datetime.now(UTC):%Y%m%d_%H%M%S}.json"
        path = self.log_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_report(self.debug_report(), path)

    def clear_debug_data(self) -> None:
        """Forgets everything that was kept, and frees it."""
        self._journal.clear()
        for kept in (self._snapshots, self.debug_metrics, self.debug_history, self.profiles, self._optimizations):
            kept.clear()
        self.forward_layers = []
        self._forget()

    clear_debug_history = clear_debug_data

    # -- inside --------------------------------------------------------------------------------------------------

    def _note(self, finding: Finding) -> None:
        self._journal.log(
            finding.id.replace("-", "_"), finding.message, finding.evidence, level=_LEVELS[finding.severity]
        )

    def _backward(self, loss: Tensor, retain_graph: bool = False) -> float:
        """How many seconds the backward pass took."""
        began = perf_counter()
        try:
            torch.autograd.backward(loss, retain_graph=retain_graph)
        except RuntimeError as error:
            self.raised(error)
            raise
        return perf_counter() - began

    def _nonfinite(self, infos: Mapping[str, TensorInfo], kind: str, *, skipped: bool = False) -> Finding | None:
        self.debug_history.extend(infos.values())
        finding = nonfinite(infos, kind, max(self._step, 0))
        if finding is not None and skipped:
            finding = replace(
                finding,
                severity=Severity.INFO,
                message=f"{finding.message} The scaler skips this step.",
                recommendations=(),
            )
        return self.report_finding(finding)

    def _judged(
        self, model: nn.Module, infos: Mapping[str, TensorInfo], norm: float, loss: Tensor | float | None
    ) -> list[Finding | None]:
        """What the detectors say of these gradients, beside those of the same model that they saw before."""
        series = self._models.setdefault(model, len(self._models)) or None
        tail = "" if series is None else f"/{series}"
        scalars = {f"grad/norm{tail}": norm}
        if loss is not None:
            scalars[f"loss{tail}"] = float(scalar(loss))
        norms = [0.0 if info.norm is None else info.norm for info in infos.values()]
        table = TensorStats(tuple(infos), {"norm": norms})
        reading = Reading(self._step, scalars, {"gradient": table}, rank(), frozenset({"by-hand"}), series)
        seen = self._judge.observe(reading)
        for finding in seen:
            self._note(finding)
        return list(seen)

    def _beyond(self, model: nn.Module, threshold: float, *, vanishing: bool) -> list[str]:
        norms = beyond(describe_gradients(model), threshold, vanishing=vanishing)
        self.report_finding(out_of_bounds(norms, threshold, max(self._step, 0), vanishing=vanishing))
        return list(norms)

    def leaks(self, track: MemoryTrack) -> list[str]:
        """What leaks, as this track knows by now; it is told at its first time."""
        known = {finding.key for finding in self._judge.findings}
        found = track.look()
        for finding in found:
            if finding.key not in known:
                self.report_finding(finding)
        return [finding.message for finding in found]

    def snap(self, label: str) -> dict[str, Any]:
        """Takes a snapshot of the memory, and keeps it."""
        taken = snapshots.snapshot(label)
        self._snapshots.append(taken)
        return taken

    def _snapshot_of(self, which: Mapping[str, Any] | str) -> Mapping[str, Any]:
        if not isinstance(which, str):
            return which
        taken: Mapping[str, Any]
        for taken in reversed(self._snapshots):
            if taken["label"] == which:
                return taken
        known = ", ".join(sorted({repr(taken["label"]) for taken in self._snapshots})) or "none yet"
        raise KeyError(
            f"there is no memory snapshot {which!r}; there are {known}: take one with profile_memory({which!r})"
        )


_SAID_AS_ONE = frozenset(("gradient-explosion", "gradient-vanishing"))
"""Findings that are about all gradients; what is not finite is told of tensor by tensor."""


def _first_said(*said: bool | None) -> bool:
    """The first of these that was said; where nothing was, whoever asks for a thing by its name wants it."""
    return next((bool(each) for each in said if each is not None), True)
