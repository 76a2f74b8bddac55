"""What is wrong at a step, as those who act on it get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn
from torch.optim import Optimizer

from seismograd.records import Finding, Reading, Severity


class TrainingStopped(KeyboardInterrupt):
    """A policy has ended the training, before the update of the step that it names."""


@dataclass(frozen=True)
class Trouble:
    """What is wrong at a step: what a policy acts on, and what a function of the user's gets."""

    step: int
    finding: str = ""
    """The id that the policy is for."""
    ids: tuple[str, ...] = ()
    """Of all findings of the event, what began it first: a bad input is a bad loss and a bad gradient, too."""
    findings: tuple[Finding, ...] = ()
    suspected: bool = False
    """It may be the beginning of it: whether it is will be known some steps later."""
    loss: float | None = None
    gradient_norm: float | None = None
    optimizer: Optimizer | None = None
    models: Mapping[str, nn.Module] = field(default_factory=dict)
    optimizers: Sequence[Optimizer] = ()

    @property
    def is_finite(self) -> bool:
        return not any(name.startswith("nonfinite-") for name in self.ids)


def chain_of(reading: Reading, seen: Sequence[Finding]) -> dict[str, Severity | None]:
    """The ids of all that is wrong at this reading, what began it first; without severity where that was earlier."""
    severities = {finding.id: finding.severity for finding in seen}
    causes = [finding.evidence.get("because") for finding in seen]
    if seen and "nonfinite" in reading.tensors and any(name.startswith("nonfinite-") for name in severities):
        severities.setdefault("nonfinite-gradient", Severity.CRITICAL)  # a scaler sees to it, so it is no finding
    return {**{name: severities.get(name) for name in causes if name is not None}, **severities}
