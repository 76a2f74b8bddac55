"""Values on the device, gathered so that one copy fetches them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Values = dict[str, list[float]]


class Pack:
    """What one reading holds before it has been fetched: 0-d tensors by name, and what is already on the host."""

    __slots__ = ("_slots", "_tensors", "host")

    def __init__(self) -> None:
        self._slots: list[tuple[str, int]] = []
        self._tensors: list[Tensor] = []
        self.host: dict[str, float] = {}

    def add(self, name: str, values: Sequence[Tensor]) -> None:
        """Adds 0-d tensors under one name."""
        self._slots.append((name, len(values)))
        self._tensors.extend(values)

    def send(self) -> Fetch:
        """Starts the copy to the host."""
        return Fetch(self._slots, self._tensors)


class Fetch:
    """A pack on its way to the host; `values()` is the reading's one sync."""

    __slots__ = ("_event", "_slots", "_vector")

    def __init__(self, slots: list[tuple[str, int]], tensors: list[Tensor]) -> None:
        self._slots = slots
        self._event: torch.Event | None = None
        self._vector = _gather(tensors)

    def start(self) -> None:
        """Copies without waiting, into pinned memory, so that `values()` one step later does not wait either."""
        vector = self._vector
        if vector is None or vector.device.type == "cpu":
            return
        host = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
        self._vector = host.copy_(vector, non_blocking=True)
        self._event = torch.Event(vector.device)
        self._event.record()

    def values(self) -> Values:
        if self._vector is None:
            return {name: [] for name, _ in self._slots}
        if self._event is not None:
            self._event.synchronize()
        flat: list[float] = self._vector.tolist()  # the step's only device sync
        result: Values = {}
        start = 0
        for name, count in self._slots:
            result[name] = flat[start : start + count]
            start += count
        return result


def _gather(tensors: list[Tensor]) -> Tensor | None:
    if not tensors:
        return None
    first = tensors[0]
    dtype, device = first.dtype, first.device
    if all(tensor.dtype == dtype and tensor.device == device for tensor in tensors) and dtype.is_floating_point:
        return torch.stack(tensors)
    # Integers and narrow floats widen; several devices meet on the first, without waiting.
    wide = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
    if wide == torch.float64 and any(tensor.device.type == "mps" for tensor in tensors):
        device = torch.device("cpu")
    return torch.stack([tensor.to(device=device, dtype=wide, non_blocking=True) for tensor in tensors])
