"""What learning-rate schedulers are set to, and how often they step."""

from __future__ import annotations

import weakref
from typing import Any

from seismograd import places

_SETTINGS = ("step_size", "gamma", "T_max", "total_steps", "total_iters", "patience", "factor")
_FELL = 1e-3


class Schedule:
    """One scheduler, as it was heard of."""

    def __init__(self, scheduler: Any, optimizer: int) -> None:
        self.reference: weakref.ref[Any] = weakref.ref(scheduler)
        self.kind = type(scheduler).__name__
        self.optimizer = optimizer
        self.settings = _settings(scheduler)
        spot = places.maker_of(scheduler)
        self.made = (
            None if spot is None else {"file": spot.file, "line": spot.line, "code": (spot.source or "").strip()}
        )
        """The line that made it."""
        self.count = 0
        """Its steps so far, those before the watch included."""
        self.each_step = 0
        """How often in a row it came once for each step of its optimizer."""
        self.ahead = 0
        """Its steps before the first backward for its optimizer."""
        base = [float(lr) for lr in getattr(scheduler, "base_lrs", ()) if isinstance(lr, (int, float))]
        self.peak, self.lr = max(base, default=0.0), 0.0
        self.fell = 0
        """At which of its steps the rate was first seen below a thousandth of its peak."""
        self._steps = 0

    def stepped(self, scheduler: Any, steps: int, *, idle: bool) -> None:
        """It stepped, after so many steps of its optimizer; `idle`: no gradient waits for one."""
        if idle and not steps and not getattr(scheduler.optimizer, "_opt_called", False):
            self.ahead += 1
        self.each_step = self.each_step + 1 if steps - self._steps == 1 else 0
        self._steps = steps
        self._read(scheduler)

    def missed(self) -> None:
        """Steps were missed."""
        self.each_step = 0

    def _read(self, scheduler: Any) -> None:
        count = getattr(scheduler, "last_epoch", None)
        self.count = count if isinstance(count, int) else self.count + 1
        rates = [group["lr"] for group in scheduler.optimizer.param_groups]
        if all(isinstance(lr, (int, float)) for lr in rates):
            self.lr = max(map(float, rates), default=0.0)
            self.peak = max(self.peak, self.lr)
            if not self.fell and self.lr < _FELL * self.peak:
                self.fell = self.count

    def tell(self) -> dict[str, Any]:
        scheduler = self.reference()
        if scheduler is not None and isinstance(getattr(scheduler, "last_epoch", None), int):
            self._read(scheduler)
        return {
            "optimizer": self.optimizer,
            "kind": self.kind,
            "count": self.count,
            "each_step": self.each_step,
            "ahead": self.ahead,
            "lr": self.lr,
            "peak": self.peak,
            "fell": self.fell,
            "settings": self.settings,
            "made": self.made,
        }


def _settings(scheduler: Any) -> dict[str, float]:
    found = {name: getattr(scheduler, name, None) for name in _SETTINGS}
    settings = {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}
    milestones = getattr(scheduler, "milestones", None)
    if milestones:
        settings["last_milestone"] = float(max(milestones))
    return settings
