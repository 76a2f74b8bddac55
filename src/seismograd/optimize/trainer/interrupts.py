"""Ctrl-C and SIGTERM as a wish, not a blow: the step is finished and saved first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """While it lasts, the first Ctrl-C, or the first SIGTERM, calls `ask` with the reason; a second one gets through.

    Only on the main thread, and only where Python's own handlers stand. A SIGTERM ends the process afterwards.
    """

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._before: dict[int, Any] = {}
        self._terminated = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) == usual:
                    self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in list(self._before):
            self._put_back(number)
        if self._terminated:
            signal.raise_signal(signal.SIGTERM)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self._put_back(number)
        self._terminated = self._terminated or number == signal.SIGTERM
        self._ask("terminated" if number == signal.SIGTERM else "interrupted")

    def _put_back(self, number: int) -> None:
        before = self._before.pop(number)
        if signal.getsignal(number) == self._asked:  # nobody has set another meanwhile
            signal.signal(number, before)
