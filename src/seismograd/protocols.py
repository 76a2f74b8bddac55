"""Every extension point on one screen: what a detector, a sink and a probe have to offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

from seismograd.records import Finding, Reading


class Checker(Protocol):
    """One detector at work on one run: holds running statistics, O(1) for each reading."""

    def check(self, reading: Reading) -> Finding | None:
        """The fault as of this reading, each time it is seen; the judge merges repeats.

        A repeat whose evidence has a higher `revision` is told anew: more is known about the same fault.
        A checker may also have `suspects`: whether the fault may be beginning, for who has to act before it is sure.
        """
        ...


@runtime_checkable
class Detector(Protocol):
    """A frozen description of one fault: its fields are its limits, its docstring is its page."""

    id: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Scalars (`loss`), kinds of tensor statistics (`update`) and facts (`facts/loop`) without which it is not called.

    `"loss|facts/data"`: one of them is enough. Facts come in readings of their own, after the step's."""
    follows: ClassVar[tuple[str, ...]]
    """Ids of findings that explain this one when they are there."""

    def start(self) -> Checker:
        """A checker for one run (one series of one rank)."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Takes what was read and found, and writes it somewhere."""

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        """A new finding."""
        ...

    def update_finding(self, finding: Finding) -> None:
        """A finding written before (same `key`) with a new `count`, `last_step`, place or cause."""
        ...

    # and, if it wants to hear what a recovery does: def write_event(self, event: Mapping[str, Any]) -> None

    def close(self, report: dict[str, Any]) -> None:
        """The run is over; `report` is its report."""
        ...


class Probe(Protocol):
    """Reads one kind of value, on the device where it lies, and never judges."""

    name: ClassVar[str]

    @property
    def read(self) -> Callable[..., Any]:
        """A method that adds what is to be known at this moment to a pack, its first argument, without waiting."""
        ...

    def close(self) -> None:
        """Lets go of everything it holds."""
        ...
