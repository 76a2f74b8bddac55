"""A bad step, run a second time under full tracing, to say where it went bad.

The package can be called: `seismograd.replay(path, model)` has no room for a function of the same name beside it.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from seismograd.records import Origin


class _Replay(ModuleType):
    def __call__(self, path: str | os.PathLike[str], model: nn.Module) -> Origin:
        """Runs a captured step again with `model`: see `seismograd.replay.again.replay`."""
        from seismograd.replay.again import replay

        return replay(path, model)


sys.modules[__name__].__class__ = _Replay
