"""What the gradients and parameters of a model hold now, checked by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from seismograd.detectors.wording import names, number, parameter
from seismograd.onlookers.graph import op_of
from seismograd.records import Finding, Severity, Where, rank
from seismograd.stats.describe import TensorInfo, describe
from seismograd.stats.tensors import gradient_norm


class GradientReport(float):
    """The norm of all gradients: a number that carries its evidence, under the names of the seeds.

    `report["gradient_norm"]`, `report["gradient_anomalies"]` (sentences), `report["parameter_stats"]` (`TensorInfo` by
    parameter).
    """

    _evidence: Mapping[str, Any]

    def __new__(
        cls, norm: float, anomalies: Iterable[str] = (), stats: Mapping[str, TensorInfo] | None = None
    ) -> GradientReport:
        report = super().__new__(cls, norm)
        report._evidence = {
            "gradient_norm": float(norm),
            "gradient_anomalies": list(anomalies),
            "parameter_stats": dict(stats or {}),
        }
        return report

    def __getitem__(self, key: str) -> Any:
        try:
            return self._evidence[key]
        except KeyError:
            raise KeyError(f"{key!r}: a gradient report has {', '.join(self._evidence)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._evidence)

    def keys(self) -> Iterable[str]:
        return self._evidence.keys()

    def get(self, key: str, default: Any = None) -> Any:
        return self._evidence.get(key, default)

    def plain(self) -> dict[str, Any]:
        """The norm and the anomalies."""
        return {name: self[name] for name in ("gradient_norm", "gradient_anomalies")}

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (float(self), self["gradient_anomalies"], self["parameter_stats"])

    def __repr__(self) -> str:
        return f"GradientReport(norm={number(self)}, anomalies={self['gradient_anomalies']!r})"


def describe_gradients(model: nn.Module) -> dict[str, TensorInfo]:
    """The gradients that the model holds, by parameter; parameters without one are left out."""
    return {name: describe(p.grad, name) for name, p in model.named_parameters() if p.grad is not None}


def describe_parameters(model: nn.Module) -> dict[str, TensorInfo]:
    """The parameters of the model; lazy ones have no values yet."""
    return {name: describe(p, name) for name, p in model.named_parameters()}


def norm_of(tensors: Iterable[Tensor]) -> float:
    """The norm of the gradients that these tensors hold; of what cannot be read there is none."""
    return gradient_norm(tensor for tensor in tensors if tensor.grad is not None and not tensor.grad.is_meta)


def sentences(infos: Mapping[str, TensorInfo]) -> list[str]:
    """What is not finite, a sentence for each tensor."""
    return [f"{name}: {_bad(info)}" for name, info in infos.items() if not info.is_finite]


def _bad(info: TensorInfo) -> str:
    counts = [f"{count} {word}" for count, word in ((info.num_nans, "NaN"), (info.num_infs, "Inf")) if count]
    return f"{' and '.join(counts)} among {info.numel} values"


_OF_KIND = {
    "input": ("nonfinite-input", "Look at the data it comes from: a division by zero, a log of zero, a missing value."),
    "activation": ("nonfinite-activation", "`debugger.debug_forward_pass(model, inputs)` names the first such layer."),
    "loss": ("nonfinite-loss", "`seismograd run train.py` runs the bad step again and names the op that made it."),
    "gradient": (
        "nonfinite-gradient",
        "`with debugger.anomaly_detection():` names the op whose backward made it; `seismograd run train.py` names "
        "the line.",
    ),
    "parameter": ("nonfinite-parameter", "Load the last sound checkpoint, and look for the first bad gradient."),
}
KINDS = tuple(_OF_KIND)
"""What a tensor may be, as far as its finding is concerned."""


def nonfinite(infos: Mapping[str, TensorInfo], kind: str, step: int) -> Finding | None:
    """The finding about those of these tensors that hold NaN or Inf."""
    if kind not in _OF_KIND:
        raise ValueError(f"kind {kind!r} is unknown: use one of {', '.join(map(repr, KINDS))}")
    bad = {name: info for name, info in infos.items() if not info.is_finite}
    if not bad:
        return None
    finding, advice = _OF_KIND[kind]
    first, info = next(iter(bad.items()))
    more = f", and so are {len(bad) - 1} more" if len(bad) > 1 else ""
    place = parameter(first) if kind in ("gradient", "parameter") else Where(module=first or None)
    return Finding(
        finding,
        Severity.CRITICAL,
        step,
        f"The {kind} `{first}` is not finite: {_bad(info)}{more}.",
        rank(),
        place,
        {
            "tensors": {
                name: {"nan": each.num_nans, "inf": each.num_infs, "size": each.numel} for name, each in bad.items()
            }
        },
        (advice,),
    )


def above(norm: float, threshold: float, step: int) -> Finding | None:
    """The finding about a norm above the limit that the user gave."""
    if not norm > threshold:
        return None
    return Finding(
        "gradient-explosion",
        Severity.WARNING,
        step,
        f"The gradient norm {number(norm)} is above the threshold {number(threshold)}.",
        rank(),
        evidence={"gradient_norm": norm, "threshold": threshold},
        recommendations=(
            f"If it should not be: `torch.nn.utils.clip_grad_norm_(model.parameters(), {number(threshold)})` before "
            "the step, or a lower learning rate.",
        ),
    )


def beyond(infos: Mapping[str, TensorInfo], threshold: float, *, vanishing: bool) -> dict[str, float]:
    """The norms that are below the threshold, or else above it; what is not finite is above any."""
    norms: dict[str, float] = {}
    for name, info in infos.items():
        norm = info.norm if info.is_finite else math.inf
        if norm is not None and (norm < threshold if vanishing else norm > threshold):
            norms[name] = norm
    return norms


def out_of_bounds(norms: Mapping[str, float], threshold: float, step: int, *, vanishing: bool) -> Finding | None:
    """The finding about parameters whose gradients are beyond a limit that the user gave."""
    if not norms:
        return None
    what, side = ("gradient-vanishing", "below") if vanishing else ("gradient-explosion", "above")
    many = list(norms)
    return Finding(
        what,
        Severity.WARNING,
        step,
        f"The gradient norm of {names(many)} is {side} the threshold {number(threshold)}.",
        rank(),
        parameter(many[0], "backward"),
        {"threshold": threshold, "norms": dict(norms)},
        (
            "If it should not be: look at the initialisation and the activations of these layers, add normalisation or "
            "skip connections."
            if vanishing
            else "If it should not be: clip the gradient norm, lower the learning rate, look at the inputs' scale.",
        ),
    )


_BAD_BACKWARD = re.compile(r"Function '(\w+)' returned nan values")


def bad_backward(error: RuntimeError, step: int) -> Finding | None:
    """The finding about an error that autograd's anomaly mode has raised; `None` for others."""
    function = _BAD_BACKWARD.search(str(error))
    if function is None:
        return None
    return Finding(
        "nonfinite-gradient",
        Severity.CRITICAL,
        step,
        str(error),
        rank(),
        Where(op=op_of(function[1]), phase="backward"),
        {"function": function[1]},
        ("Torch has printed the line of the forward pass that it belongs to, with the warning above.",),
    )
