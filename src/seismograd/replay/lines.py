"""Has autograd's nodes note where they were made, through anomaly mode without its check."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.traceback

from seismograd.places import Spot, chain

MOST_NODES = 300
"""A longer graph is no loop's: something was called that is not seen as a module."""

_TOO_LONG = 3
"""After so many steps in a row whose graph outside of modules is too long, lines are noted no more."""


class Line(list[str]):
    """What a node of the loop's own carries: the user's frames that made it, the deepest first.

    For torch it is a traceback like any other, a list of lines.
    """

    __slots__ = ("spots", "twice")

    def __init__(self, spots: tuple[Spot, ...] = (), twice: bool = False) -> None:
        super().__init__()
        self.spots = spots
        self.twice = twice
        """It was made by a backward pass, to be differentiated a second time."""


class Lines:
    """While it is armed, every node carries a `Line`. The user sees none of it, and may use anomaly mode as ever."""

    def __init__(self) -> None:
        self._notes = self._long = 0

    def arm(self) -> None:
        if self._long >= _TOO_LONG or _armed or torch.is_anomaly_enabled():
            return
        _armed.append(self)
        torch.fx.traceback.format_stack = self._note
        _OWN_SET(True, False)
        torch.is_anomaly_enabled, torch.set_anomaly_enabled = _is_not, _wished  # as far as the user can see

    def disarm(self) -> None:
        if self in _armed:
            _disarm()

    def step_over(self) -> None:
        self._long = self._long + 1 if self._notes > MOST_NODES else 0
        self._notes = 0

    def _note(self) -> Any:
        if torch.fx.traceback.has_preserved_node_meta():
            return _OWN_STACK()  # torch asks for itself: it compiles
        self._notes += 1
        if self._notes > MOST_NODES:  # so long a graph is not looked at
            self.disarm()
        return Line(chain(sys._getframe(1)), torch._C._current_graph_task_id() != -1)


_armed: list[Lines] = []
"""The one that is armed: anomaly mode is the process's."""

_OWN_STACK, _OWN_IS, _OWN_SET = torch.fx.traceback.format_stack, torch.is_anomaly_enabled, torch.set_anomaly_enabled


def _disarm() -> None:
    _armed.clear()
    torch.fx.traceback.format_stack = _OWN_STACK
    torch.is_anomaly_enabled, torch.set_anomaly_enabled = _OWN_IS, _OWN_SET
    _OWN_SET(False)


def _is_not() -> bool:
    """The user's own wish, while anomaly mode is on for us."""
    return False


def _wished(enabled: bool, check_nan: bool = True) -> None:
    """The user switches anomaly mode: it is theirs from here on."""
    _disarm()
    _OWN_SET(enabled, check_nan)


@contextmanager
def lines_noted(note: Any) -> Iterator[None]:
    """While it lasts, every autograd node made on any thread carries what `note()` returns, at `traceback_`."""
    was, checked = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.set_anomaly_enabled(True, False)  # first: a recorder that notes lines for itself stops at that
    original = torch.fx.traceback.format_stack
    torch.fx.traceback.format_stack = note
    try:
        yield
    finally:
        torch.fx.traceback.format_stack = original
        torch.set_anomaly_enabled(was, checked)
