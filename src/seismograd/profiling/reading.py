"""Adds up the events of a profile: ops, modules, phases, and what the device did. Standard library only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_EVENTS = 300_000
"""So many events are added up; a profile that records by itself stops long before."""

_BACKWARD = "autograd::engine::evaluate_function: "
_PHASES = (("enumerate(DataLoader)", "data"), ("Optimizer.", "optimizer"), (_BACKWARD, "backward"))
_NO_OPS = ("ProfilerStep#", "PyTorch Profiler")
_MATMULS = frozenset(
    ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::cudnn_convolution")
)


@dataclass(slots=True)
class Op:
    """All calls of one op so far; times in nanoseconds."""

    calls: int = 0
    own: int = 0
    whole: int = 0
    device: int = 0
    allocated: int = 0
    flops: int = 0
    dearest: int = -1
    event: Any = None
    """Of the dearest call, while it is read: its shapes are asked for once."""


@dataclass(slots=True)
class Module:
    name: str
    kind: str
    root: str
    """The outermost module that it is in."""
    calls: int = 0
    forward: int = 0
    own: int = 0
    own_backward: int = 0
    device: int = 0
    ops: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Totals:
    """What all events of a profile come to."""

    events: int = 0
    cut: bool = False
    """Whether there were more than are added up."""
    ops: dict[str, Op] = field(default_factory=dict)
    modules: dict[str, Module] = field(default_factory=dict)
    phases: Counter[str] = field(default_factory=Counter)
    device: int = 0
    """Nanoseconds of work on the device: added up, and without what ran side by side."""
    device_busy: int = 0
    copies_to_device: int = 0
    workers: bool = False
    """Whether a loader with workers was waited for."""
    full_precision: int = 0
    """Of the device's, in matrix products and convolutions of float32."""
    between: int = 0
    """From the first event to the last of a thread, without ops and waiting for data: Python, mostly."""


class _Open:
    """An event that has not ended yet, on its thread."""

    __slots__ = ("at", "children", "end", "is_op", "module", "name", "phase", "start")

    def __init__(self, name: str, start: int, end: int, at: Module | None, phase: str | None) -> None:
        self.name, self.start, self.end = name, start, end
        self.children = 0
        self.at, self.phase = at, phase
        self.module: Module | None = None
        """Set where the event is the call of a module."""
        self.is_op = True

    @property
    def fills(self) -> bool:
        """Whether its time is not spent between ops: waiting for data is not, either."""
        return self.is_op or self.phase == "data"


def add_up(events: Iterable[Any], marks: Mapping[str, tuple[str, str, str]]) -> Totals:
    """Adds up the raw events of `torch.profiler`, which come in the order of their starts; `marks` are of modules."""
    totals = Totals()
    threads: dict[int, list[_Open]] = defaultdict(list)
    spans: dict[int, list[int]] = {}  # by thread: first start, last end, time filled
    makers: dict[
        tuple[int, int], Module | None
    ] = {}  # by thread and sequence number: where a node of autograd was made
    launched: dict[int, tuple[str, Module | None, Any]] = {}
    on_device: list[Any] = []
    for event in events:
        totals.events += 1
        if totals.events > MOST_EVENTS:
            totals.cut = True
            break
        if _is_python(event):
            continue
        if _is_on_device(event):
            on_device.append(event)
            continue
        name, thread, start = event.name(), event.start_thread_id(), event.start_ns()
        open_ = threads[thread]
        while open_ and open_[-1].end <= start:
            _close(open_, totals, spans[thread])
        if name == "[memory]":
            if open_ and event.nbytes() > 0:
                owner = next((each.name for each in reversed(open_) if each.is_op), None)
                if owner is not None:
                    totals.ops.setdefault(owner, Op()).allocated += event.nbytes()
            continue
        spans.setdefault(thread, [start, start, 0])
        length = event.duration_ns()
        above = open_[-1] if open_ else None
        entry = _Open(name, start, start + length, above.at if above else None, above.phase if above else None)
        mark = marks.get(name)
        if mark is not None:
            entry.is_op = False
            module = entry.module = entry.at = totals.modules.setdefault(mark[0], Module(*mark))
            module.calls += 1
        sequence = event.sequence_nr()
        if name.startswith(_BACKWARD):
            entry.at = makers.get((event.fwd_thread_id(), sequence))
        elif sequence >= 0 and entry.phase != "backward":
            makers[thread, sequence] = entry.at
        _set_phase(entry, totals, length)
        if entry.is_op:
            _count(totals, entry, event, length)
            launched[event.correlation_id()] = (name, entry.at, event)
        open_.append(entry)
    for thread, open_ in threads.items():
        while open_:
            _close(open_, totals, spans[thread])
    totals.between = max((last - first - inside for first, last, inside in spans.values()), default=0)
    _add_device(totals, on_device, launched)
    return totals


def _set_phase(entry: _Open, totals: Totals, length: int) -> None:
    """An outermost event of a phase counts for it whole."""
    if entry.phase is not None:
        return
    for word, phase in _PHASES:
        if entry.name.startswith(word):
            entry.phase = phase
            totals.workers |= phase == "data" and "MultiProcessing" in entry.name
    if entry.phase is None and entry.module is not None:
        entry.phase = "forward"
    if entry.phase in ("data", "optimizer") or entry.name.startswith(_NO_OPS):
        entry.is_op = False
    if entry.phase is not None:
        totals.phases[entry.phase] += length


def _count(totals: Totals, entry: _Open, event: Any, length: int) -> None:
    op = totals.ops.setdefault(entry.name, Op())
    op.calls += 1
    op.whole += length
    op.flops += event.flops()
    if length > op.dearest:
        op.dearest, op.event = length, event


def _close(open_: list[_Open], totals: Totals, span: list[int]) -> None:
    entry = open_.pop()
    length = entry.end - entry.start
    own = max(0, length - entry.children)
    above = open_[-1] if open_ else None
    if above is not None:
        above.children += length
    span[1] = max(span[1], entry.end)
    if entry.fills and not any(each.fills for each in open_):
        span[2] += length
    if entry.is_op:
        totals.ops[entry.name].own += own
    module = entry.module
    if module is not None:
        if entry.phase != "backward":
            module.forward += length
        inner = next((each.module for each in reversed(open_) if each.module is not None), None)
        module.own += length
        if inner is not None:
            inner.own -= length
    elif entry.at is not None and entry.is_op:
        entry.at.ops[entry.name] += own
        if entry.name.startswith(_BACKWARD):
            entry.at.own_backward += length


def _add_device(totals: Totals, events: list[Any], launched: Mapping[int, tuple[str, Module | None, Any]]) -> None:
    spans = []
    for event in events:
        length = event.duration_ns()
        spans.append((event.start_ns(), event.start_ns() + length))
        totals.device += length
        name, module, maker = launched.get(event.linked_correlation_id(), (None, None, None))
        if event.name().startswith(("Memcpy HtoD", "Memcpy DtoH")):
            totals.copies_to_device += length
        if name is None:
            continue
        totals.ops[name].device += length
        if name in _MATMULS and "float" in (getattr(maker, "dtypes", list)() or [])[:1]:
            totals.full_precision += length
        if module is not None:
            module.device += length
            module.ops[name] += length
    last = 0
    for start, end in sorted(spans):
        totals.device_busy += max(0, end - max(start, last))
        last = max(last, end)


def _is_python(event: Any) -> bool:
    ask = getattr(event, "is_python_function", None)
    return bool(ask()) if ask is not None else False


def _is_on_device(event: Any) -> bool:
    if getattr(event.device_type(), "name", "CPU") in ("CPU", "MKLDNN", "IDEEP"):
        return False
    annotation = getattr(event, "is_user_annotation", None)
    return not (annotation is not None and annotation()) and event.name() != "[memory]"
