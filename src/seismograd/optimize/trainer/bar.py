"""The progress bar of a training, on stderr: epoch, step, loss, learning rate, and the time that is left."""

from __future__ import annotations

import random
from time import monotonic
from types import TracebackType
from typing import Self

from torch import Tensor

from seismograd import endings, notebooks
from seismograd.amounts import number
from seismograd.optimize.trainer.course import Course
from seismograd.quiet_rich import Console

_state = random.getstate()
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402

random.setstate(_state)

_EVERY = 0.1
"""Seconds from one drawing to the next: nothing is asked of the device in between."""


class Bar:
    """One line that is drawn again as the training goes on; no thread draws it.

    `wanted`: by default, on a terminal and in a notebook.
    """

    def __init__(self, console: Console, wanted: bool | None, epochs: int, steps: int | None, done: int = 0) -> None:
        self._epochs, self._drawn = epochs, 0.0
        self._last: tuple[Course, Tensor, float] | None = None
        in_cell = notebooks.shell() is not None and wanted is not False
        self._cell = notebooks.ProgressBar() if in_cell else None
        self._total = steps
        shown = False if in_cell else console.is_terminal and not endings.supervised if wanted is None else wanted
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            redirect_stdout=False,  # stdout is the script's own
            disable=not shown,
        )
        self._task = self._progress.add_task("epoch 1", total=steps, completed=done, figures="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._last is not None:
            self._drawn = 0.0
            self.show(*self._last, last=True)
        self._progress.stop()

    def show(self, course: Course, loss: Tensor, lr: float, *, last: bool = False) -> None:
        """Draws the line, unless it was drawn a moment ago."""
        self._last = course, loss, lr
        if (self._progress.disable and self._cell is None) or monotonic() - self._drawn < _EVERY:
            return
        epoch = f"epoch {min(course.epoch + 1, self._epochs)}/{self._epochs}"
        figures = f"loss {number(float(loss))}  lr {number(lr)}"
        if self._cell is not None:
            of = "" if self._total is None else f"/{self._total}"
            self._cell.show(course.step, self._total, f"{epoch}  step {course.step}{of}  {figures}", last=last)
        else:
            self._progress.update(self._task, description=epoch, completed=course.step, figures=figures, refresh=True)
        self._drawn = monotonic()
