"""The plain records that pass between probes, detectors and sinks. Standard library only."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any


class Severity(str, Enum):
    """How much a finding matters; compares by weight, writes itself as its word."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def weight(self) -> int:
        return _WEIGHTS[self.value]

    def __str__(self) -> str:
        return self.value


_WEIGHTS = {"info": 0, "warning": 1, "critical": 2}


class DebugLevel(str, Enum):
    """How much is read, and so what it costs."""

    BASIC = "basic"
    ADVANCED = "advanced"
    EXTREME = "extreme"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, level: DebugLevel | str) -> DebugLevel:
        """The level for its name; an unknown name is a `ValueError` that lists the known ones."""
        try:
            return cls(level)
        except ValueError:
            known = ", ".join(repr(known.value) for known in cls)
            raise ValueError(f"level {level!r} is unknown: use one of {known}") from None


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a fault, as far as it is known."""

    module: str | None = None
    parameter: str | None = None
    op: str | None = None
    phase: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}


WITHOUT_DETECTOR = ("blind-probe", "latent-explosion", "pipeline-mismatch")
"""The ids of findings that no detector makes, but another part of Seismograd."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one run: what, where, how bad, the evidence, and what to do."""

    id: str
    severity: Severity
    step: int
    message: str
    rank: int = 0
    where: Where = field(default_factory=Where)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    recommendations: Sequence[str] = ()
    count: int = 1
    last_step: int = -1

    def __post_init__(self) -> None:
        if self.last_step < self.step:
            object.__setattr__(self, "last_step", self.step)

    @property
    def key(self) -> tuple[str, int, Any]:
        """What stays the same while the finding goes on: repeats with this key are the same fault."""
        return (self.id, self.rank, self.evidence.get("series"))

    def to_dict(self) -> dict[str, Any]:
        """The finding in the shape of the report, still with Python's floats."""
        return {
            "id": self.id,
            "severity": self.severity.value,
            "step": self.step,
            "last_step": self.last_step,
            "count": self.count,
            "rank": self.rank,
            "where": self.where.to_dict(),
            "message": self.message,
            "evidence": dict(self.evidence),
            "recommendations": list(self.recommendations),
        }


@dataclass(frozen=True, slots=True)
class TensorStats:
    """Statistics of many tensors of one kind: a column for each measure, a row for each name."""

    names: tuple[str, ...]
    columns: Mapping[str, Any]
    """Sequences of floats, as long as `names`: NumPy arrays where they come from a probe."""

    def __len__(self) -> int:
        return len(self.names)

    def row(self, name: str) -> dict[str, float]:
        at = self.names.index(name)
        return {measure: float(values[at]) for measure, values in self.columns.items()}


SHARED = ("lr/", "weight_decay/", "time/", "memory/")
"""Scalars that keep their names where there are several optimizers: param groups are numbered through all of them."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that went into an op, in numbers. Counts and range are of its elements; `low`, `high` of finite ones."""

    name: str
    """As the op calls it: `self`, `other`; in backward `grad` is the gradient that arrived."""
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    size: int = 0
    zeros: int = 0
    negatives: int = 0
    nan: int = 0
    inf: int = 0
    parameter: str | None = None
    """Its name, if it is a parameter or buffer of the model."""

    def to_dict(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value that is not finite was made, as a second run of the step saw it. Facts, no judgement."""

    phase: str
    """`input`, `forward`, `loss`, `backward`, `optimizer`; empty where it could not be found out, as `note` says."""
    where: Where = field(default_factory=Where)
    """`where.op` is the op that made it (`aten.sqrt`; in backward the op that ran there, `aten.div`)."""
    forward_op: str | None = None
    """For `backward`: the op of the forward pass whose derivative it is (`aten.sqrt`); the place is that one's."""
    columns: tuple[int, int] | None = None
    """From where to where the op stands in `where.code` (first line), to be marked."""
    value: float = math.nan
    """The first bad value: NaN, Inf or -Inf."""
    bad: int = 0
    size: int = 0
    """How many elements of the op's output are bad, of how many."""
    index: tuple[tuple[int, ...], ...] = ()
    """The places of the first few of them: sample first, then feature, as the tensor is laid out."""
    shape: tuple[int, ...] = ()
    dtype: str | None = None
    """Of what the op made."""
    inputs: tuple[Operand, ...] = ()
    """What went into the op; for `backward` what went into its forward op, and `grad`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What else the op was given: `dim`, `correction`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is known, under fixed names: see `replay/`."""
    sure: bool = True
    note: str | None = None
    """What the reader should know about how it was found, or why it could not be."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured at one step on one rank. A value that was not measured is absent."""

    step: int
    scalars: Mapping[str, float] = field(default_factory=dict)
    tensors: Mapping[str, TensorStats] = field(default_factory=dict)
    rank: int = 0
    marks: frozenset[str] = frozenset()
    """How it came about: `amp-skipped`, `pre-step` (read after clipping), `not-stepped`, `by-hand`,
    `inside-backward`, `after-step`."""
    series: int | None = None
    """The optimizer it belongs to where there are several: its scalars then end in `/0`, `/1`."""
    origin: Origin | None = None
    """Where the values that are not finite were made, if that was looked for."""
    insight: Mapping[str, Any] | None = None
    """What a second run of a step whose loss stands out showed: gains of the gradient, samples that carry the loss."""
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What onlookers saw of the loop, the model and the data, by topic, as plain values: a need of `facts/TOPIC`."""

    def plain(self) -> Reading:
        """The same reading under the names that a run with one optimizer has."""
        if self.series is None:
            return self
        tail = f"/{self.series}"
        scalars = {
            name if name.startswith(SHARED) else name.removesuffix(tail): value for name, value in self.scalars.items()
        }
        return replace(self, scalars=scalars)


def strict(value: Any) -> Any:
    """`value` with everything that strict JSON has no word for spelled out: NaN, infinities, enums, tuples."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [strict(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, without importing it
        return strict(value.tolist())
    return str(value)


def rank() -> int:
    """This process's rank as its launcher says it, or torch, if its ranks were made by the program; 0 if none does."""
    told = _number("RANK")
    if told is not None:
        return told
    group = _group()
    return 0 if group is None else int(group.get_rank())


def world_size() -> int:
    """How many processes train together, as their launcher says it, or torch."""
    told = _number("WORLD_SIZE")
    if told is not None:
        return max(1, told)
    group = _group()
    return 1 if group is None else int(group.get_world_size())


def attempt() -> int:
    """How often an elastic launcher started these processes again."""
    return max(0, _number("TORCHELASTIC_RESTART_COUNT") or 0)


def spans_machines() -> bool:
    """Whether the launcher says that the ranks are on several machines."""
    local, nodes = _number("LOCAL_WORLD_SIZE"), _number("GROUP_WORLD_SIZE") or _number("SLURM_NNODES") or 1
    return nodes > 1 or (local is not None and _number("RANK") is not None and world_size() != local)


def starts_again() -> bool:
    """Whether the launcher starts the ranks of several machines again if one fails: those of one that are late in
    ending then miss the others."""
    return spans_machines() and attempt() < (_number("TORCHELASTIC_MAX_RESTARTS") or 0)


def _number(name: str) -> int | None:
    """A number of the environment."""
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def _group() -> Any:
    """torch.distributed, if the program has begun to use it."""
    torch = sys.modules.get("torch.distributed")
    try:
        return torch if torch is not None and torch.is_available() and torch.is_initialized() else None
    except AttributeError:  # it is being imported
        return None


def launcher() -> tuple[float, str] | None:
    """Of several ranks: when the process that launched them began, and what tells the launch from others.

    An elastic launcher starts its processes again: what it tells then is the same. On several machines there are
    several of them: then it is the day, and what all are told.
    """
    elastic = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if world_size() < 2 and not elastic:
        return None
    names = ("TORCHELASTIC_RUN_ID",) if elastic else ("MASTER_ADDR", "MASTER_PORT")
    if spans_machines():
        # The port is left out where it may change between attempts, but a name that says nothing is not enough.
        usual = elastic in ("", "none", "0")
        names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", *_JOBS, *(("MASTER_PORT",) if usual else ()))
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        return today, " ".join([str(today), *(os.environ.get(name, "") for name in names)])
    import psutil

    parent = os.getppid()
    try:
        began = psutil.Process(parent).create_time()
    except psutil.Error:
        return None
    return began, " ".join([str(parent), str(began), *(os.environ.get(name, "") for name in names)])


_JOBS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "LSB_JOBID", "PBS_JOBID", "PMIX_NAMESPACE")
"""What schedulers call a job."""

_made = itertools.count()


def run_id() -> str:
    """A name for a run: when it began, and what tells it from others. The ranks of one launch find the same."""
    parent = launcher()
    if parent is None:
        return new_id()
    began, key = parent
    told = hashlib.sha256(f"{key} {next(_made)}".encode()).hexdigest()[:6]
    return f"{datetime.fromtimestamp(began, UTC):%Y%m%d-%H%M%S}-{told}"


def new_id() -> str:
    """A name that no other run has."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
