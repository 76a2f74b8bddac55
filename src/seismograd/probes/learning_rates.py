"""Every param group's learning rate, and its weight decay where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from torch.optim import Optimizer

from seismograd.probes.pack import Pack

MOST_GROUPS = 64
"""One group for each parameter is a habit of some: so many are read."""


class LearningRates:
    """Reads the param groups of one optimizer (or of all), numbered through all optimizers."""

    name: ClassVar[str] = "learning rates"

    def read(self, pack: Pack, optimizers: Sequence[Optimizer], owner: int | None) -> None:
        number = 0
        for index, optimizer in enumerate(optimizers):
            if owner is not None and owner != index:
                number += len(optimizer.param_groups)
                continue
            for group in optimizer.param_groups[:MOST_GROUPS]:
                lr = group.get("lr")
                if isinstance(lr, Tensor):  # capturable optimizers keep it on the device
                    pack.add(f"lr/{number}", [lr.detach().reshape(())])
                elif lr is not None:
                    pack.host[f"lr/{number}"] = float(lr)
                decay = group.get("weight_decay")
                if decay and not isinstance(decay, Tensor):
                    pack.host[f"weight_decay/{number}"] = float(decay)
                number += 1

    def close(self) -> None: ...
