"""What a debugger does when it is not told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DebugMode(str, Enum):
    """What happens inside of `debug_context` and `debug_operation`."""

    NONE = "none"
    ANOMALY_DETECTION = "anomaly_detection"
    PROFILING = "profiling"
    MEMORY_PROFILING = "memory_profiling"
    GRADIENT_CHECKING = "gradient_checking"
    FULL_DEBUG = "full_debug"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, mode: DebugMode | str | bool) -> DebugMode:
        """The mode for its name; True is what costs little. An unknown name is a `ValueError`."""
        if isinstance(mode, bool):
            return cls.GRADIENT_CHECKING if mode else cls.NONE
        try:
            return cls(mode)
        except ValueError:
            known = ", ".join(repr(known.value) for known in cls)
            raise ValueError(f"debug_mode {mode!r} is unknown: use True, False, or one of {known}") from None


@dataclass(frozen=True)
class Switches:
    """What is on: said by the user, or else by the mode."""

    anomalies: bool
    profile: bool
    memory: bool
    gradients: bool

    @classmethod
    def of(cls, mode: DebugMode, said: SaidSwitches) -> Switches:
        def on(own: DebugMode, asked: bool | None) -> bool:
            return mode in (own, DebugMode.FULL_DEBUG) if asked is None else asked

        return cls(
            on(DebugMode.ANOMALY_DETECTION, said.anomalies),
            on(DebugMode.PROFILING, said.profile),
            on(DebugMode.MEMORY_PROFILING, said.memory),
            on(DebugMode.GRADIENT_CHECKING, said.gradients),
        )


@dataclass(frozen=True)
class SaidSwitches:
    """What the user has said about each; `None`: nothing."""

    anomalies: bool | None = None
    profile: bool | None = None
    memory: bool | None = None
    gradients: bool | None = None
