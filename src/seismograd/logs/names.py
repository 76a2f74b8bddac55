"""What the columns of a log are called, and which of them a detector asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from seismograd.logs.log import Log, LogError, listed
from seismograd.sinks.relay import PREFIX

_TRAINING = frozenset(("train", "training", "tr", "trn"))
_VALIDATION = frozenset(("val", "va", "vl", "valid", "validation", "eval", "evaluation", "dev", "holdout"))
_TEST = frozenset(("test", "testing"))
_PER = frozenset(("epoch", "step", "batch", "iter", "iteration", "avg", "average", "mean", "total", "running", "vs"))
"""Words that say of which steps a value is, not what it is."""
_FINE = frozenset(("step", "batch", "iter", "iteration"))
_NO_RATE = frozenset(("momentum", "decay", "scale", "loss", "weight", "find", "finder", "mult", "multiplier"))
_RESERVED = ("loss", "val_loss", "grad/", "lr/", "time/", "memory/", "amp/", "weight_decay/", "gradient/", "parameter/")


@dataclass(slots=True)
class Columns:
    """The columns of a log by the names that readings have for them."""

    names: dict[str, str] = field(default_factory=dict)
    """Of the log to those of readings: `train/grad_norm` to `grad/norm`."""
    left_out: list[str] = field(default_factory=list)
    """Other losses that could have been meant."""

    def theirs(self, ours: str) -> str | None:
        return next((theirs for theirs, name in self.names.items() if name == ours), None)


def words_of(name: str) -> list[str]:
    """`Loss/trainStep` has the words loss, train, step."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [word for word in re.split(r"[^a-z0-9]+", split.lower()) if word]


def _is_loss_of(name: str, whose: frozenset[str], needed: bool) -> bool:
    words = words_of(name)
    rest = [word for word in words if word not in _PER]
    others = [word for word in rest if word not in ("loss", "losses")]
    return len(others) < len(rest) and all(word in whose for word in others) and (bool(others) or not needed)


def is_loss(name: str) -> bool:
    """Whether a column so called is the training loss, as a rule."""
    return _is_loss_of(name, _TRAINING, False)


def side_word(value: object) -> str | None:
    """`train`, `val` or `test`, if a text is nothing but a word for one of them."""
    word = value.strip().lower() if isinstance(value, str) else ""
    sides = {"train": _TRAINING, "val": _VALIDATION, "test": _TEST}
    return next((side for side, words in sides.items() if word in words), None)


def is_validation_loss(name: str) -> bool:
    return _is_loss_of(name, _VALIDATION, True)


def has_own_rows(name: str) -> bool:
    """Whether it is logged beside the steps of training: any value of validation or test, the mean of an epoch."""
    return any(word in _VALIDATION or word in _TEST or word == "epoch" for word in words_of(name))


def _is_norm(name: str) -> bool:
    words = [word for word in words_of(name) if not word.isdigit()]
    rest = set(words) - _PER - _TRAINING - {"global", "l2", "model", "unclipped"}
    return rest in ({"grad", "norm"}, {"gradient", "norm"}, {"gradients", "norm"}, {"gradnorm"})


def _is_rate(name: str) -> bool:
    words = words_of(name)
    if set(words) & _NO_RATE:
        return False
    return "lr" in words or any(pair == ("learning", "rate") for pair in pairwise(words))


def columns_of(
    log: Log,
    loss: str | None = None,
    val_loss: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Columns:
    """Finds the columns that detectors ask for: as they are named, else by what they are usually called.

    A `LogError` lists what there is where no loss is found, or more than one.
    """
    counts = log.counts()
    asked = {ours: theirs for ours, theirs in {"loss": loss, "val_loss": val_loss, **(names or {})}.items() if theirs}
    for ours, theirs in asked.items():
        if theirs not in counts:
            raise LogError(f"{ours}={theirs!r} is no column of {log.source!r}: it has {listed(counts) or 'none'}")
    if log.ours:
        return Columns({**{name: name for name in counts}, **{theirs: ours for ours, theirs in asked.items()}})
    if "loss" not in asked and f"{PREFIX}loss" in counts:  # a sink of ours wrote there, beside what the script logs
        return Columns(
            {**{name: _by_a_sink(name) for name in counts}, **{theirs: ours for ours, theirs in asked.items()}}
        )
    taken = set(asked.values())
    columns = Columns({theirs: ours for ours, theirs in asked.items()})
    if "loss" not in asked:
        columns.names[_loss(log, counts, taken)] = "loss"
    if "val_loss" not in asked:
        found = _validation(log, {name: count for name, count in counts.items() if name not in columns.names})
        if found is not None:
            columns.names[found] = "val_loss"
    if "grad/norm" not in asked:
        norms = [name for name in counts if _is_norm(name) and name not in columns.names]
        if norms:
            columns.names[max(norms, key=counts.__getitem__)] = "grad/norm"
    rates = [name for name in counts if _is_rate(name) and name not in columns.names]
    used = {name for name in columns.names.values() if name.startswith("lr/")}
    for name in rates:
        number = next(at for at in range(len(counts) + len(used) + 1) if f"lr/{at}" not in used)
        columns.names[name] = f"lr/{number}"
        used.add(f"lr/{number}")
    for name in counts:
        if name not in columns.names:
            columns.names[name] = f"log/{name}" if _is_reserved(name) else name
    known = columns.theirs("loss")
    columns.left_out = [name for name in counts if is_loss(name) and name != known]
    return columns


def _by_a_sink(name: str) -> str:
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX)
    return f"log/{name}" if _is_reserved(name) else name


def _is_reserved(name: str) -> bool:
    return any(name == taken or (taken[-1] == "/" and name.startswith(taken)) for taken in _RESERVED)


def _loss(log: Log, counts: Mapping[str, int], taken: set[str]) -> str:
    """The one training loss."""
    found = {name: count for name, count in counts.items() if is_loss(name) and name not in taken}
    best = _narrowed(log, found)
    if len(best) == 1:
        return best[0]
    if best:
        raise LogError(
            f"{log.source!r} has more than one training loss: {listed({name: found[name] for name in best})}. "
            f"Say which: loss={best[0]!r}"
        )
    near = {name: count for name, count in counts.items() if "loss" in name.lower()} or dict(counts)
    raise LogError(
        f"{log.source!r} has no column that looks like the training loss (loss, train_loss, train/loss, ...). "
        f"Say which it is with loss=; there {'is' if len(near) == 1 else 'are'} {listed(near)}"
    )


def _validation(log: Log, counts: Mapping[str, int]) -> str | None:
    """The validation loss; a test loss if there is none. Of several the one with most values."""
    for is_it in (is_validation_loss, lambda name: _is_loss_of(name, _TEST, True)):
        found = _narrowed(log, {name: count for name, count in counts.items() if is_it(name)})
        if found:
            if len(found) > 1:
                log.notes.append(f"of several validation losses {found[0]!r} is judged, not {listed(found[1:])}")
            return found[0]
    return None


def _narrowed(log: Log, found: Mapping[str, int]) -> list[str]:
    """Those that may be meant: not a single value beside a curve, not a mean of epochs beside the steps."""
    if len(found) < 2:
        return list(found)
    most = max(found.values())
    left = [name for name, count in found.items() if count > 1 or most == 1]
    fine = [name for name in left if set(words_of(name)) & _FINE]
    coarse = [name for name in left if "epoch" in words_of(name)]
    if fine:
        left = fine
    elif len(coarse) < len(left):
        left = [name for name in left if name not in coarse]
    curves = {repr(list(log.series(name))) for name in left}  # NaN is not equal to NaN, but reads the same
    return left[:1] if len(curves) == 1 else left
