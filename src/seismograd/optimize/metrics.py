"""What an optimisation did, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seismograd.optimize.modes import OptimizationMode
from seismograd.records import strict


@dataclass(frozen=True)
class GraphBreak:
    """A place at which a compiled graph ends and Python takes over."""

    reason: str
    file: str | None = None
    line: int | None = None
    code: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: {self.code}: " if self.file else ""
        return f"{place}{self.reason}" + (f" (try: {self.hint})" if self.hint else "")


@dataclass(frozen=True)
class OptimizationMetrics:
    """What an optimisation did, and what it brought. What was not measured is `None`."""

    mode: OptimizationMode
    execution_time: float
    """Seconds of one step of the optimised model where that was measured, else of the optimisation itself."""
    speedup_factor: float | None = None
    """The time of a step as it was, by the time of one as it is now."""
    memory_savings: float | None = None
    """The part, up to 1, of what was kept for backward that is no longer kept."""
    amp_enabled: bool = False
    amp_dtype: str | None = None
    compiled: bool = False
    """Whether compiled code runs: False, with a note, once that has failed."""
    compile_time: float | None = None
    """Seconds of the first call, which compiles."""
    graph_breaks: int | None = None
    breaks: tuple[GraphBreak, ...] = ()
    """Why there are graph breaks, and where."""
    checkpointed: tuple[str, ...] = ()
    """The blocks that are computed again in backward."""
    max_difference: float | None = None
    """The largest difference of an output from that of the model as it was."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As strict JSON."""
        told: dict[str, Any] = strict({name: getattr(self, name) for name in self.__dataclass_fields__})
        return {**told, "breaks": [str(each) for each in self.breaks]}


@dataclass
class Account:
    """What is known so far of one optimisation. It holds no model."""

    mode: OptimizationMode
    known: dict[str, Any] = field(default_factory=lambda: {"execution_time": 0.0})
    notes: list[str] = field(default_factory=list)

    def learn(self, **known: Any) -> None:
        self.known.update(known)

    def note(self, text: str) -> None:
        """Keeps a sentence, once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def metrics(self) -> OptimizationMetrics:
        return OptimizationMetrics(self.mode, notes=tuple(self.notes), **self.known)
