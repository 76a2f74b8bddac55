"""From the numbers of one fetch to a `Reading`: selects, unscales, and confirms what is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seismograd.probes.parameters import Update
from seismograd.probes.watched import Roster
from seismograd.records import SHARED, Reading, TensorStats
from seismograd.stats.tensors import bad_counts, exact_norm, there

Floats = NDArray[np.float64]
Values = Mapping[str, list[float]]

LARGEST = 3.4028235e38
"""What stands for a norm that is finite but too large for fp32, where it cannot be computed again."""


@dataclass(slots=True)
class Draft:
    """What is known of a reading on the host before its numbers arrive."""

    step: int
    roster: Roster
    places: Sequence[int]
    """The parameters, by index, that held a gradient."""
    host: dict[str, float]
    rank: int = 0
    series: int | None = None
    members: set[int] | None = None
    """The parameters that this reading is about; `None`: all."""
    marks: frozenset[str] = frozenset()
    update: Update | None = None
    models: Mapping[str, nn.Module] = field(default_factory=dict)
    scaled: bool = False
    confirm: bool = True
    """The gradients still lie where they were measured, and can be looked at element by element."""
    thorough: bool = True
    """Count every bad element: dear, and told once is enough for a run that stays broken."""


def complete(draft: Draft, values: Values) -> Reading:
    """The reading."""
    scalars: dict[str, float] = {}
    tensors: dict[str, TensorStats] = {}
    marks = draft.marks
    if "loss" in values:
        scalars["loss"] = values["loss"][0]
    if values.get("gradient/norm"):
        places, table = _gradients(draft, values)
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
        if name not in _TABLES:
            scalars.setdefault(name.removeprefix("log:"), numbers[0])
    scalars.update(draft.host)
    if "parameter/norm" in values:
        tensors["parameter"] = _parameters(draft.roster, values)
    if draft.update is not None and "update/norm" in values:
        tensors["update"] = _updates(draft.update, values)
    if draft.thorough and _is_broken(scalars, tensors, marks):
        table_of_bad = bad_parameters(draft.roster, draft.models)
        if table_of_bad is not None:
            tensors["nonfinite_parameter"] = table_of_bad
    if draft.series is not None:
        tail = f"/{draft.series}"
        scalars = {name if name.startswith(SHARED) else name + tail: value for name, value in scalars.items()}
    return Reading(draft.step, scalars, tensors, draft.rank, marks, draft.series)


_TABLES = frozenset(
    [f"gradient/{measure}" for measure in ("norm", "max", "mean", "zeros")]
    + [f"parameter/{measure}" for measure in ("norm", "max", "mean")]
    + [f"update/{measure}" for measure in ("norm", "old", "changed", "gradient")]
)


def _is_broken(scalars: Mapping[str, float], tensors: Mapping[str, TensorStats], marks: frozenset[str]) -> bool:
    """Whether parameters have to be looked at element by element."""
    if "amp-skipped" not in marks and ("nonfinite" in tensors or not math.isfinite(scalars.get("loss", 0.0))):
        return True
    return "parameter" in tensors and not np.isfinite(tensors["parameter"].columns["norm"]).all()


def _gradients(draft: Draft, values: Values) -> tuple[Sequence[int], TensorStats]:
    places: Sequence[int] = draft.places
    columns: dict[str, Floats] = {"norm": np.array(values["gradient/norm"])}
    if "gradient/max" in values:
        columns["max"] = np.array(values["gradient/max"])
        columns["mean"] = np.array(values["gradient/mean"])
    if draft.scaled:
        scale = (values.get("amp/scale") or [draft.host.get("amp/scale", 1.0)])[0] or 1.0
        columns = {measure: column / scale for measure, column in columns.items()}
    if "gradient/zeros" in values:
        columns["zeros"] = np.array(values["gradient/zeros"])
    if draft.members is not None:
        mine = [at for at, place in enumerate(places) if place in draft.members]
        places = [places[at] for at in mine]
        columns = {measure: column[mine] for measure, column in columns.items()}
    names = draft.roster.names
    return places, TensorStats(names if len(places) == len(names) else tuple(names[at] for at in places), columns)


def _confirm(draft: Draft, places: Sequence[int], norms: Sequence[float]) -> tuple[float, TensorStats | None]:
    """Looks at every suspicious gradient element by element: finite ones may overflow a norm.

    Returns the true norm, and a table of what is really not finite.
    """
    suspects = [(place, norm) for place, norm in zip(places, norms, strict=True) if not math.isfinite(norm)]
    exact = [norm for norm in norms if math.isfinite(norm)]
    rows: dict[str, tuple[int, int, int]] = {}
    gone = not draft.confirm
    if (
        gone
        and not any(math.isnan(norm) for _, norm in suspects)
        and bad_parameters(draft.roster, draft.models) is None
    ):
        return LARGEST, None  # infinite gradients would have ruined the weights by now: the norm overflowed
    for place, norm in suspects:
        name = draft.roster.names[place]
        look = not gone and (draft.thorough or not math.isnan(norm))  # finite elements never make a NaN norm
        gradient = draft.roster.parameters[place].grad if look else None
        if gradient is None:  # gone by now, or told before: the norm is all there is
            rows[name] = (int(math.isnan(norm)), int(math.isinf(norm)), 0)
            continue
        nan, inf = bad_counts(gradient)
        if nan or inf:
            rows[name] = (nan, inf, gradient.numel())
        else:
            exact.append(exact_norm(gradient))
    if not rows:
        return math.hypot(*exact), None
    return (math.nan if any(nan for nan, _, _ in rows.values()) else math.inf), _counts(rows)


def bad_parameters(roster: Roster, models: Mapping[str, nn.Module]) -> TensorStats | None:
    """Parameters and buffers that are not finite now, element by element; an infinite buffer (a mask) is meant."""
    rows: dict[str, tuple[int, int, int]] = {}
    buffers = [
        (f"{prefix}.{name}" if prefix else name, buffer)
        for prefix, model in models.items()
        for name, buffer in model.named_buffers()
    ]
    everything: list[tuple[str, Tensor, bool]] = [
        *((name, tensor, True) for name, tensor in zip(roster.names, roster.parameters, strict=True)),
        *((name, tensor, False) for name, tensor in buffers),
    ]
    for name, tensor, infinity_counts in everything:
        nan, inf = bad_counts(tensor) if there(tensor) else (0, 0)
        if nan or (inf and infinity_counts):
            rows[name] = (nan, inf, tensor.numel())
    return _counts(rows) if rows else None


def _counts(rows: Mapping[str, tuple[int, int, int]]) -> TensorStats:
    counts = np.array(list(rows.values()), dtype=np.float64)
    return TensorStats(tuple(rows), {"nan": counts[:, 0], "inf": counts[:, 1], "size": counts[:, 2]})


def _parameters(roster: Roster, values: Values) -> TensorStats:
    norm, mean = np.array(values["parameter/norm"]), np.array(values["parameter/mean"])
    size, fan_in = np.array(roster.sizes, dtype=np.float64), np.array(roster.fan_in, dtype=np.float64)
    with np.errstate(all="ignore"):
        std = np.sqrt(np.maximum(norm * norm / np.maximum(size, 1) - mean * mean, 0.0))
        # Rounding leaves a little of a constant: what is below the precision of fp32 is none.
        std = np.where(std < 1e-6 * np.abs(mean), 0.0, std)
        gain = np.where(fan_in > 0, std * np.sqrt(fan_in), np.nan)
    columns = {"norm": norm, "max": np.array(values["parameter/max"]), "std": std, "gain": gain, "size": size}
    return TensorStats(roster.names, columns)


def _updates(update: Update, values: Values) -> TensorStats:
    norm, old = np.array(values["update/norm"]), np.array(values["update/old"])
    with np.errstate(all="ignore"):
        columns = {
            "norm": norm,
            "ratio": np.where(old > 0, norm / old, np.nan),
            "changed": np.array(values["update/changed"]),
            "gradient": np.array(values["update/gradient"]),
            "decay": np.array(update.decay) * old,
            "lr": np.array(update.rates),
            "precision": np.array([update.roster.precision[at] for at in update.places]),
        }
    return TensorStats(tuple(update.roster.names[at] for at in update.places), columns)
