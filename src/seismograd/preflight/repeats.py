"""Two evaluations of the same batch agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seismograd.preflight.scene import Scene, finding
from seismograd.preflight.trial import CannotCheckError
from seismograd.records import Finding, Severity
from seismograd.replay.numbers import same
from seismograd.replay.second_runs import CannotReplayError

_DROPS = ("native_dropout", "bernoulli", "_fused_dropout")


class Repeats:
    """Calls the model twice in evaluation mode, with other random numbers.

    Dropout that is at work there was not told of the mode (`F.dropout(x, 0.5)`, `dropout_p=` of an attention):
    `train-mode-evaluation`. Other random numbers may be meant, as in a variational model: information.
    """

    name: ClassVar[str] = "two evaluations agree"
    trains: ClassVar[bool] = False
    watched: ClassVar[bool] = False

    def check(self, scene: Scene) -> Iterable[Finding]:
        call, drops, outputs = scene.the_call(), set[str](), list[Any]()
        try:
            for seed in (1, 2):
                made = scene.runs.evaluated(call, torch.Tensor.detach, around=_seeded(seed, drops))
                outputs.append(made)
        except CannotReplayError as why:
            raise CannotCheckError(str(why)) from None
        differ = [
            path for (path, one), (_, other) in zip(*outputs, strict=False) if not same(one, other) and one.numel()
        ]
        if not differ:
            return []
        if drops:
            message = "Dropout is at work in evaluation mode: two evaluations of the same batch differ."
            advice = [
                "`F.dropout(x, p, training=self.training)`, or `nn.Dropout`; `dropout_p=p if self.training else 0`."
            ]
            evidence = {"outputs": differ[:8], "ops": sorted(drops)}
            return [finding("train-mode-evaluation", Severity.WARNING, message, evidence, advice)]
        message = "Two evaluations of the same batch differ: the model draws random numbers in evaluation mode, too."
        advice = ["If that is not meant, look for `torch.rand` and `randn` in forward."]
        return [finding("train-mode-evaluation", Severity.INFO, message, {"outputs": differ[:8]}, advice)]


class _Notes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, drops: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drops = drops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name).partition("::")[2]
        if name.startswith(_DROPS):
            self._drops.add(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def _seeded(seed: int, drops: set[str]) -> Iterator[None]:
    """Other random numbers; whoever runs this puts all generators back."""
    torch.manual_seed(seed)
    with _Notes(drops):
        yield
