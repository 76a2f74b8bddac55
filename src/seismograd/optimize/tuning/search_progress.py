"""How long a search may still take, shown as a bar on a terminal."""

from __future__ import annotations

import random
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from seismograd import notebooks

if TYPE_CHECKING:
    from seismograd.notebooks import ProgressBar


class Clock:
    """The time limit of a search. On a terminal a bar on stderr shows what is tried; it moves only between blocks."""

    def __init__(self, limit: float, stream: Any = None) -> None:
        self.limit = limit
        self._stream = sys.stderr if stream is None else stream
        self._began = monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._cell: ProgressBar | None = None
        self._what = ""

    def __enter__(self) -> Self:
        self._began = monotonic()
        if notebooks.shell() is not None:
            self._cell = notebooks.ProgressBar()
        elif _is_terminal(self._stream):
            state = random.getstate()  # rich draws a number when it is imported
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            random.setstate(state)
            console = Console(file=self._stream)
            self._bar = Progress(
                TextColumn("tune"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=console,
                auto_refresh=False,  # a thread that draws would be in the way of what is measured
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self.limit)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._cell is not None:
            self._cell.show(1, 1, "tune: done", last=True)

    @property
    def now(self) -> float:
        return monotonic()

    @property
    def passed(self) -> float:
        return monotonic() - self._began

    @property
    def left(self) -> float:
        return self.limit - self.passed

    def share(self, part: float) -> float:
        """The moment at which something ends that may take this part of the whole time."""
        return monotonic() + part * self.limit

    def show(self, what: str) -> None:
        """Says what is tried now."""
        self._what = what[:60]
        self._draw()
        if self._bar is not None:
            self._bar.update(self._task, description=what[:60], completed=min(self.passed, self.limit), refresh=True)

    def tick(self) -> None:
        """Moves the bar."""
        self._draw()
        if self._bar is not None:
            self._bar.update(self._task, completed=min(self.passed, self.limit), refresh=True)

    def _draw(self) -> None:
        if self._cell is not None:
            self._cell.show(self.passed, self.limit, f"tune: {self._what}")


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
