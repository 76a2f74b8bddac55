"""Seismograd: the debugger for PyTorch training. Public names load when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "ActivationMonitor": "activations",
    "ActivationStats": "activations",
    "AnomalyDetectionHook": "steps",
    "AsyncTrainingLogger": "async_logger",
    "DebugLevel": "records",
    "DebugMode": "debugger.modes",
    "DiffusionModelDebugger": "integrations.diffusion.debugger",
    "EarlyStopping": "history",
    "ErrorCategory": "errors",
    "ErrorHandlingDebuggingSystem": "errors",
    "ErrorSeverity": "errors",
    "Finding": "records",
    "GradientStats": "stats.arrays",
    "InputGuard": "guard",
    "LearningRateFinder": "learning_rate",
    "LogLevel": "logger",
    "OptimizationMode": "optimize.modes",
    "PyTorchDebugger": "debugger.desk",
    "PyTorchOptimizer": "optimize.tuning.training_loops",
    "Reading": "records",
    "Run": "store.run",
    "SeismogradWarning": "complaints",
    "Severity": "records",
    "StepProfiler": "steps",
    "TensorStats": "records",
    "TrainingDebugger": "training",
    "TrainingHistory": "history",
    "TrainingLogger": "logger",
    "TrainingPhase": "logger",
    "Where": "records",
    "check_initialization": "stats.arrays",
    "clip_gradients": "stats.arrays",
    "create_enhanced_training_optimizer": "optimize.trainer",
    "create_pytorch_debugger": "debugger.sessions",
    "create_training_logger": "logger",
    "debug_context": "debugger.sessions",
    "debug_operation": "debugger.sessions",
    "debug_training_session": "debugger.sessions",
    "detect_dead_neurons": "activations",
    "detect_model_anomalies": "guard",
    "end_step": "steps",
    "get_step_profiler": "steps",
    "monitor_resources": "guard",
    "optimize_model": "optimize.decorating",
    "plot_gradients": "reports.figures",
    "preflight": "preflight",
    "read_log": "logs",
    "recovery_strategy": "recovery.errors",
    "register_anomaly_hook": "steps",
    "register_recovery": "recovery.errors",
    "replace_nonfinite": "recovery.replacing",
    "replay": "replay",
    "runs": "store.store",
    "safe_inference": "recovery.inference",
    "tune": "optimize.tuning",
    "validate_model_input": "guard",
    "watch": "training",
}

__all__ = [
    "ActivationMonitor",
    "ActivationStats",
    "AnomalyDetectionHook",
    "AsyncTrainingLogger",
    "DebugLevel",
    "DebugMode",
    "DiffusionModelDebugger",
    "EarlyStopping",
    "ErrorCategory",
    "ErrorHandlingDebuggingSystem",
    "ErrorSeverity",
    "Finding",
    "GradientStats",
    "InputGuard",
    "LearningRateFinder",
    "LogLevel",
    "OptimizationMode",
    "PyTorchDebugger",
    "PyTorchOptimizer",
    "Reading",
    "Run",
    "SeismogradWarning",
    "Severity",
    "StepProfiler",
    "TensorStats",
    "TrainingDebugger",
    "TrainingHistory",
    "TrainingLogger",
    "TrainingPhase",
    "Where",
    "__version__",
    "check_initialization",
    "clip_gradients",
    "create_enhanced_training_optimizer",
    "create_pytorch_debugger",
    "create_training_logger",
    "debug_context",
    "debug_operation",
    "debug_training_session",
    "detect_dead_neurons",
    "detect_model_anomalies",
    "end_step",
    "get_step_profiler",
    "monitor_resources",
    "optimize_model",
    "plot_gradients",
    "preflight",
    "read_log",
    "recovery_strategy",
    "register_anomaly_hook",
    "register_recovery",
    "replace_nonfinite",
    "replay",
    "runs",
    "safe_inference",
    "tune",
    "validate_model_input",
    "watch",
]

if TYPE_CHECKING:
    from seismograd.activations import ActivationMonitor, ActivationStats, detect_dead_neurons
    from seismograd.async_logger import AsyncTrainingLogger
    from seismograd.complaints import SeismogradWarning
    from seismograd.debugger.desk import PyTorchDebugger
    from seismograd.debugger.modes import DebugMode
    from seismograd.debugger.sessions import (
        create_pytorch_debugger,
        debug_context,
        debug_operation,
        debug_training_session,
    )
    from seismograd.errors import ErrorCategory, ErrorHandlingDebuggingSystem, ErrorSeverity
    from seismograd.guard import InputGuard, detect_model_anomalies, monitor_resources, validate_model_input
    from seismograd.history import EarlyStopping, TrainingHistory
    from seismograd.integrations.diffusion.debugger import DiffusionModelDebugger
    from seismograd.learning_rate import LearningRateFinder
    from seismograd.logger import LogLevel, TrainingLogger, TrainingPhase, create_training_logger
    from seismograd.logs.read import read_log
    from seismograd.optimize.decorating import optimize_model
    from seismograd.optimize.modes import OptimizationMode
    from seismograd.optimize.trainer import create_enhanced_training_optimizer
    from seismograd.optimize.tuning import tune
    from seismograd.optimize.tuning.training_loops import PyTorchOptimizer
    from seismograd.preflight.flight import preflight
    from seismograd.records import DebugLevel, Finding, Reading, Severity, TensorStats, Where
    from seismograd.recovery.errors import recovery_strategy, register_recovery
    from seismograd.recovery.inference import safe_inference
    from seismograd.recovery.replacing import replace_nonfinite
    from seismograd.replay.again import replay
    from seismograd.reports.figures import plot_gradients
    from seismograd.stats.arrays import GradientStats, check_initialization, clip_gradients
    from seismograd.steps import (
        AnomalyDetectionHook,
        StepProfiler,
        end_step,
        get_step_profiler,
        register_anomaly_hook,
    )
    from seismograd.store.run import Run
    from seismograd.store.store import runs
    from seismograd.training import TrainingDebugger, watch


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'seismograd' has no attribute {name!r}") from None
    module = import_module(f"seismograd.{home}")
    value = module if name == home else getattr(module, name)  # a package may be called itself
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
