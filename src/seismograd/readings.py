"""From the numbers of one fetch to a `Reading`: selects, unscales, and confirms what is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seismograd.probes.gradients import Gradients
from seismograd.probes.pack import Pack
from seismograd.probes.watched import Watched
from seismograd.records import SHARED, Reading, TensorStats
from seismograd.stats.tensors import bad_counts, exact_norm, there

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Draft:
    """What is known of a reading on the host before its numbers arrive."""

    step: int
    watched: Watched
    places: Sequence[int]
    """The parameters, by index, that held a gradient."""
    host: dict[str, float]
    rank: int = 0
    series: int | None = None
    marks: frozenset[str] = frozenset()
    update_places: Sequence[int] = ()
    update_decay: Sequence[float] = ()
    scaled: bool = False
    confirm: bool = True
    """The gradients still lie where they were measured, and can be looked at element by element."""
    thorough: bool = True
    """Count every bad element: dear, and told once is enough for a run that stays broken."""
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.watched.names  # the list may be refreshed before the numbers arrive


def complete(draft: Draft, values: Mapping[str, list[float]], *, own_only: bool = False) -> Reading:
    """The reading. `own_only` leaves out what an earlier reading of the same gradients has said already."""
    scalars: dict[str, float] = {}
    tensors: dict[str, TensorStats] = {}
    marks = draft.marks
    if not own_only and "loss" in values:
        scalars["loss"] = values["loss"][0]
    found = values.get("gradient/norm")
    if found:
        places, table = _gradients(draft, values, _scale(draft, values))
        norms = table.columns["norm"]
        norm = math.sqrt(float(norms @ norms))
        if not math.isfinite(norm):
            norm, bad = _confirm(draft, places, norms.tolist())
            if bad is not None:
                tensors["nonfinite"] = bad
                if draft.scaled:
                    marks = marks | {"amp-skipped"}
        if len(places):
            scalars["grad/norm"] = norm
            tensors["gradient"] = table
    for name, numbers in values.items():
        if name not in _TABLES and name not in scalars and (not own_only or name.startswith("lr/")):
            scalars[name] = numbers[0]
    scalars.update(draft.host)
    if not own_only:
        if "parameter/norm" in values:
            _add_parameters(draft, values, tensors)
        if "update/norm" in values:
            _add_updates(draft, values, tensors)
        _look_closer(draft, scalars, tensors, marks)
    if draft.series is not None:
        tail = f"/{draft.series}"
        scalars = {name if name.startswith(SHARED) else name + tail: value for name, value in scalars.items()}
    return Reading(draft.step, scalars, tensors, draft.rank, marks, draft.series)


_TABLES = frozenset(
    f"{kind}/{measure}"
    for kind in ("gradient", "parameter", "update")
    for measure in ("norm", "max", "mean", "zeros", "old", "changed", "gradient")
)


def _look_closer(
    draft: Draft, scalars: Mapping[str, float], tensors: dict[str, TensorStats], marks: frozenset[str]
) -> None:
    """When loss, gradient or parameters are not finite: which parameters and buffers are bad, element by element."""
    if not draft.thorough:
        return
    broken = "nonfinite" in tensors or not math.isfinite(scalars.get("loss", 0.0))
    if not broken or "amp-skipped" in marks:
        parameters = tensors.get("parameter")
        if parameters is None or np.isfinite(parameters.columns["norm"]).all():
            return
    bad = _bad_parameters(draft)
    if bad is not None:
        tensors["nonfinite_parameter"] = bad


def _scale(draft: Draft, values: Mapping[str, list[float]]) -> float:
    if not draft.scaled:
        return 1.0
    found = values.get("amp/scale") or [draft.host.get("amp/scale", 1.0)]
    return found[0] or 1.0


def _gradients(draft: Draft, values: Mapping[str, list[float]], scale: float) -> tuple[Sequence[int], TensorStats]:
    """The gradients of this reading's optimizer, and of parameters that no optimizer holds with the first one's."""
    places: Sequence[int] = draft.places
    columns: dict[str, Floats] = {"norm": np.array(values["gradient/norm"])}
    if "gradient/max" in values:
        columns["max"] = np.array(values["gradient/max"])
        columns["mean"] = np.array(values["gradient/mean"])
    if scale != 1.0:
        columns = {measure: column / scale for measure, column in columns.items()}
    if "gradient/zeros" in values:
        columns["zeros"] = np.array(values["gradient/zeros"])
    if draft.series is not None:
        owners = draft.watched.owners
        mine = [
            at
            for at, place in enumerate(places)
            if owners[place] == draft.series or (owners[place] < 0 and draft.series == 0)
        ]
        places = [places[at] for at in mine]
        columns = {measure: column[mine] for measure, column in columns.items()}
    return places, TensorStats(_names(draft, places), columns)


def _names(draft: Draft, places: Sequence[int]) -> tuple[str, ...]:
    names = draft.names
    return names if len(places) == len(names) else tuple(names[at] for at in places)


def _confirm(draft: Draft, places: Sequence[int], norms: Sequence[float]) -> tuple[float, TensorStats | None]:
    """Looks at every suspicious gradient element by element: finite ones may overflow a norm.

    Returns the true norm, and a table of what is really not finite.
    """
    names: list[str] = []
    rows: list[tuple[int, int, int]] = []
    exact: list[float] = []
    for place, norm in zip(places, norms, strict=True):
        if math.isfinite(norm):
            exact.append(norm)
            continue
        look = draft.confirm and (draft.thorough or not math.isnan(norm))  # finite elements never make a NaN norm
        gradient = draft.watched.parameters[place].grad if look else None
        if gradient is None:  # gone by now, or told before: the norm is all there is
            names.append(draft.names[place])
            rows.append((int(math.isnan(norm)), int(math.isinf(norm)), 0))
            continue
        nan, inf = bad_counts(gradient)
        if nan or inf:
            names.append(draft.names[place])
            rows.append((nan, inf, gradient.numel()))
        else:
            exact.append(exact_norm(gradient))
    if not names:
        return math.hypot(*exact), None
    norm = math.nan if any(nan for nan, _, _ in rows) else math.inf
    counts = np.array(rows, dtype=np.float64)
    return norm, TensorStats(tuple(names), {"nan": counts[:, 0], "inf": counts[:, 1], "size": counts[:, 2]})


def _bad_parameters(draft: Draft) -> TensorStats | None:
    """Parameters and buffers that are not finite now: looked at only when something is wrong."""
    names: list[str] = []
    rows: list[tuple[int, int, int]] = []
    watched = draft.watched
    everything = list(zip(watched.names, watched.parameters, strict=True))
    for prefix, model in watched.models.items():
        everything += [(f"{prefix}.{name}" if prefix else name, buffer) for name, buffer in model.named_buffers()]
    for name, tensor in everything:
        nan, inf = bad_counts(tensor) if there(tensor) else (0, 0)
        if nan or (inf and not _meant(name, tensor)):
            names.append(name)
            rows.append((nan, inf, tensor.numel()))
    if not names:
        return None
    counts = np.array(rows, dtype=np.float64)
    return TensorStats(tuple(names), {"nan": counts[:, 0], "inf": counts[:, 1], "size": counts[:, 2]})


def _meant(name: str, tensor: object) -> bool:
    """An infinite buffer (an attention mask) was put there on purpose; an infinite parameter was not."""
    return not getattr(tensor, "requires_grad", False)


def _add_parameters(draft: Draft, values: Mapping[str, list[float]], tensors: dict[str, TensorStats]) -> None:
    found = values["parameter/norm"]
    if len(found) != len(draft.watched.parameters):  # refreshed since
        return
    norm, mean = np.array(found), np.array(values["parameter/mean"])
    size = np.array(draft.watched.sizes, dtype=np.float64)
    fan_in = np.array(draft.watched.fan_in, dtype=np.float64)
    with np.errstate(all="ignore"):
        std = np.sqrt(np.maximum(norm * norm / np.maximum(size, 1) - mean * mean, 0.0))
        # Rounding leaves a little of a constant: what is below the precision of fp32 is none.
        std = np.where(std < 1e-6 * np.abs(mean), 0.0, std)
        gain = np.where(fan_in > 0, std * np.sqrt(fan_in), np.nan)
    tensors["parameter"] = TensorStats(
        draft.names, {"norm": norm, "max": np.array(values["parameter/max"]), "std": std, "gain": gain, "size": size}
    )


def _add_updates(draft: Draft, values: Mapping[str, list[float]], tensors: dict[str, TensorStats]) -> None:
    found = values["update/norm"]
    if len(found) != len(draft.update_places):
        return
    norm, old = np.array(found), np.array(values["update/old"])
    with np.errstate(all="ignore"):
        columns = {
            "norm": norm,
            "ratio": np.where(old > 0, norm / old, np.nan),
            "changed": np.array(values["update/changed"]),
            "gradient": np.array(values["update/gradient"]),
            "decay": np.array(draft.update_decay) * old,
        }
    tensors["update"] = TensorStats(tuple(draft.names[at] for at in draft.update_places), columns)


class ByHand:
    """Reads a model's gradients when it is told to, without any hook."""

    def __init__(self, model: nn.Module, rank: int = 0) -> None:
        self._watched = Watched({"": model}, ())
        self._gradients = Gradients(self._watched)
        self._rank = rank

    def read(self, loss: Tensor | float, step: int, *, more: bool = False) -> Reading:
        """The reading of this step; `more` adds the statistics that take further passes."""
        if self._watched.replaced():
            self._watched.refresh()
        with torch.no_grad():
            pack = Pack()
            self._gradients.read(pack)
            if more:
                self._gradients.read_more(pack)
            pack.add("loss", [torch.as_tensor(loss).detach().reshape(())])
            draft = Draft(
                step, self._watched, self._gradients.places, pack.host, self._rank, marks=frozenset({"by-hand"})
            )
            return complete(draft, pack.send().values())
