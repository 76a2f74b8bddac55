"""Guards at the doors of a model: what goes in, what comes out, what the machine has left."""

from seismograd.guard.drift import InputGuard
from seismograd.guard.inputs import validate_model_input
from seismograd.guard.outputs import detect_model_anomalies
from seismograd.guard.resources import monitor_resources

__all__ = ["InputGuard", "detect_model_anomalies", "monitor_resources", "validate_model_input"]
