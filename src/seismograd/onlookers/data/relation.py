"""Whether labels have anything to do with inputs, as far as the means of simple features tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_FEATURES = 32
_WAVES = 64
_CLASSES = 64
_ENOUGH = 2048
"""So many samples are counted."""


class _Sums:
    """Of features by class, on the device: single inputs in units of the first batch, and waves of them.

    Half of the waves go through two inputs each, half through all: what single inputs do not show (two spirals, an
    exclusive or) some of them do.
    """

    def __init__(self, features: Tensor, classes: int) -> None:
        count = features.shape[1]
        self.shift = features.mean(0)
        self.scale = features.std(0, correction=0).clamp_min(1e-12)
        chance = torch.Generator().manual_seed(0)  # nobody else's numbers are drawn
        waves = torch.randn(count, _WAVES, generator=chance, dtype=torch.float32, device="cpu") * 1.5
        waves[:, _WAVES // 2 :] /= max(1.0, (count / 2) ** 0.5)
        for at in range(_WAVES // 2):
            others = [place for place in range(count) if place not in (at % count, (at * 7 + 1) % count)]
            waves[others, at] = 0.0
        self.waves = waves.to(features.device)
        phases = torch.rand(_WAVES, generator=chance, dtype=torch.float32, device="cpu") * 6.2832
        self.phases = phases.to(features.device)
        self.counts = features.new_zeros(classes)
        self.sums = features.new_zeros(classes, count + _WAVES)
        self.squares = features.new_zeros(count + _WAVES)

    def fits(self, features: Tensor, classes: int) -> bool:
        return (len(self.counts), self.shift.shape, self.shift.device) == (classes, features.shape[1:], features.device)

    def add(self, features: Tensor, labels: Tensor) -> None:
        features = torch.nan_to_num((features - self.shift) / self.scale).clamp_(-1e4, 1e4)
        features = torch.cat([features, (features @ self.waves + self.phases).cos()], 1)
        known = (labels >= 0) & (labels < len(self.counts))
        places, weights = torch.where(known, labels, 0).long(), known.float()
        features *= weights.unsqueeze(1)
        self.counts.index_add_(0, places, weights)
        self.sums.index_add_(0, places, features)
        self.squares += features.square().sum(0)

    def strength(self) -> Tensor:
        count = self.counts.sum().clamp_min(1.0)
        middle = count * (self.sums.sum(0) / count).square()
        between = (self.sums.square() / self.counts.clamp_min(1.0).unsqueeze(1)).sum(0) - middle
        total = self.squares - middle
        varies = total > 1e-6 * self.squares.clamp_min(1e-12)
        return torch.where(varies, between / total, torch.zeros_like(total)).max()


class Relation:
    """The largest share of a feature's variance that lies between classes: near 0 where labels are drawn at random.

    Samples are counted until they come again: what is seen twice is no evidence.
    """

    def __init__(self) -> None:
        self._samples = 0
        self._sums: _Sums | None = None
        self._waiting: list[tuple[Tensor, Tensor]] = []  # counted together: one pass costs as much as one batch
        self._marks: set[str] = set()
        self._again = False

    @property
    def wants_more(self) -> bool:
        return self._samples < _ENOUGH and not self._again

    def features(self, x: Tensor) -> Tensor:
        """A few features of each of these samples, spread over all of them: a copy."""
        flat = x.detach().reshape(x.shape[0], -1)
        every = max(1, flat.shape[1] // _FEATURES)
        return flat[:, every // 2 :: every][:, :_FEATURES].float().clone()

    def add(self, features: Tensor | None, labels: Tensor, classes: int) -> Tensor | None:
        """Counts samples; gives marks by which some of them can be known again, for `remember`."""
        if features is None or not self.wants_more or classes > _CLASSES or not features.shape[1]:
            return None
        if features.device != labels.device or len(features) != len(labels):
            return None
        if self._sums is None or not self._sums.fits(features, classes):
            self._sums, self._samples, self._waiting = _Sums(features, classes), 0, []
        self._waiting.append((features, labels.clone()))
        self._samples += len(labels)
        return features[:8].sum(1)

    def remember(self, marks: Sequence[float]) -> None:
        """Takes note of marks; where some were met before, the data come again: not all samples are marked."""
        known = {f"{mark:.6g}" for mark in marks}
        self._again |= len(known & self._marks) >= max(2.0, 0.25 * len(known))
        self._marks |= known

    def strength(self, turn: int) -> Tensor | None:
        """At every 16th turn, where there is something to tell: a vector of one."""
        if self._sums is None or turn % 16:
            return None
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._sums.add(torch.cat([some for some, _ in waiting]), torch.cat([some for _, some in waiting]))
        return self._sums.strength().reshape(1)

    def told(self) -> dict[str, Any]:
        return {"samples": self._samples, "classes": 0 if self._sums is None else len(self._sums.counts)}
