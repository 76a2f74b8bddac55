"""What `watch(recovery=...)` takes: which policy for which finding, how often it may act, and what comes after it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from seismograd.protocols import Detector
from seismograd.records import Severity


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What is done about a finding. `limit` actions in the last `within` steps, and the next policy takes over."""

    name: ClassVar[str] = ""
    on_the_spot: ClassVar[bool] = False
    """Whether it has to act before the update: a reading that comes a step late (`lag=1`) is too late for it."""
    prevents: ClassVar[bool] = False
    """Whether it keeps a bad batch from the weights, and so acts on a suspicion, too, and not on what is past."""
    limit: int | None = None
    within: int = 100

    def __post_init__(self) -> None:
        for part in fields(self):
            check = _CHECKS.get(part.name)
            value = getattr(self, part.name)
            if check is not None and not check[0](value):
                raise ValueError(f"{type(self).__name__}({part.name}={value!r}): give {check[1]}")

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after it."""
        return self.limit is None


@dataclass(frozen=True, kw_only=True)
class Continue(Policy):
    """Nothing is done: the training goes on, and the record says that it was let go on."""

    name: ClassVar[str] = "continue"


@dataclass(frozen=True, kw_only=True)
class Skip(Policy):
    """The optimizer's update does not take place, and what the batch did to buffers (batch norm) is undone.

    The gradients stay where they are until the loop clears them. `in_a_row`: so many, and it has not helped.
    """

    name: ClassVar[str] = "skip"
    on_the_spot: ClassVar[bool] = True
    prevents: ClassVar[bool] = True
    limit: int | None = 50
    in_a_row: int = 10


@dataclass(frozen=True, kw_only=True)
class Clip(Policy):
    """The gradient is scaled down to `norm`; twice the run's usual one where none is given.

    One that is not finite cannot be clipped: its update is skipped.
    """

    name: ClassVar[str] = "clip"
    on_the_spot: ClassVar[bool] = True
    prevents: ClassVar[bool] = True
    limit: int | None = 50
    norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class LowerLr(Policy):
    """The learning rates are multiplied by `factor`, for good: schedulers go on from there.

    It then waits `rest` steps to see whether that helped. An update that is not finite is skipped, too.
    """

    name: ClassVar[str] = "lower-lr"
    limit: int | None = 4
    within: int = 10_000
    factor: float = 0.3
    rest: int = 25


@dataclass(frozen=True, kw_only=True)
class Rollback(Policy):
    """Weights, buffers, optimizers, schedulers, scaler and random numbers go back to a good state; the data go on.

    Where nothing bad has reached the weights yet (a bad batch, after a step at which all was well), the good state is
    the one before this very step: the update is left out, and no progress is lost.

    - `every`: so many steps lie between the states that are kept, and `keep` of them are.
    - `folder`: where they are kept; in memory (the host's) without it.
    - `settle`: a state is good if so many steps went well after it.
    - `factor`: from the second rollback on, learning rates are multiplied by it: the same way leads to the same end.
    - `rest`: so many steps it waits before it acts on what is still far from normal, and finite.
    """

    name: ClassVar[str] = "rollback"
    prevents: ClassVar[bool] = True
    limit: int | None = 10
    within: int = 1000
    every: int = 50
    keep: int = 3
    folder: str | os.PathLike[str] | None = None
    settle: int = 5
    factor: float = 0.3
    rest: int = 25


@dataclass(frozen=True, kw_only=True)
class Stop(Policy):
    """The training ends before the update: `TrainingStopped` comes out of `optimizer.step()`.

    It is a `KeyboardInterrupt`, so that whoever saves on Ctrl-C saves now.
    """

    name: ClassVar[str] = "stop"


@dataclass(frozen=True, kw_only=True)
class Call(Policy):
    """A function of the user's is asked: it gets the `Trouble`, and may return a policy, or its name."""

    name: ClassVar[str] = "call"
    function: Callable[..., Any]
    limit: int | None = 1000
    within: int = 10_000


_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "limit": (lambda v: v is None or (_is_count(v) and v > 0), "a number of actions from 1 on, or None"),
    **dict.fromkeys(
        ("within", "in_a_row", "every", "keep"), (lambda v: _is_count(v) and v > 0, "a whole number from 1 on")
    ),
    **dict.fromkeys(("rest", "settle"), (lambda v: _is_count(v) and v >= 0, "a number of steps from 0 on")),
    "factor": (lambda v: _is_number(v) and 0 < v < 1, "a number between 0 and 1"),
    "norm": (lambda v: v is None or (_is_number(v) and v > 0), "a number above 0, or None for twice the usual norm"),
}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


NAMED: Mapping[str, Policy] = {
    policy.name: policy for policy in (Continue(), Skip(), Clip(), LowerLr(), Rollback(), Stop())
}

STRENGTH = ("continue", "call", "clip", "lower-lr", "skip", "rollback", "stop")
"""The policies' names, from the one that does least to the one that does most."""

_OF_UPDATES = frozenset({"clip", "lower-lr", "skip", "rollback"})
"""Those that change an update, or undo some."""

CLASSES = ("numerics", "learning", "loop", "data", "resources", "ranks")
"""The classes of findings, as the folders of the detectors are called."""


@dataclass(frozen=True)
class Ladder:
    """The policies for one key of `recovery`: the first acts until it has not helped, then the next one does."""

    key: str
    policies: tuple[Policy, ...]

    @property
    def changes_updates(self) -> bool:
        """Whether what it does first changes an update, or undoes some."""
        return self.policies[0].name in _OF_UPDATES

    @staticmethod
    def of(key: str, given: Any) -> Ladder:
        several = isinstance(given, Sequence) and not isinstance(given, str)
        policies = [policy_of(one) for one in given] if several else [policy_of(given)]
        if not policies:
            raise ValueError(f"recovery[{key!r}] is an empty list: give a policy, or leave the key out")
        if policies[-1].name == "clip":
            policies.append(Skip())
        if not policies[-1].is_last:
            policies.append(Stop())
        return Ladder(key, tuple(policies))


def policy_of(given: Any) -> Policy:
    """A policy, by its name, as an object, or a function that decides."""
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        try:
            return NAMED[given.replace("_", "-")]
        except KeyError:
            close = difflib.get_close_matches(given, NAMED, 1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"no policy is called {given!r}{hint} There are {', '.join(NAMED)}") from None
    if isinstance(given, type) and issubclass(given, Policy):
        raise TypeError(f"the class {given.__name__} is no policy: write {given.__name__}()")
    if callable(given):
        return Call(function=given)
    raise TypeError(f"{given!r} is no policy: give one of {', '.join(NAMED)}, an object of theirs, or a function")


def told(policy: Policy) -> list[Any]:
    """A policy as plain values, which another rank can make it of again."""
    values = {part.name: getattr(policy, part.name) for part in fields(policy)}
    return [policy.name, {name: os.fspath(v) if isinstance(v, os.PathLike) else v for name, v in values.items()}]


def made_of(values: Sequence[Any]) -> Policy:
    """A policy that another rank told of."""
    name, settings = values
    return type(NAMED[name])(**settings)


class Plan:
    """Which ladder is for which finding. An id goes before a pattern, that before a class, that before a severity.

    What is only worth knowing (`info`) is no fault: patterns and classes leave it alone. Of what is short (`resources`:
    time, memory) a severity leaves alone what no other update would mend: it may stop the training, or ask.
    """

    def __init__(self, given: Any, detectors: Iterable[Detector], ignored: Iterable[str] = ()) -> None:
        if not isinstance(given, Mapping):
            given = {"critical": given}
        self._classes = {one.id: _class_of(one) for one in detectors}
        known, gone = sorted(self._classes), set(ignored)
        self.ladders = [Ladder.of(_checked(key, known, gone), policies) for key, policies in given.items()]
        order = {"id": 0, "pattern": 1, "class": 2, "severity": 3}
        self._by_rank = sorted(self.ladders, key=lambda ladder: order[_kind(ladder.key)])

    @property
    def policies(self) -> list[Policy]:
        return [policy for ladder in self.ladders for policy in ladder.policies]

    def ladder_for(self, finding: str, severity: Severity | None) -> Ladder | None:
        """`severity`: `None` where it is only suspected."""
        for ladder in self._by_rank:
            key, kind = ladder.key, _kind(ladder.key)
            if severity is Severity.INFO and kind in ("pattern", "class"):
                continue
            if kind in ("id", "pattern") and fnmatchcase(finding, key):
                return ladder
            if kind == "class" and self._classes.get(finding) == key:
                return ladder
            if kind == "severity" and self._classes.get(finding) == "resources" and ladder.changes_updates:
                continue
            if kind == "severity" and severity is not None and severity.weight >= Severity(key).weight:
                return ladder
        return None


def _kind(key: str) -> str:
    if key in CLASSES:
        return "class"
    if key in [one.value for one in Severity]:
        return "severity"
    return "pattern" if any(mark in key for mark in "*?[") else "id"


def _checked(key: Any, known: Sequence[str], ignored: set[str]) -> str:
    if not isinstance(key, str):
        raise TypeError(f"recovery has {key!r} as a key: it takes ids of findings, patterns, classes or severities")
    kind = _kind(key)
    if kind == "id" and key in ignored:
        raise ValueError(f"recovery[{key!r}] cannot act: this finding is ignored in this run")
    if (kind == "id" and key not in known) or (kind == "pattern" and not any(fnmatchcase(one, key) for one in known)):
        close = difflib.get_close_matches(key, known, 1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"recovery[{key!r}] names no finding of this run{hint} (`seismograd explain` lists them; patterns like"
            f" 'nonfinite-*', the classes {', '.join(CLASSES)} and the severities 'warning' and 'critical' work too)"
        )
    return key


def _class_of(detector: Detector) -> str | None:
    folders = [part for part in type(detector).__module__.split(".") if part in CLASSES]
    return folders[0] if folders else None
