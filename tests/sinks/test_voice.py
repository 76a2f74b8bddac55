"""Who speaks on the terminal where several ranks write to it."""

from __future__ import annotations

import io
from typing import Any

import pytest
import rich.console

from seismograd.records import Finding, Reading, Severity
from seismograd.reports.report import build_report
from seismograd.sinks import Console
from seismograd.sinks.display import Display
from seismograd.sinks.voice import Voice
from seismograd.training import TrainingDebugger


def finding(name: str = "memory-leak", severity: str = "warning", **more: Any) -> Finding:
    return Finding(name, Severity(severity), 3, f"{name} it is", recommendations=["mend it"], **more)


def console(out: io.StringIO) -> Console:
    return Console(rich.console.Console(file=out, width=80))


@pytest.fixture
def on_rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda rank: monkeypatch.setenv("RANK", str(rank))


def test_the_first_rank_tells_what_others_found_once() -> None:
    voice = Voice(0)
    assert voice.tells(finding(rank=3))
    assert not voice.tells(finding(rank=5))
    assert not voice.tells(finding())
    assert voice.tells(finding(severity="critical", rank=7)), "it got worse"
    assert voice.tells(finding(evidence={"series": 1})), "another optimizer"
    assert voice.tells(finding("x", "info"))


def test_two_guilty_ranks_are_both_told() -> None:
    voice = Voice(0)
    assert [voice.tells(finding("rank-straggler", rank=rank)) for rank in (1, 2, 1)] == [True, True, False]


def test_another_rank_tells_what_the_first_will_not() -> None:
    voice = Voice(2)
    assert not voice.tells(finding("x", "info", rank=2))
    assert [voice.tells(finding(rank=2)) for _ in range(2)] == [True, False]
    voice.leader_tells = lambda found: found.id == "known"
    assert not voice.tells(finding("known", rank=2))
    assert voice.tells(finding("unknown", rank=2))
    voice.leader_tells = lambda _: False
    assert voice.tells(finding("known", rank=2)), "the way to the first rank was lost: it is told now"


def test_a_way_to_the_leader_that_fails_is_none() -> None:
    def fails(_: Finding) -> bool:
        raise ConnectionError("gone")

    voice = Voice(1)
    voice.leader_tells = fails
    assert voice.tells(finding(rank=1))


def test_the_console_of_another_rank_is_short_and_gives_no_verdict(on_rank: Any) -> None:
    on_rank(3)
    out = io.StringIO()
    sink = console(out)
    sink.write_finding(finding(rank=3, evidence={"bytes": 5}))
    sink.update_finding(finding(rank=3, count=2))
    sink.write_finding(finding("x", "info", rank=3))
    sink.write_event({"event_type": "recovery", "message": "the update was skipped"})
    sink.close(build_report(run={"steps": 4}, findings=[finding(rank=3)]))
    assert out.getvalue() == "rank 3: warning[memory-leak]: memory-leak it is\n  --> step 3\n   = help: mend it\n"


def test_the_console_of_the_first_rank_is_as_it_was(on_rank: Any) -> None:
    on_rank(0)
    out = io.StringIO()
    sink = console(out)
    sink.write_finding(finding(rank=3))
    sink.close(build_report(run={"steps": 4, "ranks": 4}, findings=[finding(rank=3)]))
    told = out.getvalue()
    assert told.startswith("warning[memory-leak]: memory-leak it is\n  --> rank 3, step 3\n")
    assert "seismograd: warning after 4 steps on 4 ranks, 1 warning" in told


def test_the_display_of_another_rank_draws_nothing_and_tells_in_short() -> None:
    now = [0.0]
    out = io.StringIO()
    display = Display(out, rank=2, clock=lambda: now[0])
    sink: Any = display.sink()
    for step in range(100):
        now[0] += 10.0
        sink.write_reading(Reading(step, {"loss": 1.0}, rank=2))
    assert not out.getvalue()
    sink.leader_tells = lambda found: found.id == "lr-jump"
    sink.write_finding(finding("lr-jump", rank=2))
    sink.write_finding(finding(rank=2))
    sink.update_finding(finding(rank=2, count=5))
    sink.close(build_report(run={"steps": 100}))
    assert out.getvalue() == "rank 2: warning[memory-leak]: memory-leak it is\n  --> step 3\n   = help: mend it\n"


def test_a_quiet_display_of_another_rank_says_nothing() -> None:
    out = io.StringIO()
    Display(out, quiet=True, rank=2).sink().write_finding(finding(rank=2))
    assert not out.getvalue()


def test_the_watch_tells_its_sinks_whether_the_leader_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = console(io.StringIO())
    TrainingDebugger(sinks=[sink], store=False).close()
    assert sink.leader_tells is None or callable(sink.leader_tells)
    monkeypatch.setattr(TrainingDebugger, "leader_tells", lambda self, found: True, raising=False)
    debugger = TrainingDebugger(sinks=[sink], store=False)
    assert sink.leader_tells is not None
    assert sink.leader_tells(finding())
    debugger.close()


def test_what_another_rank_passed_on_is_told_with_its_rank(on_rank: Any) -> None:
    on_rank(0)
    out = io.StringIO()
    sink = console(out)
    sink.hear_finding(finding(rank=5))
    sink.hear_finding(finding(rank=6))
    assert out.getvalue().count("memory-leak it is") == 1
    assert "--> rank 5, step 3" in out.getvalue()
    shown = io.StringIO()
    display: Any = Display(shown).sink()
    display.hear_finding(finding(rank=5))
    assert "--> rank 5, step 3" in shown.getvalue()


def test_the_first_ranks_report_has_what_others_passed_on() -> None:
    debugger = TrainingDebugger(store=False)
    found = finding("nonfinite-loss", "critical", rank=2)
    debugger.others[found.key] = found
    report = debugger.report()
    assert (report["run"]["status"], [each["rank"] for each in report["findings"]]) == ("critical", [2])
    debugger.close()
