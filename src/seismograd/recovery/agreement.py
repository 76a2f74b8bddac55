"""How the ranks of a training decide alike: over torch's own key-value store, never by a collective of ours.

What stands as the result of a round stands for all: whoever comes late, or gave the others up, finds the same. The
thread that trains never calls the store itself, whose calls may wait for ever if it is stuck, whatever limit is set.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import psutil
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from seismograd import living
from seismograd.distributed.channel import NoChannelError, own_connection
from seismograd.records import attempt

FIRST = 60.0
"""Seconds that the other ranks may take to join: a watch on some ranks only must not hold up the training for long."""
LATER = 1800.0
"""So long a rank may be late with a step; torch's own collectives wait as long."""
LOOK = 0.5
"""After so many seconds without a result it is looked whether there can be one; later, after longer ones."""
ANSWER = 5.0
"""Seconds within which a store answers that is not stuck."""

_T = TypeVar("_T")
_opened = itertools.count()


class NoAgreementError(RuntimeError):
    """The ranks cannot decide together any more, none of them; the message says why."""


class Agreement:
    """Rounds in which every rank hears what each of them has to say, at the same point of the training.

    The last to come writes the result, for which the others wait. That takes a few short messages a rank, whatever
    their number.
    """

    def __init__(self, *, connect: Callable[[], Any] | None = None, rank: int | None = None, world: int = 0) -> None:
        self._rank = dist.get_rank() if rank is None else rank
        self._world = world or dist.get_world_size()
        name = f"seismograd/recovery/{attempt()}/{next(_opened)}"  # of the watches of a process, alike on all ranks
        self._connect = connect or (lambda: PrefixStore(name, _connection()))
        self._round = 0
        self._line: _Line | None = None
        self._waits = False
        self._who: list[Any] = []
        self._joinable = [weakref.ref(one) for one in living.objects() if issubclass(type(one), Joinable)]

    @staticmethod
    def is_needed() -> bool:
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def share(self, told: Any) -> list[Any]:
        """What each rank tells, by rank."""
        if any((each := one()) is not None and each._join_config.enable for one in self._joinable):
            raise NoAgreementError("under `join()` a rank that has run out of batches has no say in what the others do")
        if self._line is None:
            self._line = _Line(self._connect)
        number, self._waits = self._round, True
        mine = json.dumps(told if number else {"who": _who(), "told": told})
        answer = self._line.ask(partial(self._take_part, number=number, told=mine))
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            try:
                result = answer.get(timeout=min(ANSWER / 2, max(LOOK, waited / 4)))
            except Empty:
                if (why := self._hopeless(waited)) is not None:
                    result = self._given_up(why)
                    break
            else:
                if isinstance(result, Exception):
                    result = self._given_up(f"the store at which the ranks meet is gone ({type(result).__name__})")
                break
        self._round, self._waits = number + 1, False
        if isinstance(result, str):
            self._line.close()
            self._line = None
            raise NoAgreementError(result)
        if not number:
            self._who = [each["who"] for each in result]
            return [each["told"] for each in result]
        return list(result)

    def leave(self) -> None:
        """This rank has no further say: the others need not wait for it."""
        if self._line is None:
            return
        key, why = f"{self._round}/result", json.dumps("a rank has ended its watch")
        line = _Line(self._connect) if self._waits else self._line  # it was interrupted: that one waits on
        answer = line.ask(lambda store: store.compare_set(key, "", why))
        for each in (line, self._line):
            each.close()
        with contextlib.suppress(Empty):
            answer.get(timeout=1.0)
        self._line = None

    def _hopeless(self, waited: float) -> str | None:
        """Why the others will not come, if that is known."""
        if waited > (LATER if self._round else FIRST):
            return "not all ranks take part in the recovery: open the watch with the same recovery=... on every rank"
        gone = [rank for rank, who in enumerate(self._who) if _is_gone(who)]
        if gone:
            return f"rank {gone[0]} is gone"
        if waited > ANSWER and self._answer(lambda store: store.check(["0/count"])) is None:
            return "the store at which the ranks meet does not answer"
        return None

    def _given_up(self, why: str) -> Any:
        """Ends the round, and all later ones: for every rank, unless it has its result by now, which is returned."""
        key, mine = f"{self._round}/result", json.dumps(why)
        told = self._answer(lambda store: store.compare_set(key, "", mine))
        return why if not isinstance(told, bytes) else self._read(told)

    def _read(self, written: bytes) -> Any:
        result = json.loads(written)
        return [result["alike"]] * self._world if isinstance(result, dict) else result

    def _answer(self, what: Callable[[Any], _T]) -> _T | None:
        """What the store says, over one more connection; `None` if it does not, or not in time."""
        line = _Line(self._connect)
        answer = line.ask(what)
        line.close()
        try:
            result = answer.get(timeout=ANSWER)
        except Empty:
            return None
        return None if isinstance(result, Exception) else result

    def _take_part(self, store: Any, *, number: int, told: str) -> Any:
        store.set(f"{number}/{self._rank}", told)
        if store.add(f"{number}/count", 1) == self._world:
            everyone = [json.loads(store.get(f"{number}/{rank}")) for rank in range(self._world)]
            alike = (
                everyone.count(everyone[0]) == self._world
            )  # as in a healthy step: then it is short, for all to read
            store.compare_set(f"{number}/result", "", json.dumps({"alike": everyone[0]} if alike else everyone))
            if number:
                for name in (*range(self._world), "count", "result"):
                    store.delete_key(f"{number - 1}/{name}")
        else:
            store.wait([f"{number}/result"], timedelta(seconds=2 * LATER))
        return self._read(store.get(f"{number}/result"))


class _Line:
    """A connection of its own to the store, and the thread that uses it."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._asked: SimpleQueue[tuple[Callable[[Any], Any], SimpleQueue[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="seismograd-agreement", daemon=True).start()

    def ask(self, what: Callable[[Any], Any]) -> SimpleQueue[Any]:
        """Where the answer will be, or the error."""
        answer: SimpleQueue[Any] = SimpleQueue()
        self._asked.put((what, answer))
        return answer

    def close(self) -> None:
        self._asked.put(None)

    def _work(self) -> None:
        store: Any = None
        while (asked := self._asked.get()) is not None:
            what, answer = asked
            try:
                if store is None:
                    store = self._connect()
                answer.put(what(store))
            except Exception as error:
                answer.put(error)


def _connection() -> Any:
    try:
        return own_connection()
    except NoChannelError:  # a file, or within one process: nothing that could be stuck
        return _get_default_store()


def _who() -> list[Any]:
    """This process, for others on its machine to see whether it is still there."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return [platform.node(), space, os.getpid(), psutil.Process().create_time()]


def _is_gone(who: list[Any]) -> bool:
    here = _who()
    if who[:2] != here[:2] or who[2] == here[2]:
        return False
    try:
        process = psutil.Process(who[2])
        return bool(abs(process.create_time() - who[3]) > 1.0 or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
