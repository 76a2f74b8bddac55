"""Checks before the run, each in a file of its own.

The package can be called: `seismograd.preflight(model, batch, loss_fn)` has no room for a function of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from seismograd.preflight.result import Preflight


class _Preflight(ModuleType):
    def __call__(
        self,
        model: nn.Module,
        batch: Any,
        loss_fn: Callable[..., Any] | None = None,
        optimizer: Optimizer | None = None,
        loader: Any = None,
    ) -> Preflight:
        """Checks a model, a batch and a loss before they are trained: see `seismograd.preflight.flight.preflight`."""
        from seismograd.preflight.flight import preflight

        return preflight(model, batch, loss_fn, optimizer, loader)


sys.modules[__name__].__class__ = _Preflight
