"""Watches whatever a script trains, and gives the verdict however it ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from seismograd.config import Config
from seismograd.masking import without_secrets
from seismograd.places import INSTALLED
from seismograd.records import DebugLevel, Finding, Reading, Severity, rank, world_size
from seismograd.run import script as scripts
from seismograd.run.frames import ShortTracebacks
from seismograd.run.process import Exits, own_stderr, when_imported
from seismograd.run.script import Ending, Script

if TYPE_CHECKING:
    from seismograd.run.scout import Scout
    from seismograd.sinks.display import Display
    from seismograd.training import TrainingDebugger

_NO_BACKWARD = "seismograd: no backward pass was seen"
_NOTHING_FOUND = "seismograd: gradients were computed, but no training that could be watched was found"

_PATIENCE = 2.0
"""Seconds that the first rank waits at its end for the last words of the others."""

FAILED = 3
"""The exit code of a script that ended well, under `--fail-on`, if something was found."""


@dataclass(frozen=True)
class Options:
    """What the user wants of a run."""

    level: DebugLevel | None = None
    budget: float | None = None
    ignore: tuple[str, ...] = ()
    report: Path | None = None
    html: Path | None = None
    fail_on: Severity | None = None
    stop_on: Severity | None = None
    quiet: bool = False
    replay: bool = True
    preflight: bool = False
    capture: bool = True
    store: str | bool | None = None
    name: str | None = None
    notify: tuple[str, ...] = ()
    notify_on: str | None = None
    ranks: bool | None = None
    """Whether the ranks of a distributed training are compared."""
    sinks: tuple[str, ...] = ()
    """Names of sinks besides the terminal."""
    config: Config = field(default_factory=Config)


def run(script: Script, options: Options, *, after: Callable[[dict[str, Any]], None] | None = None) -> NoReturn:
    """Runs the script under watch, and exits as it does; `after` is told the report when the verdict has been said."""
    supervisor = Supervisor(script, options, after)
    ending = scripts.run(script)
    supervisor.leave(ending)


class Supervisor:
    """Begins when the script imports torch; ends with it, with a signal, or with `os._exit`."""

    def __init__(self, script: Script, options: Options, after: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._options, self._after, self._name = options, after, options.name or script.name
        self._stream = own_stderr()
        self._started = datetime.now(UTC)
        self._pid = os.getpid()
        self._scout: Scout | None = None
        self._display: Display | None = None
        self._wants_stop = self._done = self._said = False
        self._watched: list[TrainingDebugger] = []
        self._broken: set[str] = set()
        self._speaks = rank() == 0  # of several ranks only the first, but for findings that it will not tell
        self._exits = Exits(self._left_by)
        if world_size() > 1:  # they wait for each other in native code, from their first meeting on
            self._exits.insist()
        self._tracebacks = ShortTracebacks()
        self._forget_import = when_imported("torch", self._torch_came)

    # -- while it runs -------------------------------------------------------------------------------------------

    def _torch_came(self) -> None:
        try:
            from seismograd.run.scout import Scout

            self._scout = Scout(
                self._new_run,
                fail=self._failed,
                stop_if_wanted=self._stop_if_wanted,
                replay=self._options.replay or self._options.preflight,
                preflight=self._options.preflight,
            )
        except Exception as error:
            self._failed("the watch", error)

    def _new_run(self) -> TrainingDebugger:
        """A training was met: its debugger, and on the terminal its line."""
        from seismograd.distributed.switch import wanted
        from seismograd.sinks.display import Display
        from seismograd.training import TrainingDebugger

        options = self._options
        self._exits.insist()
        if self._display is None and self._stream is not None:
            self._display = Display(self._stream, quiet=options.quiet, rank=rank())
        sinks: list[Any] = [] if self._display is None else [self._display.sink()]
        if options.stop_on is not None:
            sinks.append(_Stop(self, options.stop_on))
        debugger = TrainingDebugger(
            options.level,
            budget=options.budget,
            ignore=options.ignore,
            name=self._name,
            sinks=[*sinks, *(named := self._named_sinks()), *self._notifiers()],
            store=options.store,
            notify=False,
            config=options.config,
        )
        if named:
            debugger.close_at_exit()  # before the trackers' own exit functions
        debugger.complain = self._say
        debugger.passes_on = _is_the_scripts
        debugger.replays = options.replay
        debugger.compares = wanted(options.ranks, options.config.ranks)
        debugger.errands.stop = self.want_stop
        debugger.saves_steps = debugger.saves_steps and options.capture
        return debugger

    def _named_sinks(self) -> list[Any]:
        from seismograd.sinks.named import sink_named

        made = []
        for name in self._options.sinks or self._options.config.sinks:
            try:
                made.append(sink_named(name))
            except Exception as error:
                self._failed(f"the sink {without_secrets(name)}", error)
        return made

    def _notifiers(self) -> list[Any]:
        options, config = self._options, self._options.config
        to = options.notify or config.notify
        if not to or not self._speaks:
            return []
        from seismograd.sinks.notify import notifiers

        try:
            return list(notifiers(to, options.notify_on or config.notify_on))
        except ValueError as error:
            self._failed("--notify", error)
            return []

    def _stop_if_wanted(self) -> None:
        """Ends the script at the end of a step, as Ctrl-C would."""
        if not self._wants_stop:
            return
        self._wants_stop = False
        if not callable(signal.getsignal(signal.SIGINT)):  # Ctrl-C is ignored, as in a background job
            raise KeyboardInterrupt
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        else:
            import _thread

            _thread.interrupt_main()

    def want_stop(self) -> None:
        self._wants_stop = True

    def _failed(self, part: str, error: Exception) -> None:
        if _is_the_scripts(error):
            raise error
        if part in self._broken:
            return
        self._broken.add(part)
        self._say(f"seismograd: {part} failed, the script goes on without it ({type(error).__name__}: {error})")

    def _say(self, text: str) -> None:
        if not self._speaks or self._stream is None:
            return
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except (OSError, ValueError, RuntimeError):  # closed, broken, or in the middle of another write
            pass

    # -- the end -------------------------------------------------------------------------------------------------

    def leave(self, ending: Ending) -> NoReturn:
        """The script's body is over: the verdict, when its threads and exit functions are done too, and then its exit.

        After an exception the exit functions are not waited for: they may take their time.
        """
        if os.getpid() != self._pid:
            _exit(ending)
        ends_well = ending.error is None or isinstance(ending.error, SystemExit)
        if ends_well or any(
            thread is not threading.current_thread() and not thread.daemon for thread in threading.enumerate()
        ):
            try:
                threading._shutdown()  # type: ignore[attr-defined]
                if ends_well:
                    atexit._run_exitfuncs()
            except BaseException as error:  # Ctrl-C while `python` waits for them
                self._say(f"seismograd: the end of the script was not waited for ({type(error).__name__})")
        code = self._finish(ending.code, ending.error)
        _exit(Ending(code, ending.error) if code != ending.code else ending)

    def _left_by(self, code: int, name: str | None) -> bool:
        """By a signal or `os._exit`: a launcher ends the ranks that are left when one of them has failed, and they may
        have begun to say so."""
        if self._done and not self._said:
            return False
        self._finish(code, name)
        return True

    def _finish(self, code: int, cause: BaseException | str | None) -> int:
        """Closes the watch, writes the report, says the verdict, once; returns the exit code."""
        if self._done:
            return code
        self._done = True
        self._forget_import()
        self._tracebacks.leave()
        try:
            report = self._close(code, cause)
            if code == 0 and self._options.fail_on is not None and _worst(report) >= self._options.fail_on.weight:
                code = FAILED
            self._write(report)
            self._write_page(report)
            self._conclude(report)
            if self._after is not None:
                self._after(report)
        except Exception as error:
            self._failed("the verdict", error)
        finally:
            self._said = True
            self._exits.leave()
        return code

    def _close(self, code: int, cause: BaseException | str | None) -> dict[str, Any]:
        from seismograd.reports.report import build_report, join_reports

        exit_ = {"code": code & 0xFF, "exception": _described(cause)}
        crashed = isinstance(cause, Exception)
        if self._display is not None:
            self._display.end()
        if isinstance(cause, Exception):
            self._tell_of(cause)
        debuggers = self._debuggers()
        self._watched = [debugger for debugger, _ in debuggers]
        if self._scout is not None and self._scout.unwatched and debuggers:
            message = _unwatched(self._scout.unwatched)
            debuggers[-1][0].note("not_watched", message)
        for debugger, was_open in debuggers:
            if was_open or len(debuggers) == 1:
                debugger.ended(exit_, crashed=crashed)
            debugger.close()
        reports = [self._report_of(debugger) for debugger, _ in debuggers]
        if len(reports) == 1:
            return reports[0]
        run = {
            "name": self._name,
            "level": (self._options.level or self._options.config.level or DebugLevel.ADVANCED),
            "started": self._started.isoformat(timespec="milliseconds"),
            "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "exit": exit_,
        }
        if crashed or not reports:
            run["status"] = "crashed" if crashed else "healthy"
        return join_reports(reports, run) if reports else build_report(run=run)

    def _report_of(self, debugger: TrainingDebugger) -> dict[str, Any]:
        """Its report; the first of several ranks has in it what the store knows of the others."""
        report = debugger.report()
        recorder = debugger.recorder
        if not self._speaks or recorder is None or recorder.trouble is not None or not recorder.written:
            return report

        if (world := world_size()) < 2:
            return report
        from seismograd.reports.ranks import with_ranks

        try:
            with debugger.stored() as run:
                if isinstance(run, dict):
                    return report
                until = time.monotonic() + (0.0 if debugger.hurries else _PATIENCE)
                while (len(run.ranks) < world or run.ended is None) and time.monotonic() < until:
                    time.sleep(0.1)  # the others end at the same time, some a little later
                    run.refresh()
                whole = run.report()
            for side in whole.get("ranks") or ():
                if side["life"] == "live" and _was_killed(side["pid"]):
                    side["life"] = "lost"  # the record knows it a few seconds later
            return with_ranks(report, whole)
        except Exception as error:
            self._failed("the report of all ranks", error)
            return report

    def _tell_of(self, error: Exception) -> None:
        """The error, to whoever still watches."""
        training = sys.modules.get("seismograd.training")
        own = [] if training is None else list(training.watches)
        for each in own:
            each.failed(error)
        if self._scout is not None and (self._scout.trainings or not own):
            self._scout.failed(error)

    def _debuggers(self) -> list[tuple[TrainingDebugger, bool]]:
        """Ours, and those of the script's own `sg.watch`, with whether they were still at work."""
        training = sys.modules.get("seismograd.training")
        own = [] if training is None else sorted(training.watches, key=lambda each: each.id)
        found = (
            [] if self._scout is None else [(each.debugger, each.loop is not None) for each in self._scout.trainings]
        )
        if self._scout is not None:
            self._scout.close()
        return found + [(each, not each.closed) for each in own]

    def _write(self, report: dict[str, Any]) -> None:
        if self._options.report is None or not self._speaks:
            return
        from seismograd.reports.report import write_report

        try:
            write_report(report, self._options.report)
        except OSError as error:
            self._say(f"seismograd: {error}")

    def _write_page(self, report: dict[str, Any]) -> None:
        """One page, with the trainings of this process one after another."""
        if self._options.html is None or not self._speaks:
            return
        from seismograd.reports.page import write_page

        try:
            write_page(self._page(report), self._options.html)
        except OSError as error:
            self._say(f"seismograd: {error}")
        except Exception as error:
            self._failed("the page", error)

    def _page(self, report: dict[str, Any]) -> str:
        """Of what the store has; of the report alone where that cannot be read."""
        from contextlib import ExitStack

        from seismograd.reports.page import render_page

        try:
            with ExitStack() as stack:
                runs = [stack.enter_context(each.stored()) for each in self._watched]
                return render_page(runs or report, title=self._name)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self._say(f"seismograd: the run cannot be read back, so its page has no curves ({why})")
            return render_page(report, title=self._name)

    def _conclude(self, report: dict[str, Any]) -> None:
        """The verdict; if quiet, only if there is something to say."""
        grave = any(finding["severity"] != Severity.INFO.value for finding in report["findings"])
        if self._stream is None or not self._speaks or (self._options.quiet and not grave):
            return
        if not report["run"]["steps"] and not report["findings"]:  # one line, for which rich need not be imported
            told = report["run"]["exit"]["exception"]
            nothing = _NOTHING_FOUND if self._scout is not None and self._scout.backwards else _NO_BACKWARD
            self._say(nothing + (f", {told.splitlines()[0][:100]}" if told else "") + _of_processes())
            return
        from seismograd.reports.terminal import render_verdict
        from seismograd.sinks.display import Display

        display = self._display or Display(self._stream)
        display.print(render_verdict(report))
        if self._scout is not None and self._scout.unwatched and report["run"]["steps"]:
            self._say(f"seismograd: {_unwatched(self._scout.unwatched)}")
        self._say_where()

    def _say_where(self) -> None:
        """Where the runs are recorded, and what of them is not."""
        recorders = [each.recorder for each in self._watched if each.recorder is not None]
        recorded = [each for each in recorders if each.written]
        missing = next((told for each in recorders if (told := each.told()["missing"]) is not None), None)
        if missing is not None:
            self._say(f"seismograd: {'not all of it was' if recorded else 'it was not'} recorded: {missing}")
        if recorded:
            from seismograd.store.store import option

            ids, there = ", ".join(each.run for each in recorded[:3]), option(recorded[0].url)
            self._say(f"seismograd: recorded as {ids}: seismograd show last{there}, seismograd ui{there}")


class _Stop:
    """A sink that has the script stopped when something this severe is found."""

    def __init__(self, supervisor: Supervisor, severity: Severity) -> None:
        self._supervisor, self._severity = supervisor, severity

    def write_reading(self, reading: Reading) -> None: ...

    def write_finding(self, finding: Finding) -> None:
        if finding.severity.weight >= self._severity.weight:
            self._supervisor.want_stop()

    def update_finding(self, finding: Finding) -> None:
        self.write_finding(finding)

    def close(self, report: dict[str, Any]) -> None: ...


def _is_the_scripts(error: BaseException) -> bool:
    """Whether the script raised it, in a signal handler that ran while we were at work."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(INSTALLED):
            trace = trace.tb_next
        else:
            return True
    return False


def _unwatched(number: int) -> str:
    return f"{number} more trainings were not watched: there were too many, or they came too fast"


def _of_processes() -> str:
    """Where nothing was seen here: that it may have been elsewhere."""
    made = getattr(sys.modules.get("multiprocessing.process"), "_process_counter", None)
    if made is None or repr(made) == "count(1)":
        return ""
    return "; processes that the script started are not watched, but for an sg.watch in them"


def _worst(report: dict[str, Any]) -> int:
    return max((Severity(finding["severity"]).weight for finding in report["findings"]), default=-1)


def _was_killed(pid: int | None) -> bool:
    """Whether the process of another rank is gone, as far as it can be told: all are on this machine."""
    import psutil

    if pid is None or os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE"):
        return False
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:  # it may not be looked at
        return False


def _described(cause: BaseException | str | None) -> str | None:
    if cause is None or isinstance(cause, str):
        return cause
    if isinstance(cause, SystemExit):
        return None if cause.code is None or isinstance(cause.code, int) else f"SystemExit: {cause.code}"
    try:
        return f"{type(cause).__name__}: {cause}".rstrip(": ")
    except Exception:  # its __str__ fails
        return f"{type(cause).__name__}: <exception str() failed>"


def _exit(ending: Ending) -> NoReturn:
    """Leaves as `python` would; what there was to say has been said."""
    if ending.interrupted:
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    raise SystemExit(ending.code)
