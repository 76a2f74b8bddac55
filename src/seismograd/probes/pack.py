"""Values on the device, gathered so that one copy fetches them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Values = dict[str, list[float]]


class Pack:
    """What one reading holds before it has been fetched: 0-d tensors by name, and what is already on the host."""

    __slots__ = ("_alike", "_slots", "_tensors", "host")

    def __init__(self) -> None:
        self._slots: list[tuple[str, int]] = []
        self._tensors: list[Tensor] = []
        self._alike = True
        self.host: dict[str, float] = {}

    def add(self, name: str, values: Sequence[Tensor], *, alike: bool = False) -> None:
        """Adds 0-d tensors under one name. `alike`: all of them are fp32 and on the one device of this pack."""
        self._slots.append((name, len(values)))
        if not alike and self._alike and self._tensors:
            device = self._tensors[0].device
            self._alike = all(value.dtype == torch.float32 and value.device == device for value in values)
        elif not alike:
            self._alike = False
        self._tensors += values

    def send(self) -> Fetch:
        """Gathers everything into one vector, on the device."""
        return Fetch(self._slots, self._gather())

    def _gather(self) -> Tensor | None:
        tensors = self._tensors
        if not tensors:
            return None
        if self._alike:
            return torch.stack(tensors)
        # Integers and narrow floats widen; several devices meet on the first, without waiting.
        device = tensors[0].device
        wide = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
        if wide == torch.float64 and any(tensor.device.type == "mps" for tensor in tensors):
            device = torch.device("cpu")
        return torch.stack([tensor.to(device=device, dtype=wide, non_blocking=True) for tensor in tensors])


class Fetch:
    """A pack on its way to the host; `values()` is the reading's one sync."""

    __slots__ = ("_event", "_slots", "_vector")

    def __init__(self, slots: list[tuple[str, int]], vector: Tensor | None) -> None:
        self._slots = slots
        self._vector = vector
        self._event: torch.Event | None = None

    @property
    def is_here(self) -> bool:
        """Whether the values can be had without a wait for any device."""
        return self._vector is None or (self._vector.device.type == "cpu" and self._event is None)

    def start(self) -> None:
        """Copies without waiting, into pinned memory, so that `values()` one step later does not wait either."""
        vector = self._vector
        if vector is None or vector.device.type == "cpu":
            return
        try:
            host = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
            event = torch.Event(vector.device)
            host.copy_(vector, non_blocking=True)
            event.record()
        except (RuntimeError, NotImplementedError):  # a device without pinned memory or events: fetch when asked
            return
        self._vector, self._event = host, event

    def values(self) -> Values:
        if self._vector is None:
            return {name: [] for name, _ in self._slots}
        if self._event is not None:
            self._event.synchronize()
        flat: list[float] = self._vector.tolist()  # the step's only device sync
        result: Values = {}
        start = 0
        for name, count in self._slots:
            end = start + count
            result[name] = flat[start:end]
            start = end
        return result
