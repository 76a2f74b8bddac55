"""`watch()` and `TrainingDebugger`: the live side, which owns probes, detectors and sinks."""

from __future__ import annotations

import atexit
import difflib
import math
import os
import platform
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from seismograd import endings, folders, notebooks
from seismograd.activations import ActivationMonitor
from seismograd.complaints import complain
from seismograd.config import Config, find_config
from seismograd.detectors.insights import EXPLAINED, evidence_of
from seismograd.distributed import world
from seismograd.errands import Errands
from seismograd.governor import Governor, Stride
from seismograd.history import TrainingHistory, issues_of
from seismograd.judge import Judge, status_of
from seismograd.progress import Numbers
from seismograd.protocols import Detector, Sink
from seismograd.records import (
    WITHOUT_DETECTOR,
    DebugLevel,
    Finding,
    Reading,
    Severity,
    Where,
    attempt,
    rank,
    starts_again,
    world_size,
)
from seismograd.reports.report import build_report
from seismograd.stats.arrays import GradientStats, array_reading
from seismograd.tally import COUNTED, Tally, summary_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike
    from torch import Tensor, nn

    from seismograd.by_hand import ByHand
    from seismograd.distributed.exchange import Exchange
    from seismograd.loop import Loop
    from seismograd.recovery.policies import Plan
    from seismograd.recovery.recovery import Recovery
    from seismograd.replay.capture import Captures
    from seismograd.store import Run
    from seismograd.store.recorder import Recorder

_RESERVED = (
    *("loss", "val_loss", "grad/", "lr/", "time/", "memory/", "amp/", "weight_decay/"),
    *("gradient/", "parameter/", "update/"),
)


_OF_ALL_RANKS = frozenset({"ranks", "hang"})
"""Facts that were put together from several ranks."""

_OTHERS = 1000
"""Findings of other ranks that are kept, however many ranks there are."""

watches: weakref.WeakSet[TrainingDebugger] = weakref.WeakSet()
"""Those that were opened with `watch()` in this process."""


class TrainingDebugger:
    """One run under watch: takes readings, judges them, tells the sinks.

    `watch()` builds one that reads by itself. By hand, `step()` takes NumPy arrays and `monitor_training_step()` a
    torch model; neither needs more than the numbers.
    """

    _guards: tuple[Callable[[], None], ...] = ()
    """Take back what sees to it that the run is closed."""
    _trained: Mapping[str, Any] = {}
    """What was trained when the record began."""
    _charged = 0.0
    """Seconds of our threads that the governor has heard of."""
    compares = False
    """Whether this rank is compared with others, where there are any."""
    exchange: Exchange | None = None
    """The way to them."""

    def __init__(
        self,
        level: DebugLevel | str | None = None,
        *,
        budget: float | None = None,
        detectors: Iterable[Detector] | None = None,
        sinks: Iterable[Any] | None = None,
        ignore: Iterable[str] | str = (),
        name: str | None = None,
        strict: bool = False,
        store: Any = False,
        notify: Any = None,
        about: Mapping[str, Any] | None = None,
        config: Config | None = None,
    ) -> None:
        config = find_config() if config is None else config
        self._level = DebugLevel.of(level or config.level or DebugLevel.ADVANCED)
        self.governor = Governor(self._level, config.budget if budget is None else budget)
        self.strict = strict
        self.id = world.run_id()
        self.name = name or "run"
        self.rank = rank()
        self.events: deque[dict[str, Any]] = deque(maxlen=1000)
        self.history = TrainingHistory()
        self.activation_monitor = ActivationMonitor()
        self.gradient_history: deque[GradientStats] = deque(maxlen=100)
        chosen = config.apply(_detectors(detectors))
        self._ignored = _ignored(ignore, config.ignore, chosen)
        self._judge = Judge(
            chosen,
            ignore=self._ignored,
            on_finding=lambda finding: self._tell("write_finding", finding),
            on_change=lambda finding: self._tell("update_finding", finding),
            on_failure=self._failed,
            explain=self._explained,
        )
        self.complain: Callable[[str], None] | None = None
        """Takes what would be a warning; a script that runs under us has its own warnings."""
        self.passes_on: Callable[[Exception], bool] | None = None
        """Knows errors that are not ours, though they came while we were at work."""
        self.replays = True
        """Whether a bad step is run again to say where it went bad."""
        self.saves_steps = config.capture
        """Whether a bad step is saved, to be run again later."""
        self.captures: Captures | None = None
        """What saves them, once a loop is followed."""
        self.home: Path | None = None
        """The folder of all runs, if it is another than usual: what is saved of this one lies in it."""
        self.recovery: Recovery | None = None
        """What acts on findings, if the user has asked for it."""
        self.errands = Errands(self)
        """What is asked of the run from outside."""
        self.others: dict[tuple[Any, ...], Finding] = {}
        """What other ranks have found, as far as the first one has heard of it."""
        self._sinks = _sinks(sinks)
        self.recorder: Recorder | None = None
        """What keeps the run in the store."""
        self._loop: Loop | None = None
        self._by_hand: tuple[Any, ByHand] | None = None
        self._broken: set[str] = set()
        self._tally = Tally()
        self._seen: list[Finding] = []
        self._numbers = Numbers()
        self._started = datetime.now(UTC)
        self._ended: datetime | None = None
        self._exit: dict[str, Any] = {"code": None, "exception": None}
        self._crashed = self._closed = False
        self._pid = os.getpid()
        self._tell_others(config.notify if notify is None else notify, config.notify_on)
        self._record(folders.store(store, config.store), about or {})

    # -- the watch -----------------------------------------------------------------------------------------------

    @property
    def level(self) -> DebugLevel:
        """How much is read; may be set while the run goes on."""
        return self._level

    @level.setter
    def level(self, level: DebugLevel | str) -> None:
        self._level = self.governor.level = DebugLevel.of(level)

    @property
    def budget(self) -> float:
        """The share of the time that the watch may take; may be set while the run goes on, `None` for its level's."""
        return self.governor.budget

    @budget.setter
    def budget(self, budget: float | None) -> None:
        self.governor.budget = budget

    @property
    def loop(self) -> Loop | None:
        """The loop that is followed; `None` while the run is told of its steps by hand."""
        return self._loop

    @property
    def newest_step(self) -> int:
        """The number of the newest step, read or not; -1 before the first."""
        return self._tally.last_step if self._loop is None else self._loop.step

    @property
    def findings(self) -> list[Finding]:
        """What was found so far, in the order in which it should be read."""
        return self._judge.findings

    @property
    def status(self) -> str:
        """`healthy`, `warning`, `critical`, or `crashed`."""
        return "crashed" if self._crashed else self._judge.status

    def observe(self, loss: Tensor | float) -> None:
        """Says by hand: the gradients are complete now, and this is their loss."""
        self._attached("observe").observe(loss)

    def validate(self, loss: Tensor | float) -> None:
        """Takes a validation loss at the current step."""
        if self._loop is not None:
            self._loop.validate(loss)
        else:
            self._take(Reading(max(self._tally.last_step, 0), {"val_loss": float(loss)}, rank=self.rank))

    def log(self, name: str, value: Tensor | float) -> None:
        """Puts a value of the user's own into the next reading."""
        if not name or any(name == taken or (taken[-1] == "/" and name.startswith(taken)) for taken in _RESERVED):
            raise ValueError(f"the name {name!r} cannot be logged: Seismograd's own readings use it, choose another")
        numel = getattr(value, "numel", None)
        if callable(numel) and numel() != 1:
            raise ValueError(f"{name!r} has {numel()} elements: log takes a single number")
        self._attached("log").log(name, value)

    def flush(self) -> None:
        """Judges and writes everything that is still on its way."""
        if self._loop is not None:
            self._loop.flush()
        for sink in list(self._sinks):
            if hasattr(sink, "flush"):
                self._call(sink, "flush")

    def close(self) -> None:
        """Ends the watch: no hook, patch or thread is left. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if os.getpid() != self._pid:  # a forked child leaves: the run is its parent's
            return
        try:
            self._close()
        finally:
            for forget in self._guards:
                forget()

    def _close(self) -> None:
        self.errands.close()
        if self._loop is not None:
            self._loop.close()
        if self.exchange is not None:
            self.exchange.close(hurries=self.hurries)
            self.hear_ranks()
        if self.recovery is not None:
            self.recovery.close()
        self._by_hand = None
        self._ended = datetime.now(UTC)
        report = self.report()
        for sink in sorted(self._sinks, key=lambda sink: hasattr(sink, "page")):  # the page is made of the record
            self._call(sink, "close", report)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.failed(error)
        if error is not None:  # Ctrl-C and sys.exit() end a run, they do not break it
            exception = f"{type(error).__name__}: {error}".rstrip(": ")
            self.ended({"code": _exit_code(error), "exception": exception}, crashed=isinstance(error, Exception))
        self.close()

    def failed(self, error: Exception) -> None:
        """The program ends with this error: what it means for the run is told, the error is left as it is."""
        if self._loop is not None and not self._closed:
            self._loop.failed(error)

    def ended(self, exit_: dict[str, Any], *, crashed: bool) -> None:
        """Notes how the program ended: its exit code, and the exception if it was one."""
        self._exit, self._crashed = exit_, crashed

    @property
    def hurries(self) -> bool:
        """Whether the program failed and is about to be started again, together with others: nobody is waited for."""
        return (self._crashed or bool(self._exit["code"])) and starts_again()

    @property
    def closed(self) -> bool:
        return self._closed

    # -- by hand -------------------------------------------------------------------------------------------------

    def step(  # noqa: PLR0917 (the seed's order)
        self,
        step: int,
        loss: float,
        gradients: Sequence[ArrayLike] | Mapping[str, ArrayLike],
        learning_rate: float,
        activations: Mapping[str, ArrayLike] | None = None,
        val_loss: float | None = None,
    ) -> None:
        """Records and judges one step of any training loop, from plain numbers and arrays.

        Steps that begin anew with each epoch are counted through.
        """
        step = self._numbers.counted(step)
        reading, stats = array_reading(step, loss, gradients, learning_rate, val_loss)
        self.gradient_history.append(stats)
        self.history.record(
            step=step, loss=float(loss), grad_norm=stats.norm, lr=float(learning_rate), val_loss=val_loss
        )
        for name, values in (activations or {}).items():
            self.activation_monitor.record(name, values)
        self._take(reading)
        if self.errands.waiting and self._loop is None:
            self.errands.step_over()

    def monitor_training_step(self, model: nn.Module, loss: Tensor | float, step: int) -> dict[str, Any]:
        """Reads the gradients that `model` holds now, judges the step, and says what was seen at it."""
        before, number = self._tally.counts.copy(), self._numbers.counted(step)
        if self._loop is not None:
            self._loop.observe_step(loss, number)
            self._loop.flush()
        else:
            self._take(self._hand(model).read(loss, number, more=self._level is not DebugLevel.BASIC))
            if self.errands.waiting:
                self.errands.step_over()
        seen = [finding for finding in self._seen if finding.severity is not Severity.INFO]
        return {
            "step": step,
            "loss": self._tally.latest.get("loss"),
            "gradient_norm": self._tally.latest.get("grad/norm"),
            "anomalies": [finding.id for finding in seen],
            "has_anomaly": bool(seen),
            **{name: self._tally.counts[name] > before[name] for name in COUNTED},
            "findings": [finding.to_dict() for finding in seen],
        }

    def get_training_summary(self) -> dict[str, Any]:
        """How many steps were seen, and at how many of them something was wrong."""
        return summary_of(self._tally.counts)

    def clear(self) -> None:
        """Starts the counters of `get_training_summary()` again; what was found and recorded stays."""
        self._tally.clear()

    def found(self, finding: Finding) -> None:
        """Takes a finding that was made elsewhere, unless it is ignored."""
        if finding.id in self._ignored:
            return
        self._tally.count([self._judge.add(finding)], finding.step)

    def quick_check(self) -> bool:
        """Whether the last steps look sound: no NaN, no exploding gradient, nothing critical."""
        recent = self.history.loss[-5:]
        if any(math.isnan(loss) for loss in recent):
            return False
        if self.gradient_history:
            latest = self.gradient_history[-1]
            if latest.num_nans or latest.num_infs or latest.norm > 1000:
                return False
        return not any(
            finding.severity is Severity.CRITICAL and finding.last_step > self._tally.last_step - 5
            for finding in self._judge.findings
        )

    def report(self) -> dict[str, Any]:
        """The report of the run so far, as strict JSON; it also answers under the names of the seed's report."""
        findings, others = self._judge.findings, list(self.others.values())
        issues, recommendations = issues_of(findings)
        recent = list(self.gradient_history)[-10:]
        sick_gradients = any("gradient" in f.id and f.severity is not Severity.INFO for f in findings)
        report = build_report(
            run={
                "id": self.id,
                "name": self.name,
                "status": self.status if self._crashed else status_of([*findings, *others]),
                "steps": self._steps(),
                **({} if self.exchange is None else {"ranks": self.exchange.world}),
                "level": self._level.value,
                "started": self._started.isoformat(timespec="milliseconds"),
                "ended": self._ended.isoformat(timespec="milliseconds") if self._ended else None,
                "exit": self._exit,
                "overhead": self._overhead(),
                **({} if self.recorder is None else {"store": self.recorder.told()}),
            },
            findings=[*findings, *others],
            summary={**self.get_training_summary(), "last": self._tally.latest},
            events=list(self.events),
            memory=list(self._tally.memory),
            performance=self._performance(),
        )
        report |= {
            "status": report["run"]["status"],
            "issues": issues,
            "recommendations": recommendations,
            "gradient_healthy": all(stats.is_healthy()[0] for stats in recent) and not sick_gradients,
            "activation_issues": self.activation_monitor.diagnose(),
        }
        return report

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report page of the run so far; written to `path`, whole or not at all, if one is given.

        Its curves come from the store: without one the page has the verdict, the findings and what the report has.
        """
        from seismograd.reports.page import render_page, write_page

        with self.stored() as run:
            text = render_page(run)
        if path is not None:
            write_page(text, path)
        return text

    def _repr_html_(self) -> str | None:
        """The run so far, as a notebook shows it."""
        from seismograd.reports.page.cell import run_card, shown_or_none

        with self.stored() as run:
            return shown_or_none(lambda: run_card(run))

    @contextmanager
    def stored(self) -> Iterator[Run | dict[str, Any]]:
        """The run as the store has it by now; its report where it is not recorded, or cannot be read."""
        from seismograd.store.about import about

        with ExitStack() as stack:
            run: Run | dict[str, Any] = {**self.report(), "about": about()}
            if not self._closed:
                self.flush()
            if self.recorder is not None and self.recorder.trouble is None:
                from seismograd.store import StoreError, open_store

                try:
                    store = stack.enter_context(open_store(self.recorder.url.render_as_string(hide_password=False)))
                    run = store.run(self.id)
                except StoreError as error:
                    self.note("store_unreadable", f"the run cannot be read back: {error}")
            yield run

    # -- inside --------------------------------------------------------------------------------------------------

    def _tell_others(self, notify: Any, severity: str) -> None:
        """Opens the ways to those who want to hear of findings; of several ranks the first speaks."""
        if notify and not self.rank:
            from seismograd.sinks.notify import notifiers

            self._sinks += notifiers(notify, severity)
        for sink in list(self._sinks):
            if hasattr(sink, "page"):
                sink.page = self.html
            if hasattr(sink, "so_far"):
                sink.so_far = self.report
            if hasattr(sink, "leader_tells"):
                sink.leader_tells = getattr(self, "leader_tells", None)
            if not hasattr(sink, "begin"):
                continue
            try:
                sink.begin({"id": self.id, "name": self.name}, self.note, self._say)
            except (ValueError, TypeError):  # a mistake of the caller, who is told before the training starts
                raise
            except Exception as error:
                self._drop(sink, error)

    def _record(self, where: Any, more: Mapping[str, Any]) -> None:
        """Opens the record of the run, where one is wanted. It is a sink like others."""
        if where is False:
            return
        from seismograd.store.about import about
        from seismograd.store.recorder import Recorder
        from seismograd.store.schema import file_of, limit_of, url_of

        url = url_of(where)
        file = file_of(url)
        self.home = None if file is None else file.parent
        self.recorder = Recorder(
            url,
            self.id,
            self.name,
            rank=self.rank,
            limit=max(1 << 20, limit_of() // world_size()),
            about=lambda: {**about(), **self._trained, **self._what_is_trained(), **more},
            state=self._state,
            on_request=self.errands.ask,
            complain=self._say,
            on_start=self._recording_starts,
            world=world_size(),
            attempt=attempt(),
        )
        self._sinks.append(self.recorder)

    def _recording_starts(self) -> None:
        """Looks at what is trained while it is surely there: a short script is over before the recorder asks."""
        self._trained = self._what_is_trained()
        self._guard()

    def _what_is_trained(self) -> dict[str, Any]:
        return {} if self._loop is None else self._loop.about()

    def _state(self) -> dict[str, Any]:
        """How the run is now, for its record. Called from another thread."""
        return {
            "status": self.status,
            "level": self._level.value,
            "budget": self.governor.budget,
            "steps": self._steps(),
            "host": platform.node(),
            "pid": self._pid,
            "ignored": sorted(self._ignored),
            "exit": dict(self._exit),
            "summary": {**self.get_training_summary(), "last": dict(self._tally.latest)},
            "overhead": self._overhead(),
            "performance": self._performance(),
        }

    def _steps(self) -> int:
        return self._tally.steps if self._loop is None else self._loop.step + 1

    def _attach(self, loop: Loop) -> None:
        self._loop = loop
        self._guard()
        watches.add(self)

    def _guard(self) -> None:
        """From now on the run is closed when the process ends, also by a signal that would end it without a word."""
        if not self._guards:
            atexit.register(self.close)
            self._guards = (endings.before_a_signal_ends(self._left_by),)
        if self.exchange is not None:
            endings.insist()

    def close_at_exit(self) -> None:
        """Sees to it that the run is closed when the process ends, before what was registered earlier."""
        self._guard()

    def _left_by(self, code: int, signal: str) -> None:
        if not self._closed:
            self.ended({"code": code, "exception": signal}, crashed=False)
        self.close()
        if self.recorder is not None:  # the signal may have come while it was being closed
            self.recorder.close(self.report())

    def _attached(self, method: str) -> Loop:
        if self._loop is None:
            raise RuntimeError(f"{method}() belongs to a watch: open one with seismograd.watch(model, optimizer)")
        return self._loop

    def _hand(self, model: nn.Module) -> ByHand:
        from seismograd.by_hand import ByHand

        if self._by_hand is None or self._by_hand[0] is not model:
            self._by_hand = (model, ByHand(model, self.rank))
        return self._by_hand[1]

    def _take(self, reading: Reading) -> None:
        """The one way in: every reading is judged, counted and written here."""
        self._seen = self._judge.observe(reading)
        self._tally.take(reading)
        if self._seen:
            self._tally.count(self._seen, reading.step)
        if self.recovery is not None:
            self.recovery.judged(reading, self._seen, self._judge.suspects(reading))
        for sink in self._sinks:
            try:
                sink.write_reading(reading)
            except Exception as error:
                self._drop(sink, error)
        if self.exchange is not None:
            self._exchanged(reading)
        elif self.compares and reading.step & (reading.step - 1) == 0 and self._loop is not None and not self._closed:
            self.join_ranks(self._loop)  # the ranks have met since, maybe: asked at steps 0, 1, 2, 4, 8, ...
        self._charge_threads()
        if self.errands.waiting:
            self.errands.reading_came(reading)

    # -- other ranks -------------------------------------------------------------------------------------------------

    def join_ranks(self, loop: Loop) -> None:
        """From now on this rank is compared with the others, if there are any."""
        from seismograd.distributed.joining import join, processors

        try:
            if not join(self, loop):
                return
            if self.governor.together is None:
                self.governor.together = Stride(self._level, processors())
            if self._guards:
                endings.insist()
        except Exception as error:
            self.compares = False
            self._failed("the comparison of ranks", error)

    def _exchanged(self, reading: Reading) -> None:
        """Tells the others of a reading, and takes what came from them meanwhile."""
        exchange = self.exchange
        assert exchange is not None
        try:
            exchange.hear(reading)
        except Exception as error:
            self.exchange, self.compares = None, False
            exchange.leave()
            self._failed("the comparison of ranks", error)
            return
        if exchange.inbox and not reading.facts.keys() & _OF_ALL_RANKS:
            self.hear_ranks()

    def hear_ranks(self) -> None:
        """Judges what came from all ranks: on the thread that trains, or on another if that one is stuck or gone."""
        exchange = self.exchange
        while exchange is not None and exchange.inbox:
            try:
                told = exchange.inbox.popleft()
            except IndexError:  # another thread was quicker
                return
            if isinstance(told, Finding):
                self._hear_finding(told)
            else:
                self._take(told)

    def _hear_finding(self, finding: Finding) -> None:
        """Another rank has found something."""
        if finding.id in self._ignored:
            return
        new = finding.key not in self.others
        if new and len(self.others) >= _OTHERS:
            return
        self.others[finding.key] = finding
        if new and not any(_same_fault(finding, known) for known in (*self._judge.findings, *self.others.values())):
            for sink in list(self._sinks):
                if hasattr(sink, "hear_finding"):
                    self._call(sink, "hear_finding", finding)

    def leader_tells(self, finding: Finding) -> bool:
        """Whether the first rank is told of it, and so will say it."""
        return self.exchange is not None and self.exchange.tells(finding)

    def _charge_threads(self) -> None:
        """What the threads of the record and of the ranks took: it is the interpreter's time too."""
        spent = 0.0 if self.recorder is None else self.recorder.spent
        if self.exchange is not None:
            spent += self.exchange.spent
        if spent > self._charged:
            self.governor.spend(spent - self._charged)
            self._charged = spent

    def _recover_by(self, plan: Plan, scheduler: Any, scaler: Any) -> None:
        """From now on findings are acted on."""
        from seismograd.recovery.recovery import Recovery
        from seismograd.recovery.telling import Teller

        self.recovery = Recovery(
            plan,
            teller=Teller(
                self._note_recovery,
                self._tally.add,
                self._judge.recovered,
                self._take,
                self._keep_batch,
                self._failed,
                self.rank,
            ),
            fail=self._failed,
            schedulers=[] if scheduler is None else scheduler if isinstance(scheduler, (list, tuple)) else [scheduler],
            scalers=[] if scaler is None else [scaler],
        )
        self.governor.reads_all = True

    def _note_recovery(self, event_type: str, message: str, data: dict[str, Any]) -> None:
        self.note(event_type, message, "warning", data=data)
        for sink in list(self._sinks):
            if sink is not self.recorder and hasattr(sink, "write_event"):
                self._call(sink, "write_event", self.events[-1])

    def _keep_batch(self, reading: Reading) -> str | None:
        """Saves the step of a reading, with its batch; where, if it was."""
        if reading.origin is not None and "capture" in reading.origin.facts:
            return str(reading.origin.facts["capture"])
        if self.captures is None or self._loop is None:
            return None
        saved = self._loop.with_step(reading, self.captures.recovered)
        return None if saved is None else folders.shown(saved)

    def _explained(self, finding: Finding) -> dict[str, Any]:
        """What a second run of the present step tells about a gradient that grows or fades."""
        if self._loop is None or finding.id not in EXPLAINED:
            return {}
        return evidence_of(self._loop.insight(), finding.id)

    def _performance(self) -> dict[str, Any]:
        elapsed = self.governor.elapsed
        return self._tally.performance(self.governor.steps / elapsed if elapsed else None)

    def _overhead(self) -> dict[str, Any]:
        governor = self.governor
        measured = round(governor.share, 5) if governor.elapsed else None
        result: dict[str, Any] = {"budget": governor.budget, "measured": measured}
        if governor.read_steps < governor.steps:
            result["steps_read"] = round(governor.read_steps / governor.steps, 4)
        return result

    def _tell(self, method: str, finding: Finding) -> None:
        if self.exchange is not None:
            self.exchange.found(finding)
        for sink in list(self._sinks):
            self._call(sink, method, finding)

    def _call(self, sink: Sink, method: str, *args: Any) -> None:
        try:
            getattr(sink, method)(*args)
        except Exception as error:
            self._drop(sink, error)

    def _drop(self, sink: Sink, error: Exception) -> None:
        self._sinks = [kept for kept in self._sinks if kept is not sink]
        self._failed(f"sink {type(sink).__name__}", error, "It gets nothing from here on; the verdict has everything.")

    def _failed(self, part: str, error: Exception, *advice: str) -> None:
        """Something of ours broke: said once, recorded, and never passed on to the training loop."""
        if self.strict or (self.passes_on is not None and self.passes_on(error)):
            raise error
        if part in self._broken:
            return
        self._broken.add(part)
        self._blind(part, f"{type(error).__name__}: {error}", *advice)
        text = f"seismograd: {part} failed, training goes on without it ({type(error).__name__}: {error})"
        self._say(text)

    def _say(self, text: str) -> None:
        if self.complain is not None:
            self.complain(text)
        else:
            complain(text, stacklevel=5)

    def note(self, event_type: str, message: str, level: str = "info", **data: Any) -> None:
        """Notes an event of the run, which its report and its record then tell."""
        event = {"time": time.time(), "event_type": event_type, "message": message, **data}
        self.events.append(event)
        if self.recorder is not None:
            self.recorder.write_event({**event, "level": level})

    def _note_capture(self, message: str) -> None:
        self.note("capture", message)

    def _blind(self, part: str, why: str, *advice: str) -> None:
        """Records that something could not be read from here on."""
        self.note("blind_probe", f"{part}: {why}", "warning")
        if "blind-probe" in self._ignored:
            return
        self._judge.add(
            Finding(
                id="blind-probe",
                severity=Severity.INFO,
                step=max(self._tally.last_step, 0),
                rank=self.rank,
                where=Where(),
                message=f"{part}: {why}",
                evidence={"part": part, "series": part},
                recommendations=advice or ("What it would have shown is missing from this run's verdict.",),
            )
        )


def watch(
    models: nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module],
    optimizers: Any = None,
    *,
    level: DebugLevel | str | None = None,
    budget: float | None = None,
    loss_fn: Any = None,
    scaler: Any = None,
    scheduler: Any = None,
    detectors: Iterable[Detector] | None = None,
    sinks: Iterable[Any] | None = None,
    ignore: Iterable[str] | str = (),
    recovery: Any = None,
    replay: bool = True,
    store: Any = None,
    notify: Any = None,
    name: str | None = None,
    strict: bool = False,
    lag: int | None = None,
    ranks: bool | None = None,
) -> TrainingDebugger:
    """Watches a training loop: reads every step, judges it, and says what is wrong while the run is still alive.

    Use it as a context manager, or keep the object and `close()` it.

    - `models`: a module, several, or a dict of names and modules. `optimizers` may be left out: they are found when
      they step.
    - `level`: `"basic"`, `"advanced"` (default) or `"extreme"`; `budget`: the share of a step's time that the watch may
      take (0.01, 0.05 and 0.15 by level).
    - `loss_fn`: a loss module whose calls in evaluation then count as validation losses.
    - `scaler`: only for a loss scaler that is not a `torch.amp.GradScaler`; those are seen by themselves.
    - `detectors`, `sinks`: in place of the default ones. A sink is an object of `seismograd.sinks`, a function of a
      finding, a logger, or a name: `["console", "logging", "tensorboard:runs"]` are the default ones and one more.
    - `ignore`: ids of findings that are not to be reported.
    - `recovery`: what is done about findings, by their id, a pattern (`"nonfinite-*"`), class or severity:
      `"continue"`, `"skip"`, `"clip"`, `"lower-lr"`, `"rollback"`, `"stop"`, an object of `seismograd.recovery`, a
      function, or a list of these, of which the next takes over where one has not helped. Every step is then read.
    - `scheduler`: only for one that is none of torch's `LRScheduler`, to be rolled back, too.
    - `replay`: when a value is not finite, run that step a second time, on the spot, to say where it was made. Torch's
      state is put back; the user's Python code does run twice. `False` turns it off.
    - `lag`: 0 judges a step before the optimizer changes the weights, 1 a step later, without ever waiting for the
      device. The default is 0 on a CPU and 1 on an accelerator.
    - `store`: where the run is recorded: a folder, a `.db` file or a `postgresql://` URL; `.seismograd` in the working
      directory without it, nowhere with `False`.
    - `notify`: who is told of findings while the run goes on: a webhook's address (`https://...`), a function that
      takes a finding, or several; `seismograd.sinks.Notify(to, severity)` says from which severity on.
    - `ranks`: whether the ranks of a distributed training are compared with each other, over a side channel of its own;
      they are, unless it is `False`.
    - `strict`: errors inside Seismograd are raised instead of dropped.
    """
    from seismograd import attach, patches
    from seismograd.distributed.switch import wanted

    named = attach.check_models(models)
    found = attach.check_optimizers(optimizers)
    config, plan = find_config(), None
    if recovery is not None and recovery != {}:
        from seismograd.recovery.policies import Plan

        detectors = list(_detectors(detectors))
        plan = Plan(recovery, detectors, {*config.ignore, *([ignore] if isinstance(ignore, str) else ignore)})
    lag = attach.check_lag(lag, named, plan)
    if sinks is None:
        sinks = ("console", "logging", *config.sinks)
    debugger = TrainingDebugger(
        level,
        budget=budget,
        detectors=detectors,
        sinks=sinks,
        ignore=ignore,
        name=name,
        strict=strict,
        store=store,
        notify=notify,
        config=config,
    )
    debugger.replays = replay
    debugger.compares = wanted(ranks, config.ranks)
    if plan is not None:
        debugger._recover_by(plan, scheduler, scaler)
    loop = attach.loop_for(debugger, named, found, lag=lag, scaler=scaler, loss_fn=loss_fn, replay=replay)
    debugger._attach(loop)
    patches.listen(loop)
    debugger._guards += (notebooks.opened(debugger, named.values(), debugger._say),)
    return debugger


def _detectors(detectors: Iterable[Detector] | None) -> Iterable[Detector]:
    if detectors is None:
        from seismograd.detectors import DEFAULT

        return DEFAULT
    return detectors


def _ignored(given: Iterable[str] | str, configured: Iterable[str], detectors: Iterable[Detector]) -> set[str]:
    ids = ({given} if isinstance(given, str) else set(given)) | set(configured)
    known = {detector.id for detector in detectors} | {*WITHOUT_DETECTOR}
    for wrong in sorted(ids - known):
        close = difflib.get_close_matches(wrong, known, 1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        complain(f"ignore={wrong!r} names no finding of this version{hint}", stacklevel=5)
    return ids


def _same_fault(one: Finding, other: Finding) -> bool:
    """Whether it is the same on another rank."""
    return one is not other and one.rank != other.rank and (one.id, one.key[2]) == (other.id, other.key[2])


def _exit_code(error: BaseException) -> int:
    """What Python would exit with."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _sinks(sinks: Iterable[Any] | None) -> list[Sink]:
    if sinks is None:
        return []
    from seismograd.sinks import as_sinks

    return as_sinks(sinks)
