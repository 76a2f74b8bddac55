"""What a profile's figures mean, in sentences. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seismograd.profiling.result import LineCost, ModuleCost, OpCost, percent, seconds

_STANDS_OUT = 0.15
_WAITS = 0.2
_STEPS = 0.25
_COPIES = 0.1
_IDLE = 0.3
_SYNC = 0.05
_TINY = 20e-6
"""Seconds: an op that takes less is mostly started, not computed."""
_MANY = 500
_SYNCS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
_COPY_OPS = ("aten::copy_", "aten::_to_copy", "aten::to", "aten::contiguous", "aten::clone")


@dataclass(frozen=True, slots=True)
class Figures:
    """What the verdict rests on; shares are of the whole time."""

    seconds: float
    steps: int
    ops: Sequence[OpCost]
    """All of them, the dearest first."""
    modules: Sequence[ModuleCost]
    lines: Sequence[LineCost]
    phases: dict[str, float] = field(default_factory=dict)
    between: float = 0.0
    """Share of the time between ops."""
    stacks: bool = False
    """Whether Python's calls were recorded, which takes time of its own."""
    device: str | None = None
    device_busy: float = 0.0
    copies_to_device: float = 0.0
    full_precision: float = 0.0
    """Share of the device's time in float32 matrix products that tensor cores could do."""


def sentences(figures: Figures) -> list[str]:
    """The verdict, the weightiest part first."""
    if not figures.ops:
        return ["No op of torch ran on this thread while it was recorded."]
    told = [
        *_idle(figures),
        *_data(figures),
        *_dearest(figures),
        *_line(figures),
        *_copies(figures),
        *_syncs(figures),
        *_optimizer(figures),
        *_tiny(figures),
        *_precision(figures),
    ]
    return told or [_nothing(figures)]


def _dearest(figures: Figures) -> Iterator[str]:
    whose = f"the {figures.device} device's time" if figures.device else "the time"
    module = max(figures.modules, key=lambda each: each.share, default=None)
    if module is not None and module.share >= _STANDS_OUT:
        op = f", most of it `{module.op}`" if module.op else ""
        yield f"{percent(module.share)} of {whose} is in `{module.name}` ({module.kind}), forward and backward{op}."
        return
    op_ = max(figures.ops, key=lambda each: each.device_share if figures.device else each.share)
    share = op_.device_share if figures.device else op_.share
    if share >= _STANDS_OUT:
        yield f"{percent(share)} of {whose} is in `{op_.name}`, called {op_.calls:,} times{_at(op_)}."


def _line(figures: Figures) -> Iterator[str]:
    line = max(figures.lines, key=lambda each: each.share, default=None)
    if line is None or line.share < _STEPS:
        return
    if all(abs(line.share - figures.phases.get(phase, 0.0)) > 0.05 for phase in ("data", "optimizer")):  # told already
        yield f"The dearest line is {line.file}:{line.line} with {percent(line.share)}: `{line.code}`."


def _data(figures: Figures) -> Iterator[str]:
    share = figures.phases.get("data", 0.0)
    if share >= _WAITS:
        yield (
            f"The loop waits {percent(share)} of the time for its DataLoader: give it `num_workers`, or cheapen what"
            " the dataset does for each sample."
        )


def _optimizer(figures: Figures) -> Iterator[str]:
    share = figures.phases.get("optimizer", 0.0)
    if share >= _STEPS:
        yield f"The optimizer takes {percent(share)} of the time: try `fused=True` (or `foreach=True`) in it."


def _copies(figures: Figures) -> Iterator[str]:
    copies = [op for op in figures.ops if op.name in _COPY_OPS]
    share = sum(op.device_share if figures.device else op.share for op in copies)
    if share >= _COPIES:
        dearest = max(copies, key=lambda op: op.seconds)
        yield f"Copies of data take {percent(share)} (`{dearest.name}`{_at(dearest)})."
    if figures.copies_to_device >= _COPIES:
        yield (
            f"Copies between host and device take {percent(figures.copies_to_device)} of the device's time:"
            " `pin_memory=True` in the loader and `.to(device, non_blocking=True)` let them run beside the work."
        )


def _idle(figures: Figures) -> Iterator[str]:
    idle = 1.0 - figures.device_busy
    if figures.device and idle >= _IDLE:
        yield f"The {figures.device} device was idle {percent(idle)} of the time: it waits for the host."


def _syncs(figures: Figures) -> Iterator[str]:
    found = [op for op in figures.ops if op.name in _SYNCS]
    if not found:
        return
    calls, share = max(op.calls for op in found), sum(op.share for op in found)
    often = figures.device is not None and calls >= max(1, figures.steps)
    if share >= _SYNC or often:
        at = next((_at(op) for op in found if op.line), "")
        yield (
            f"`.item()` (or `float()`, `if tensor:`) was called {calls:,} times{at} and takes {percent(share)}: each"
            " call waits until the device is done. Keep the value as a tensor, detached, and read it now and then."
        )


def _tiny(figures: Figures) -> Iterator[str]:
    calls, whole = sum(op.calls for op in figures.ops), sum(op.seconds for op in figures.ops)
    if calls < _MANY or whole / calls >= _TINY:
        return
    waits = figures.device_busy < 1.0 - _IDLE if figures.device else figures.between >= _IDLE
    if not waits:
        return
    part = ", part of which is the recording of Python's calls itself" if figures.stacks else ""
    yield (
        f"{calls:,} ops take {seconds(whole / calls)} each, and Python {percent(figures.between)} of the time between"
        f" them{part}: the work is in starting ops, not in computing. Larger batches, fewer and larger ops, or"
        " `torch.compile` would help."
    )


def _precision(figures: Figures) -> Iterator[str]:
    if figures.full_precision >= _WAITS:
        yield (
            f"{percent(figures.full_precision)} of the device's time is in float32 matrix products without tensor"
            " cores: `torch.set_float32_matmul_precision('high')` or `torch.autocast(..., dtype=torch.bfloat16)`."
        )


def _nothing(figures: Figures) -> str:
    op = figures.ops[0]
    return f"Nothing stands out: the dearest op is `{op.name}` with {percent(op.share)}{_at(op)}."


def _at(op: OpCost) -> str:
    return f", mostly at {op.line}" if op.line else ""
