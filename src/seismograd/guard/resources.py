"""`monitor_resources`: what the machine has left, and a warning for what is nearly used up."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from typing import Any

import psutil
import torch

from seismograd.memory import accelerator
from seismograd.memory.snapshots import limit, percent, rss, used

_MB = 1 << 20
_LEAST = 0.1
"""Seconds over which the use of the processors is measured at least."""


class _Processors:
    """How busy the processors were since the last call, or over a tenth of a second if that is too short.

    This process, which sleeps meanwhile, is then judged by all of its time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[float, float, float, float] | None = None

    def read(self) -> tuple[float, float]:
        """Percent of all processors, and of one by this process."""
        with self._lock:
            before = self._last
            waits = before is None or time.perf_counter() - before[0] < _LEAST
            if before is None or waits:
                before = self._now()
                time.sleep(_LEAST)
            now = self._last = self._now()
        elapsed, busy, whole, own = (after - earlier for after, earlier in zip(now, before, strict=True))
        if waits:
            elapsed, own = time.time() - psutil.Process().create_time(), now[3]
        machine = 100.0 * busy / whole if whole > 0 else 0.0
        return round(min(100.0, max(0.0, machine)), 1), round(max(0.0, 100.0 * own / max(elapsed, 1e-3)), 1)

    def _now(self) -> tuple[float, float, float, float]:
        times = psutil.cpu_times()
        spent = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # counted twice
        idle = times.idle + getattr(times, "iowait", 0.0)
        return time.perf_counter(), spent - idle, spent, time.process_time()


_processors = _Processors()


def monitor_resources(
    *,
    cpu_limit_percent: float = 90.0,
    memory_limit_percent: float = 90.0,
    gpu_limit_mb: float | None = None,
    gpu_limit_percent: float = 90.0,
    disk_limit_percent: float = 95.0,
    path: str | os.PathLike[str] = ".",
) -> dict[str, Any]:
    """What is in use, as strict JSON, with a sentence in `warnings` for each limit that is crossed; logged as well.

    | key | |
    |---|---|
    | `cpu_percent` | of all processors, since the last call or over a tenth of a second |
    | `process_cpu_percent` | of one processor, by this process; at the first call over its whole life |
    | `memory_percent` | of what this process may use: its container's limit, or the machine's memory |
    | `memory_used_mb`, `memory_limit_mb`, `rss_mb` | the same in numbers, and this process's own part |
    | `gpu_memory_mb`, `gpu_memory_percent` | torch's tensors, and what is taken of the fullest device; `None` without |
    | `disk_percent`, `disk_free_mb` | of the disk that `path` is on |
    """
    machine, process = _processors.read()
    gpu, gpu_share = _gpu()
    usage: dict[str, Any] = {
        "cpu_percent": machine,
        "process_cpu_percent": process,
        "memory_percent": percent(),
        "memory_used_mb": round(used() / _MB, 1),
        "memory_limit_mb": round(limit() / _MB, 1),
        "rss_mb": round(rss() / _MB, 1),
        "gpu_memory_mb": gpu,
        "gpu_memory_percent": gpu_share,
        **_disk(path),
    }
    told = []
    if usage["cpu_percent"] > cpu_limit_percent:
        told.append(
            f"High CPU usage: {usage['cpu_percent']:.0f} % of all processors (the limit is {cpu_limit_percent:g} %)"
        )
    if usage["memory_percent"] > memory_limit_percent:
        told.append(
            f"High memory usage: {usage['memory_percent']:.0f} % of {usage['memory_limit_mb']:,.0f} MB (the limit is"
            f" {memory_limit_percent:g} %); this process holds {usage['rss_mb']:,.0f} MB"
        )
    if gpu is not None and gpu_limit_mb is not None and gpu > gpu_limit_mb:
        told.append(f"High GPU memory usage: {gpu:,.0f} MB of tensors (the limit is {gpu_limit_mb:,g} MB)")
    elif gpu_share is not None and gpu_share > gpu_limit_percent:
        told.append(f"High GPU memory usage: {gpu_share:.0f} % of a device (the limit is {gpu_limit_percent:g} %)")
    if usage["disk_percent"] is not None and usage["disk_percent"] > disk_limit_percent:
        told.append(
            f"The disk of {os.fspath(path)!r} is nearly full: {usage['disk_free_mb']:,.0f} MB are left"
            f" ({usage['disk_percent']:.0f} % used, the limit is {disk_limit_percent:g} %)"
        )
    for text in told:
        logging.getLogger("seismograd").warning("%s", text)
    usage["warnings"] = told
    return usage


def _gpu() -> tuple[float | None, float | None]:
    """Megabytes of tensors, and percent of the fullest device that is taken, by whomever."""
    if not accelerator.is_there():
        return None, None
    tensors = round(accelerator.allocated() / _MB, 1)
    cuda: Any = torch.cuda
    if not cuda.is_available() or not cuda.is_initialized():
        return tensors, None
    shares = []
    for device in range(cuda.device_count()):
        if cuda.memory_reserved(device):  # asking another would take memory there
            free, total = cuda.mem_get_info(device)
            shares.append(round(100.0 * (1.0 - free / total), 1))
    return tensors, max(shares, default=None)


def _disk(path: str | os.PathLike[str]) -> dict[str, float | None]:
    try:
        disk = shutil.disk_usage(path)
    except OSError:
        return {"disk_percent": None, "disk_free_mb": None}
    return {"disk_percent": round(100.0 * (1.0 - disk.free / disk.total), 1), "disk_free_mb": round(disk.free / _MB, 1)}
