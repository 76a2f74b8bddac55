"""What may be done to a model for it to be faster or smaller."""

from __future__ import annotations

from enum import Enum


class OptimizationMode(str, Enum):
    """How a model is optimised."""

    NONE = "none"
    AMP = "amp"
    COMPILATION = "compilation"
    MEMORY_EFFICIENT = "memory_efficient"
    FULL_OPTIMIZATION = "full_optimization"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, mode: OptimizationMode | str) -> OptimizationMode:
        """The mode for its name. An unknown name is a `ValueError`."""
        try:
            return cls(mode.lower() if isinstance(mode, str) else mode)
        except ValueError:
            known = ", ".join(repr(known.value) for known in cls)
            raise ValueError(f"optimization_mode {mode!r} is unknown: use one of {known}") from None

    @property
    def narrows(self) -> bool:
        """Whether it computes in a narrower dtype, under autocast."""
        return self in (OptimizationMode.AMP, OptimizationMode.FULL_OPTIMIZATION)

    @property
    def compiles(self) -> bool:
        return self in (OptimizationMode.COMPILATION, OptimizationMode.FULL_OPTIMIZATION)

    @property
    def checkpoints(self) -> bool:
        """Whether it computes blocks again in backward, in place of keeping what they need for it."""
        return self in (OptimizationMode.MEMORY_EFFICIENT, OptimizationMode.FULL_OPTIMIZATION)
