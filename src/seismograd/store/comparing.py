"""Where two runs part: the first step, quantity and layer at which they are no longer the same."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from seismograd.amounts import number
from seismograd.records import strict
from seismograd.store.partings import Layers, Parting, Tolerance, Track
from seismograd.store.spans import Span, shared, spans_of

if TYPE_CHECKING:
    from seismograd.store.run import Run

RTOL = 1e-5
"""By default: a hundred roundings of fp32. What two runs differ by for no reason but the order of sums is less."""

_CLOCKS = re.compile(
    r"^(time|memory)/|(^|[/_.\- ])(time|seconds?|secs?|ms|duration|elapsed|eta|speed|throughput|fps|per_second|it/s"
    r"|memory|mem|rss|cpu|gpu|timestamp|date)([/_.\- ]|$)",
    re.IGNORECASE,
)
"""What no two runs have in common, and what says nothing about what is learned."""

_ORDER = ("lr/", "weight_decay/", "loss", "amp/", "grad/", "val_loss")
"""Of what parts at the same step the first of these is told: a cause comes before its effect. Others are the user's."""

_UNTOLD = frozenset(("pid", "cwd", "script"))
"""What is known about a run and is no setting of it."""

_ROUNDING = 1e-4
"""A first difference of no more than this part of the value is one of rounding."""

_WITHIN = 10_000
"""Steps after the parting within which a layer has to part, too, to have to do with it."""

_LATER = (1, 10, 100, 1000, 10_000, 100_000)
"""Steps after the parting at which it is told how far the runs are apart."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other. `verdict` is `bit-equal`, `equal` (within the tolerance), `parted`, or
    `incomparable`: they have no value in common."""

    runs: tuple[str, str]
    verdict: str
    parted: Parting | None
    """The first value that differs by more than the tolerance."""
    layer: Parting | None
    """The first layer that does, at that step or at the first one after it at which both have looked."""
    layers: tuple[int, int]
    """How many layers differ there, and of how many."""
    drifted: Parting | None
    """The first value that differs at all."""
    why: str
    """What that says about the cause, as far as it says something."""
    quantities: Mapping[str, int]
    """At which step each quantity parts; those that do not are not there."""
    growth: tuple[tuple[int, float], ...]
    """The relative difference of what parted first, later on: step by step, ever further apart."""
    settings: Mapping[str, tuple[Any, Any]]
    """What the runs were started with, where it differs: level, command, versions, layers."""
    steps: tuple[int, int]
    compared: int
    """So many pairs of values."""
    spans: tuple[Span, ...]
    """The steps that were compared, and at what resolution."""
    rtol: float
    atol: float
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs by more than the tolerance, as far as both have been read."""
        return self.verdict in ("bit-equal", "equal")

    def to_dict(self) -> dict[str, Any]:
        """Everything, as strict JSON has it, with the sentence."""
        told = {part.name: getattr(self, part.name) for part in fields(self)}
        for name in ("parted", "layer", "drifted"):
            told[name] = None if told[name] is None else told[name].to_dict()
        told["spans"] = [span.to_dict() for span in self.spans]
        told["growth"] = [{"step": step, "relative": relative} for step, relative in self.growth]
        told["same"], told["sentence"] = self.same, str(self)
        result: dict[str, Any] = strict(told)
        return result

    def __str__(self) -> str:
        return sentence(self)


def compare(one: Run, other: Run, *, rtol: float = RTOL, atol: float = 0.0) -> Comparison:
    """Compares two stored runs at the steps that both have. NaN is equal to NaN; time and memory do not count."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name} {value!r} is no tolerance: give a number from 0 on, such as 1e-5")
    tolerance = Tolerance(rtol, atol)
    tracks = _tracks(one, other, tolerance)
    parted = _first(track.parted for track in tracks)
    drifted = _first(track.drifted for track in tracks)
    layers = Layers(one, other, tolerance)
    layers.search([(0, sys.maxsize if parted is None else parted.step + _WITHIN)])
    if parted is not None and not _lies_in(parted.step, shared(one.whole, other.whole)):
        layers.search_thinned(parted.rank)
    if layers.parted is not None and _is_first(layers.parted, parted):
        parted = layers.parted
    if layers.drifted is not None and _is_first(layers.drifted, drifted):
        drifted = layers.drifted
    compared = sum(map(len, tracks)) + layers.compared
    verdict = "parted" if parted else "equal" if drifted else "bit-equal" if compared else "incomparable"
    spans = _spans(tracks)
    return Comparison(
        runs=(one.id, other.id),
        verdict=verdict,
        parted=parted,
        layer=layers.parted,
        layers=layers.layers,
        drifted=drifted,
        why="" if parted is None else _why(parted, drifted, layers, tracks),
        quantities=_quantities(tracks),
        growth=() if parted is None else _growth(parted, tracks),
        settings=_settings(one, other, layers),
        steps=(one.steps, other.steps),
        compared=compared,
        spans=spans,
        rtol=rtol,
        atol=atol,
        notes=tuple(_notes(one, other, spans, compared)),
    )


def _tracks(one: Run, other: Run, tolerance: Tolerance) -> list[Track]:
    """The scalars that both have, causes first."""
    tracks = []
    for rank in sorted(set(one.ranks) & set(other.ranks)):
        theirs = set(other.names(rank))
        names = [name for name in one.names(rank) if name in theirs and not _CLOCKS.search(name)]
        if names:
            ours, others = one.series(names, rank=rank), other.series(names, rank=rank)
            both = [name for name in names if name in ours and name in others]
            tracks += [Track(name, rank, ours[name], others[name], tolerance) for name in both]
    return sorted((track for track in tracks if len(track)), key=lambda track: (_place(track.name), track.name))


def _place(name: str) -> int:
    return next((at for at, start in enumerate(_ORDER) if name.startswith(start)), len(_ORDER))


def _first(partings: Iterable[Parting | None]) -> Parting | None:
    """The earliest; what the user logs counts only where nothing else differs, for it may be anything."""
    found = [parting for parting in partings if parting is not None]
    return min(found, key=lambda parting: (_place(parting.quantity) == len(_ORDER), parting.step), default=None)


def _is_first(layer: Parting, scalar: Parting | None) -> bool:
    """Whether the layer parts before the scalar does, or what parts is only the user's."""
    return scalar is None or layer.step < scalar.step or _place(scalar.quantity) == len(_ORDER)


def _lies_in(step: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(start <= step <= stop for start, stop in spans)


def _quantities(tracks: Sequence[Track]) -> dict[str, int]:
    found: dict[str, int] = {}
    for parting in sorted((track.parted for track in tracks if track.parted), key=lambda parting: parting.step):
        found.setdefault(parting.quantity, parting.step)
    return found


def _growth(parted: Parting, tracks: Sequence[Track]) -> tuple[tuple[int, float], ...]:
    """How far apart the runs are later; where a layer or a setting parted, by their loss."""
    own = None if _is_setting(parted) else (parted.quantity, parted.rank)
    track = next((track for track in tracks if (track.name, track.rank) == own), None)
    track = track or next((track for track in tracks if track.name.startswith("loss")), None)
    if track is None:
        return ()
    told: dict[int, float] = {}
    for later in (0, *_LATER):
        if (found := track.apart(parted.step + later)) is not None:
            told.setdefault(*found)
    if (end := track.apart(int(track.steps[-1]))) is not None and end[0] >= parted.step:
        told.setdefault(*end)
    return tuple(sorted(told.items()))


def _is_setting(parting: Parting) -> bool:
    return parting.quantity.startswith(("lr/", "weight_decay/"))


def _why(parted: Parting, drifted: Parting | None, layers: Layers, tracks: Sequence[Track]) -> str:
    """What the first difference says about the cause; nothing where it says nothing."""
    if drifted is not None and drifted.step < parted.step and drifted.relative <= _ROUNDING:
        return (
            f"They differ by rounding from step {drifted.step:,} on ({drifted.quantity}, {drifted.relative:.1e} of its"
            " value), and it grew: another order of sums, device, number of threads or version does that."
        )
    start = min((int(track.steps[0]) for track in tracks), default=0)
    if _is_setting(parted):
        what = "learning rate" if parted.quantity.startswith("lr/") else "weight decay"
        return f"It is a setting: the {what} is another one from there on."
    layer = layers.parted
    if layer is not None and layer.quantity.startswith("parameter/") and layer.step <= parted.step:
        if layer.step <= start:
            return "The weights differ from the start: another seed, checkpoint or way to initialise them."
        return "The weights that went into it differ: they were changed in another way before."
    if layers.same_weights is not None and layers.same_weights >= parted.step:
        return "The weights are still the same there: the batch, its order or random numbers (dropout) differ."
    if parted.step <= start:
        return "They differ from the first step on: other initial weights or another first batch."
    if parted.since == parted.step - 1 and (drifted is None or drifted.step >= parted.step):
        return (
            "Everything before it is the same bit for bit, and so are the weights that went in: the batch, its order or"
            " random numbers (dropout) differ from there on."
        )
    return ""


def _settings(one: Run, other: Run, layers: Layers) -> dict[str, tuple[Any, Any]]:
    """What the runs were started with, where it differs."""
    mine: dict[str, Any] = {"level": str(one.level), "ranks": len(one.ranks), **one.about}
    theirs: dict[str, Any] = {"level": str(other.level), "ranks": len(other.ranks), **other.about}
    names = [name for name in dict.fromkeys((*mine, *theirs)) if name not in _UNTOLD]
    differ = {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}
    if any(layers.only):
        differ["layers of only one"] = layers.only
    return differ


def _spans(tracks: Sequence[Track]) -> tuple[Span, ...]:
    """Of the first scalar that both have: the loss, as a rule."""
    longest = max(tracks, key=lambda track: (track.name.startswith("loss"), len(track)), default=None)
    return () if longest is None else spans_of(longest.first, longest.steps)


def _notes(one: Run, other: Run, spans: Sequence[Span], compared: int) -> Iterable[str]:
    if one.id == other.id:
        yield "it is the same run"
    if not compared:
        yield "there is no step at which both have read the same quantity"
    for run in (one, other):
        if run.live:
            yield f"{run.id} goes on: it is compared as far as it is recorded"
        if run.state.get("lost"):
            yield f"not everything of {run.id} was recorded: {run.state['lost']}"
    if one.steps != other.steps:
        yield f"one has {one.steps:,} steps, the other {other.steps:,}: what only one has is not compared"
    ranks = sorted(set(one.ranks) ^ set(other.ranks))
    if ranks:
        yield f"only one of them has rank {', '.join(map(str, ranks))}"
    for span in spans:
        if not span.whole:
            yield f"{span} was compared: what lies between is not known of both"


def sentence(found: Comparison) -> str:
    """The comparison in words."""
    if found.verdict == "incomparable":
        return "The runs cannot be compared: there is no step at which both have read the same quantity."
    extent = f"{found.compared:,} values up to step {max((span.stop for span in found.spans), default=0):,}"
    if found.parted is None:
        if found.drifted is None:
            return f"The runs are bit-equal: {extent} are the same."
        drifted = found.drifted
        return (
            f"The runs are equal within {found.rtol:g}: {extent} were compared; they first differ at step"
            f" {drifted.step:,}, {_named(drifted)} by {drifted.relative:.1e} of its value."
        )
    parted = found.parted
    when = f"at step {parted.step:,}"
    if parted.since is not None and parted.step - parted.since > 1:
        when = f"between steps {parted.since:,} and {parted.step:,}"
    words = [f"The runs part {when}: {_named(parted)} is {_pair(parted)}."]
    layer = found.layer
    if layer is not None and layer is not parted:
        at = "" if layer.step == parted.step else f" at step {layer.step:,}"
        words.append(
            f"The first layer to part is {layer.layer}{at}: its {layer.quantity} is {_pair(layer)}"
            f" ({found.layers[0]} of {found.layers[1]} layers differ)."
        )
    if found.why:
        words.append(found.why)
    return " ".join(words)


def _named(parting: Parting) -> str:
    name = parting.quantity if parting.layer is None else f"{parting.quantity} of {parting.layer}"
    return f"{name} (rank {parting.rank})" if parting.rank else name


def _pair(parting: Parting) -> str:
    """Both values, with as many digits as tell them apart, and how far they are from each other."""
    one, other = parting.values
    digits = next((digits for digits in range(4, 17) if f"{one:.{digits}g}" != f"{other:.{digits}g}"), 17)
    told = " against ".join(f"{value:.{digits}g}" if math.isfinite(value) else number(value) for value in (one, other))
    far = parting.relative
    if not math.isfinite(far):
        return told
    return f"{told}, {far:.1%} apart" if far >= 0.001 else f"{told}, {far:.1e} apart"
