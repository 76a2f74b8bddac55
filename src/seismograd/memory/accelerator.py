"""What the allocator of the accelerator holds for this process, over all its devices. No call waits for a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def allocated() -> int:
    """The bytes of live tensors; 0 without an accelerator, and before its first use."""
    return _total("memory_allocated", "current_allocated_memory")


def reserved() -> int:
    """The bytes that the allocator took from the device."""
    return _total("memory_reserved", "driver_allocated_memory")


def peak() -> int:
    """The most bytes of live tensors so far, each device at its own highest."""
    return _total("max_memory_allocated", None)


def room() -> tuple[int, int] | None:
    """The bytes of memory of all CUDA devices, and how many of them this process can still have; `None` without any."""
    if not torch.cuda.is_available():
        return None
    try:
        found = [torch.cuda.mem_get_info(device) for device in range(torch.cuda.device_count())]
    except RuntimeError:
        return None
    return sum(whole for _, whole in found), sum(free for free, _ in found) + max(0, reserved() - allocated())


def is_there() -> bool:
    """Whether there is an accelerator that says what it holds."""
    if torch.cuda.is_available():
        return True
    accelerator = _other()
    return (accelerator is not None and hasattr(accelerator, "memory_allocated")) or torch.backends.mps.is_available()


def _other() -> Any:
    """`torch.accelerator` (since torch 2.6), where there is one."""
    accelerator: Any = getattr(torch, "accelerator", None)
    return accelerator if accelerator is not None and accelerator.is_available() else None


def _total(name: str, on_mps: str | None) -> int:
    try:
        if torch.cuda.is_available():
            return _over_devices(getattr(torch.cuda, name), torch.cuda.device_count())
        if torch.backends.mps.is_available():
            return int(getattr(torch.mps, on_mps)()) if on_mps is not None else 0
        accelerator = _other()
        ask = getattr(accelerator, name, None)
        return 0 if ask is None else _over_devices(ask, accelerator.device_count())
    except (RuntimeError, NotImplementedError, AttributeError):  # a device that does not say
        return 0


def _over_devices(ask: Callable[[int], int], count: int) -> int:
    return sum(int(ask(device)) for device in range(count))
