"""Every param group's learning rate, and its weight decay where there is one."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from seismograd.probes.pack import Pack
from seismograd.probes.watched import Watched


class LearningRates:
    """Reads the param groups of one optimizer (or of all), numbered through all optimizers."""

    name: ClassVar[str] = "learning rates"

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.owner: int | None = None
        """The optimizer whose groups are read; `None` reads all."""

    def read(self, pack: Pack) -> None:
        number = 0
        for index, optimizer in enumerate(self._watched.optimizers):
            for group in optimizer.param_groups:
                if self.owner is None or self.owner == index:
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
