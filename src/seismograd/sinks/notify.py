"""Tells of findings while the run goes on: to a webhook, or to any function, from a thread of its own."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from seismograd.records import Finding, Reading, Severity
from seismograd.sinks.webhook import DeliveryError, Webhook

ATTEMPTS = 5
FIRST_WAIT = 1.0
"""Seconds before the second attempt; twice as long before each further one."""
TIMEOUT = 5.0
"""Seconds that an attempt may take."""
PATIENCE = 5.0
"""Seconds that the end of a run waits for what is not yet told."""
MOST = 100
"""Findings that wait; of more it is only said how many there were."""

Told = Callable[[Finding], Any]


class Notify:
    """A sink that tells of each finding once, when it is first as severe as `severity`.

    `to` is an address (`https://...`), to which it is posted as JSON, or a function, which is called with the finding.
    Both happen on a thread of its own, one after the other, and never hold up or end the training. Where the network
    fails, or the receiver is overloaded, it is tried again, up to five times; what it refuses is not. A function is
    called again only after an `OSError`, which is what networks raise. A coroutine function is awaited.
    """

    def __init__(self, to: str | Told, severity: Severity | str = Severity.WARNING) -> None:
        self._to: Webhook | Told = _receiver(to)
        try:
            self.severity = Severity(severity)
        except ValueError:
            known = ", ".join(repr(known.value) for known in Severity)
            raise ValueError(f"severity {severity!r} is unknown: use one of {known}") from None
        self.told = self.lost = 0
        """How many findings the receiver took, and how many it did not get."""
        self._missed = 0
        self._run: Mapping[str, Any] = {}
        self._note: Callable[..., None] | None = None
        self._complain: Callable[[str], None] | None = None
        self._known: set[tuple[Any, ...]] = set()
        self._waiting: dict[tuple[Any, ...], Finding] = {}
        self._lock = threading.RLock()  # a signal may end the run while a finding is handed over
        self._busy = False
        self._works = False
        """Whether the thread takes what is waiting; else it is over, or about to be, and another has to be begun."""
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._deadline = float("inf")
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<Notify {self.receiver}>"

    @property
    def receiver(self) -> str:
        """Who is told, for people to read: of an address only the host."""
        return str(self._to) if isinstance(self._to, Webhook) else getattr(self._to, "__qualname__", repr(self._to))

    def begin(self, run: Mapping[str, Any], note: Callable[..., None], complain: Callable[[str], None]) -> None:
        """Learns which run it is, and whom to tell of what goes wrong."""
        self._run, self._note, self._complain = run, note, complain
        self._known.clear()
        self._ending.clear()
        self._deadline = float("inf")

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        if finding.severity.weight < self.severity.weight or os.getpid() != self._pid:
            return
        with self._lock:
            if finding.key in self._waiting:  # its place may be known by now
                self._waiting[finding.key] = finding
            elif finding.key not in self._known and not self._ending.is_set():
                self._known.add(finding.key)
                if len(self._waiting) >= MOST:
                    self._missed += 1
                    return
                self._waiting[finding.key] = finding
                if not self._works:
                    before = self._thread
                    self._thread = threading.Thread(
                        target=self._work, args=(before,), name="seismograd-notify", daemon=True
                    )
                    self._thread.start()
                    self._works = True

    def update_finding(self, finding: Finding) -> None:
        self.write_finding(finding)

    def close(self, report: dict[str, Any]) -> None:
        """Waits a few seconds for what is not yet told."""
        with self._lock:
            self._deadline = time.monotonic() + PATIENCE
            self._ending.set()
            thread = self._thread
        if thread is not None and os.getpid() == self._pid and thread is not threading.current_thread():
            thread.join(PATIENCE)
        missed = self._missed + len(self._waiting) + self._busy
        if missed:
            self.lost += missed
            self._failed(f"{self.receiver} was not told of {missed} findings before the run was over")

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self, before: threading.Thread | None) -> None:
        """Until nothing waits any more; the next finding begins another. The one before is all but over: who waits
        for the last thread has waited for all."""
        if before is not None:
            before.join()
        while True:
            with self._lock:
                if not self._waiting or time.monotonic() > self._deadline:
                    self._works = False
                    return
                key = next(iter(self._waiting))
                finding = self._waiting.pop(key)
                self._busy = True
            self._tell(finding)
            self._busy = False

    def _tell(self, finding: Finding) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._attempt(finding)
            except BaseException as error:  # sys.exit() in a function of the user's would end the thread
                wait = error.wait if isinstance(error, DeliveryError) else (0.0 if isinstance(error, OSError) else None)
                if wait is not None and attempt < ATTEMPTS and self._pause(max(wait, FIRST_WAIT * 2 ** (attempt - 1))):
                    continue
                self.lost += 1
                self._failed(f"{self.receiver} was not told of {finding.id} ({_described(error)})")
                return
            self.told += 1
            return

    def _attempt(self, finding: Finding) -> None:
        if isinstance(self._to, Webhook):
            left = self._deadline - time.monotonic()
            self._to.deliver(finding, self._run, max(0.1, min(TIMEOUT, left)))
        elif inspect.iscoroutine(result := self._to(finding)):
            asyncio.run(result)

    def _pause(self, seconds: float) -> bool:
        """Waits before the next attempt; whether there is time for one. At the end of a run there is little."""
        if self._ending.wait(seconds):
            time.sleep(min(seconds, 0.25))
        return time.monotonic() < self._deadline

    def _failed(self, text: str) -> None:
        """Said once to the user; each time to the run."""
        if self._note is not None:
            self._note("notify", text, "warning")
        complain, self._complain = self._complain, None
        if complain is not None:
            complain(f"seismograd: {text}, training goes on")


def notifiers(notify: Any, severity: Severity | str = Severity.WARNING) -> list[Notify]:
    """A sink for each receiver: an address, `module:function`, a function, a `Notify`, or several of them."""
    if notify is None:
        return []
    several = isinstance(notify, Iterable) and not isinstance(notify, (str, bytes)) and not callable(notify)
    return [each if isinstance(each, Notify) else Notify(each, severity) for each in (notify if several else [notify])]


def is_name(text: str) -> bool:
    """Whether it has the form of `module:function`."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*", text) is not None


def _receiver(to: Any) -> Webhook | Told:
    if isinstance(to, str):
        return _named(to) if is_name(to) else Webhook(to)
    if callable(to) and not isinstance(to, type):
        return to  # type: ignore[no-any-return]
    raise TypeError(f"notify is {to!r}: give an address (https://...), a function that takes a finding, or several")


def _named(text: str) -> Told:
    module, _, name = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise ValueError(f"notify={text!r} names a module that cannot be imported ({told})") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"notify={text!r} names no function: there is none called {name!r} in {module!r}")
    return found  # type: ignore[no-any-return]


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, DeliveryError) else f"{type(error).__name__}: {error}"
