"""What a profile's figures mean, in sentences. Standard library only."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seismograd.places import written
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
    device: str | None = None
    device_busy: float = 0.0
    copies_to_device: float = 0.0
    full_precision: float = 0.0
    """Share of the device's time in float32 matrix products that tensor cores could do."""
    workers: bool = False
    """Whether the loader has some."""


Weighed = Iterator[tuple[float, str]]
"""Sentences, each with the share of the time that it is about."""


def sentences(figures: Figures) -> list[str]:
    """The verdict, the weightiest part first."""
    if not figures.ops:
        return ["No op of torch ran on this thread while it was recorded."]
    parts = (_idle, _data, _dearest, _line, _copies, _syncs, _optimizer, _tiny, _precision)
    told = [weighed for part in parts for weighed in part(figures)]
    told.sort(key=lambda weighed: -weighed[0])
    return [text for _, text in told] or [_nothing(figures)]


def _dearest(figures: Figures) -> Weighed:
    whose = f"the {figures.device} device's time" if figures.device else "the time"
    alike: dict[tuple[str, str], list[ModuleCost]] = defaultdict(list)
    for module in figures.modules:
        pattern = re.sub(r"\d+", "*", module.name)
        alike[pattern if any(map(str.isalpha, pattern)) else module.name, module.kind].append(module)
    share, pattern, group = max(
        ((sum(each.share for each in group), pattern, group) for (pattern, _), group in alike.items()),
        key=lambda found: found[0],
        default=(0.0, "", []),
    )
    if share >= _STANDS_OUT:
        first = max(group, key=lambda each: each.share)
        op = f", most of it `{first.op}`" if first.op else ""
        what = f"`{first.name}`" if first.name.startswith(first.kind) else f"`{first.name}` ({first.kind})"
        if len(group) > 1:
            what = f"the {len(group)} modules `{pattern}` ({first.kind})"
        yield share, f"{percent(share)} of {whose} is in {what}, forward and backward{op}."
        return
    dearest = max(figures.ops, key=lambda each: each.device_share if figures.device else each.share)
    share = dearest.device_share if figures.device else dearest.share
    if share >= _STANDS_OUT:
        yield (
            share,
            f"{percent(share)} of {whose} is in `{dearest.name}`, called {dearest.calls:,} times{_at(dearest)}.",
        )


def _line(figures: Figures) -> Weighed:
    line = max(figures.lines, key=lambda each: each.share, default=None)
    if line is None or line.share < _STEPS:
        return
    if all(abs(line.share - figures.phases.get(phase, 0.0)) > 0.05 for phase in ("data", "optimizer")):  # told already
        yield (
            line.share / 2,
            f"The dearest line is {written(line.file, line.line)} with {percent(line.share)}: `{line.code}`.",
        )


def _data(figures: Figures) -> Weighed:
    share = figures.phases.get("data", 0.0)
    if share < _WAITS:
        return
    advice = (
        "more workers, a larger `prefetch_factor`, or `persistent_workers=True` if it is their start"
        if figures.workers
        else "give it `num_workers`, or cheapen what the dataset does for each sample"
    )
    yield share, f"The loop waits {percent(share)} of the time for its DataLoader: {advice}."


def _optimizer(figures: Figures) -> Weighed:
    share = figures.phases.get("optimizer", 0.0)
    if share >= _STEPS:
        yield share, f"The optimizer takes {percent(share)} of the time: try `fused=True` (or `foreach=True`) in it."


def _copies(figures: Figures) -> Weighed:
    copies = [op for op in figures.ops if op.name in _COPY_OPS]
    share = sum(op.device_share if figures.device else op.share for op in copies)
    if share >= _COPIES:
        dearest = max(copies, key=lambda op: op.seconds)
        yield share, f"Copies of data take {percent(share)} (`{dearest.name}`{_at(dearest)})."
    if figures.copies_to_device >= _COPIES:
        yield (
            figures.copies_to_device,
            f"Copies between host and device take {percent(figures.copies_to_device)} of the device's time:"
            " `pin_memory=True` in the loader and `.to(device, non_blocking=True)` let them run beside the work.",
        )


def _idle(figures: Figures) -> Weighed:
    idle = 1.0 - figures.device_busy
    if figures.device and idle >= _IDLE:
        yield idle, f"The {figures.device} device was idle {percent(idle)} of the time: it waits for the host."


def _syncs(figures: Figures) -> Weighed:
    found = [op for op in figures.ops if op.name in _SYNCS]
    if not found:
        return
    calls, share = max(op.calls for op in found), sum(op.share for op in found)
    often = figures.device is not None and calls >= max(1, figures.steps)
    if share >= _SYNC or often:
        at = next((_at(op) for op in found if op.line), "")
        yield (
            share,
            f"`.item()` (or `float()`, `if tensor:`) was called {calls:,} times{at} and takes {percent(share)}: each"
            " call waits until the device is done. Keep the value as a tensor, detached, and read it now and then.",
        )


def _tiny(figures: Figures) -> Weighed:
    calls, whole = sum(op.calls for op in figures.ops), sum(op.seconds for op in figures.ops)
    if calls < _MANY or whole / calls >= _TINY:
        return
    waits = figures.device_busy < 1.0 - _IDLE if figures.device else figures.between >= _IDLE
    if waits:
        yield (
            figures.between,
            f"{calls:,} ops take {seconds(whole / calls)} each, and Python {percent(figures.between)} of the time"
            " between them: the work is in starting ops, not in computing. Larger batches, fewer and larger ops, or"
            " `torch.compile` would help.",
        )


def _precision(figures: Figures) -> Weighed:
    if figures.full_precision >= _WAITS:
        yield (
            figures.full_precision,
            f"{percent(figures.full_precision)} of the device's time is in float32 matrix products without tensor"
            " cores: `torch.set_float32_matmul_precision('high')` or `torch.autocast(..., dtype=torch.bfloat16)`.",
        )


def _nothing(figures: Figures) -> str:
    op = figures.ops[0]
    return f"Nothing stands out: the dearest op is `{op.name}` with {percent(op.share)}{_at(op)}."


def _at(op: OpCost) -> str:
    return f", mostly at {op.line}" if op.line else ""
