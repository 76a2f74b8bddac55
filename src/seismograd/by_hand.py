"""Readings that are asked for, without any hook: `monitor_training_step` outside a watch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seismograd.probes.gradients import Gradients
from seismograd.probes.pack import Pack
from seismograd.probes.watched import Watched
from seismograd.readings import Draft, complete
from seismograd.records import Reading


class ByHand:
    """Reads a model's gradients when it is told to."""

    def __init__(self, model: nn.Module, rank: int = 0) -> None:
        self._watched = Watched({"": model}, ())
        self._gradients = Gradients()
        self._rank = rank

    def read(self, loss: Tensor | float, step: int, *, more: bool = False) -> Reading:
        """The reading of this step; `more` adds the statistics that take further passes."""
        if self._watched.has_new():
            self._watched.refresh()
        roster, pack = self._watched.roster, Pack()
        with torch.no_grad():
            places = self._gradients.read(pack, roster)
            if more:
                self._gradients.read_more(pack, roster)
            pack.add("loss", [scalar(loss)])
            marks = frozenset({"by-hand"})
            draft = Draft(step, roster, places, pack.host, self._rank, marks=marks, models=self._watched.models)
            return complete(draft, pack.send().values())


def scalar(loss: Tensor | float) -> Tensor:
    """A loss that the user gave, as a 0-d tensor without its graph."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise ValueError(f"the loss has {loss.numel()} elements: give a single number, its mean say")
        return loss.detach().reshape(())
    return torch.tensor(float(loss), dtype=torch.float32, device="cpu")
