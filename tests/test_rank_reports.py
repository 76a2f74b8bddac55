"""Several ranks in one report: what they share is told once, and they stand side by side. All on hand-made records."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from typer.testing import CliRunner

from seismograd.judge import causes_of
from seismograd.records import Finding, Reading, Severity
from seismograd.reports.rank_table import rank_lines
from seismograd.reports.ranks import gravest_first, merged, sides, which_ranks, with_ranks
from seismograd.reports.report import build_report, join_reports
from seismograd.reports.stories import stories
from seismograd.reports.terminal import render_finding, render_verdict
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of


def finding(name: str, severity: str = "warning", step: int = 1, **more: Any) -> Finding:
    return Finding(name, Severity(severity), step, more.pop("message", f"{name} it is"), **more)


def state(**more: Any) -> dict[str, Any]:
    last = {"loss": more.pop("loss", 0.5), "time/step": 0.05}
    told = {"status": "healthy", "steps": 100, "summary": {"last": last}, "overhead": {"measured": 0.01}}
    return {**told, **more}


def text(renderable: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(renderable)
    return out.getvalue()


# -- findings ----------------------------------------------------------------------------------------------------------


def test_what_several_ranks_have_is_told_once_by_the_lowest() -> None:
    found = merged(finding("memory-leak", rank=rank, message=f"of {rank}") for rank in (3, 1, 2))
    assert [(each.rank, each.message, each.evidence["ranks"]) for each in found] == [(1, "of 1", [1, 2, 3])]


def test_it_is_told_by_the_rank_that_knows_where_it_began() -> None:
    found = merged(
        [
            finding("nonfinite-loss", "critical", rank=0),
            finding("nonfinite-loss", "critical", rank=2, evidence={"origin": {"op": "sqrt"}}),
        ]
    )
    assert [(each.rank, each.evidence["ranks"]) for each in found] == [(2, [0, 2])]
    assert which_ranks(found[0], 2) == "rank 2, then rank 0"
    three = merged([*found, finding("nonfinite-loss", "critical", 5, rank=1)])
    assert which_ranks(three[0], 3) == "rank 2, then 2 more"
    both = merged(finding("nonfinite-loss", "critical", rank=rank, evidence={"origin": {}}) for rank in (0, 1))
    assert which_ranks(both[0], 2) == "all 2 ranks", "each has it from itself"


def test_it_is_as_severe_as_the_worst_of_them() -> None:
    found = merged([finding("a", "warning", rank=0), finding("a", "critical", rank=1), finding("a", "info", rank=2)])
    assert [(each.rank, each.severity, each.evidence["ranks"]) for each in found] == [(1, Severity.CRITICAL, [0, 1, 2])]
    located = merged([finding("a", "critical", rank=0), finding("a", rank=1, evidence={"origin": {}})])
    assert [(each.rank, each.severity) for each in located] == [(1, Severity.CRITICAL)]


def test_another_optimizer_or_another_run_is_another_fault() -> None:
    given = [finding("a", rank=rank, evidence={"series": series}) for rank in (0, 1) for series in (0, 1)]
    assert [each.evidence for each in merged(given)] == [
        {"series": 0, "ranks": [0, 1]},
        {"series": 1, "ranks": [0, 1]},
    ]
    assert len(merged([finding("a", evidence={"run": 1}), finding("a", rank=1, evidence={"run": 2})])) == 2


def test_another_attempt_is_another_fault_and_explains_nothing() -> None:
    given = [
        finding("nonfinite-loss", "critical", 5, rank=1, evidence={"origin": {"op": "sqrt"}}),
        finding("nonfinite-gradient", "critical", 5, rank=0, evidence={"because": "nonfinite-loss"}),
        finding("nonfinite-gradient", "critical", 50, rank=0, evidence={"attempt": 1}),
        finding("nonfinite-loss", "critical", 60, rank=1, evidence={"attempt": 1}),
        finding("rank-nonfinite", "critical", 60, rank=1, evidence={"attempt": 1}),
    ]
    found = merged(given)
    assert sorted((each.id, each.step) for each in found) == sorted((each.id, each.step) for each in given)
    because = {(each.id, each.step): each.evidence.get("because") for each in found}
    assert because["nonfinite-gradient", 5] == "nonfinite-loss"
    assert because["nonfinite-gradient", 50] is None, "what came later, and another attempt, explain nothing"
    at = {id(each): place for place, each in enumerate(found)}
    for each, cause in zip(found, causes_of(found), strict=True):
        assert cause is None or at[id(each)] != cause
    roots = {(story.finding.id, story.finding.step) for story in stories(found)}
    assert {("nonfinite-loss", 5), ("nonfinite-gradient", 50)} <= roots


def test_a_cause_that_nobody_tells_is_not_named() -> None:
    given = [finding("a", rank=0, evidence={"because": "gone", "x": 1}), finding("b", rank=1)]
    assert [dict(each.evidence) for each in merged(given)] == [{"x": 1}, {}]


def test_two_guilty_ranks_are_two_faults() -> None:
    given = [finding("rank-straggler", rank=rank) for rank in (5, 3)]
    assert [(each.rank, dict(each.evidence)) for each in merged(given)] == [(5, {}), (3, {})]


def test_of_very_many_ranks_a_few_are_named_and_all_are_counted() -> None:
    (one,) = merged(finding("a", rank=rank) for rank in range(1024))
    assert (one.evidence["ranks"], one.evidence["rank_count"]) == (list(range(16)), 1024)
    assert which_ranks(one, 1024) == "all 1,024 ranks"
    assert which_ranks(one, 2000) == "ranks 0, 1, 2, 3, 4, 5, 6 and 1,017 more"
    assert merged([*merged(finding("a", rank=rank) for rank in range(1024)), finding("a", rank=7)]) == [one]


def test_a_run_of_one_rank_is_left_as_it_is() -> None:
    given = [finding("a", rank=3), finding("b", "critical", rank=3)]
    assert merged(given) == [given[1], given[0]]


def test_what_follows_from_a_fault_of_another_rank_stands_under_it() -> None:
    found = merged(
        [
            finding("nonfinite-gradient", "critical", 12, rank=0),
            finding("nonfinite-parameter", "critical", 12, rank=0, evidence={"because": "nonfinite-gradient"}),
            finding("nonfinite-loss", "critical", 12, rank=1, evidence={"origin": {"op": "sqrt"}}),
        ]
    )
    (told,) = stories(found)
    assert told.finding.id == "nonfinite-loss"
    assert [(each.finding.id, each.finding.evidence["because"]) for each in told.after()] == [
        ("nonfinite-gradient", "nonfinite-loss"),
        ("nonfinite-parameter", "nonfinite-gradient"),
    ]


def test_what_came_before_and_what_has_a_place_of_its_own_follow_from_nothing() -> None:
    loss = finding("nonfinite-loss", "critical", 12, rank=1, evidence={"origin": {}})
    for other in (
        finding("nonfinite-gradient", "critical", 11, rank=0),
        finding("nonfinite-gradient", "critical", 12, rank=0, evidence={"origin": {}}),
        finding("nonfinite-gradient", "critical", 12, rank=0, evidence={"because": None}),
        finding("memory-leak", "critical", 12, rank=0),
    ):
        assert all(each.evidence.get("because") is None for each in merged([loss, other]))


def test_a_cause_that_only_one_of_them_knows_is_that_of_all() -> None:
    found = merged(
        [
            finding("loss-explosion", rank=0),
            finding("loss-explosion", rank=1, evidence={"because": "lr-too-high"}),
            finding("lr-too-high", rank=1),
        ]
    )
    assert [(each.id, each.evidence.get("because")) for each in found] == [
        ("lr-too-high", None),
        ("loss-explosion", "lr-too-high"),
    ]


def test_two_that_blame_each_other_across_ranks_are_both_told() -> None:
    given = [
        finding("a", rank=0, evidence={"because": "b"}),
        finding("b", rank=1, evidence={"because": "a"}),
    ]
    assert {each.finding.id for story in stories(merged(given)) for each in (story, *story.after())} == {"a", "b"}


def test_a_cause_is_looked_for_on_the_own_rank_first() -> None:
    given = [
        finding("effect", rank=1, evidence={"because": "cause"}),
        finding("cause", rank=0),
        finding("cause", rank=1),
        finding("cause", rank=2),
        finding("cause", rank=3, evidence={"because": "cause"}),
        finding("lone", evidence={"because": "nobody"}),
    ]
    assert causes_of(given) == [2, None, None, None, 1, None]
    given[3] = finding("cause", rank=2, evidence={"origin": {}})
    assert causes_of(given) == [3, None, None, None, 3, None]


def test_the_place_names_a_rank_only_where_there_are_several() -> None:
    own = finding("a")
    assert "rank" not in text(render_finding(own))
    assert "--> rank 0, step 1" in text(render_finding(own, ranks=2))
    assert "--> rank 3, step 1" in text(render_finding(finding("a", rank=3)))
    shared = merged(finding("a", rank=rank) for rank in (0, 2))[0]
    assert "--> ranks 0 and 2, step 1" in text(render_finding(shared, ranks=4))
    assert "--> all 2 ranks, step 1" in text(render_finding(shared, ranks=2))
    assert "evidence" not in text(render_finding(shared, ranks=2))


# -- side by side ------------------------------------------------------------------------------------------------------


def test_sides_have_the_shape_of_the_report() -> None:
    states = {
        1: state(status="crashed", host="b", pid=7, attempt=1, exit={"code": 1, "exception": "E: x"}, life="ended"),
        0: state(performance={"seconds_per_reading": 0.04}),
    }
    found = sides(states, [finding("a", rank=1), finding("b", "critical", rank=1)])
    assert [side["rank"] for side in found] == [0, 1]
    assert found[0] == {
        "rank": 0,
        "host": None,
        "pid": None,
        "attempt": 0,
        "life": None,
        "status": "healthy",
        "steps": 100,
        "last_step": 99,
        "loss": 0.5,
        "seconds": 0.04,
        "overhead": 0.01,
        "exit": {"code": None, "exception": None},
        "ended": None,
        "findings": {"critical": 0, "warning": 0, "info": 0},
    }
    assert found[1]["findings"] == {"critical": 1, "warning": 1, "info": 0}
    assert (found[1]["host"], found[1]["pid"], found[1]["attempt"], found[1]["seconds"]) == ("b", 7, 1, 0.05)
    assert sides({0: state()}) == []


def test_a_rank_that_told_nothing_yet_is_there() -> None:
    found = sides({0: {}, 1: state()})
    assert (found[0]["status"], found[0]["steps"], found[0]["loss"]) == ("healthy", 0, None)
    assert rank_lines(found, 80)


def test_a_report_has_ranks_only_where_there_are_several() -> None:
    assert "ranks" not in build_report(run={})
    report = build_report(run={"ranks": 2}, ranks=sides({0: state(), 1: state(loss=float("nan"))}))
    assert [side["loss"] for side in report["ranks"]] == [0.5, "NaN"]
    json.dumps(report, allow_nan=False)


def test_joined_reports_keep_the_number_of_ranks() -> None:
    reports = [build_report(run={"ranks": 4, "steps": 2}), build_report(run={"steps": 1})]
    assert join_reports(reports, {"name": "x"})["run"]["ranks"] == 4


def test_the_gravest_come_first() -> None:
    states = {rank: state() for rank in range(9)}
    states[8] = state(status="critical")
    states[7] = state(life="lost")
    states[6] = state(steps=60)
    states[5] = state(loss=float("nan"))
    states[4] = state(performance={"seconds_per_reading": 0.2})
    order = [side["rank"] for side in gravest_first(sides(states, [finding("a", rank=3)]))]
    assert order == [8, 7, 6, 3, 5, 4, 0, 1, 2]


def test_a_table_of_very_many_ranks_is_short() -> None:
    states = {rank: state(host=f"node{rank // 8}") for rank in range(1024)}
    states[700] |= {"status": "critical", "steps": 90}
    lines = [line.plain for line in rank_lines(sides(states), 100)]
    assert len(lines) == 10
    assert any(line.split()[:4] == ["700", "node87", "90", "critical"] for line in lines)
    assert lines[-1] == "  and 1,016 more: healthy, 100 steps, loss 0.5, 50 ms a step"


def test_a_table_fits_its_width_and_leaves_out_what_is_the_same() -> None:
    found = sides({0: state(host="a" * 30), 1: state(host="a" * 30, status="warning")}, [finding("x", rank=1)])
    wide = [line.plain for line in rank_lines(found, 120)]
    assert wide[0].split() == ["rank", "steps", "status", "loss", "a", "step", "overhead", "findings"]
    assert wide[2].split()[-2:] == ["1", "warning"]
    for width in range(12, 80):
        assert all(line.cell_len <= width for line in rank_lines(found, width))
    assert rank_lines(found[:1], 80) == []


def test_a_long_exception_takes_no_other_column_away() -> None:
    exit_ = {"code": 1, "exception": f"RuntimeError: {'connection closed by peer ' * 4}"}
    found = sides({0: state(status="crashed", exit=exit_), 1: state(steps=71, life="lost")})
    lines = [line.plain for line in rank_lines(found, 60)]
    assert lines[0].split() == ["rank", "steps", "status", "state", "loss", "findings"]
    assert lines[1].endswith("\N{HORIZONTAL ELLIPSIS}")
    assert lines[2].split() == ["1", "71", "healthy", "lost", "0.5"]
    narrow = [line.plain for line in rank_lines(found, 40)]
    assert narrow[2].split() == ["1", "healthy", "lost"], "who is lost matters most"


def test_the_verdict_says_whose_error_ended_the_others() -> None:
    ends = {0: "RuntimeError: Connection closed by peer", 1: "ValueError: bad batch"}
    states = {r: state(status="crashed", exit={"code": 1, "exception": told}) for r, told in ends.items()}
    run = {"steps": 100, "ranks": 2, "status": "crashed", "exit": {"code": 1, "exception": ends[0]}}
    told = text(render_verdict(build_report(run=run, ranks=sides(states))))
    assert "nothing found, RuntimeError: Connection closed" in told
    assert told.rstrip().endswith("ValueError: bad batch")


def test_the_verdict_on_several_ranks() -> None:
    given = [finding("memory-leak", rank=rank) for rank in (0, 1)] + [finding("lr-jump", rank=1)]
    states = {0: state(status="warning"), 1: state(status="warning", steps=98)}
    report = build_report(run={"steps": 100, "ranks": 2}, findings=given, ranks=sides(states, given))
    told = text(render_verdict(report))
    assert told.startswith("seismograd: warning after 100 steps on 2 ranks, 2 warning")
    assert "--> all 2 ranks, step 1" in told
    assert "--> rank 1, step 1" in told
    assert told.rstrip().splitlines()[-1].split()[:3] == ["1", "98", "warning"]
    healthy = build_report(run={"steps": 100, "ranks": 2}, ranks=sides({0: state(), 1: state()}))
    assert text(render_verdict(healthy)).count("\n") == 1


def test_a_verdict_still_fits_the_screen() -> None:
    given = [finding(f"fault-{at}", rank=at % 20) for at in range(12)]
    states = {rank: state() for rank in range(20)}
    report = build_report(run={"steps": 100, "ranks": 20}, findings=given, ranks=sides(states, given))
    for height in (8, 23, 40, 60):
        assert text(render_verdict(report, height=height)).count("\n") <= max(height, 10)


def test_one_ranks_report_takes_what_is_known_of_all() -> None:
    own = build_report(run={"steps": 5, "exit": {"code": 0}}, findings=[finding("a"), finding("b", count=3)])
    others = [finding("a", rank=1), finding("c", "critical", rank=2), finding("b")]
    whole = build_report(run={"ranks": 3}, findings=[finding("a"), *others], ranks=sides({0: {}, 1: {}, 2: {}}))
    found = with_ranks(own, whole)
    assert (found["run"]["ranks"], found["run"]["status"], found["run"]["exit"]["code"]) == (3, "critical", 0)
    assert [(each["id"], each["rank"], each["count"], each["evidence"]) for each in found["findings"]] == [
        ("c", 2, 1, {}),
        ("a", 0, 1, {"ranks": [0, 1]}),
        ("b", 0, 3, {}),
    ]
    assert len(found["ranks"]) == 3


# -- stored ------------------------------------------------------------------------------------------------------------


def written(where: Path, run: str, ranks: int, **states: dict[str, Any]) -> None:
    for rank in range(ranks):
        told = state(**states.get(f"rank{rank}", {}))
        recorder = Recorder(url_of(where), run, "several", rank=rank, state=lambda told=told: told)
        for step in range(20):
            recorder.write_reading(Reading(step, {"loss": 1.0 / (1 + step), "time/step": 0.05}, rank=rank))
        recorder.write_finding(finding("memory-leak", rank=rank))
        if rank == 1:
            recorder.write_finding(finding("lr-jump", "critical", rank=rank))
        recorder.close(build_report(run={"id": run}))


def test_a_stored_run_has_its_ranks_in_report_and_terminal(tmp_path: Path) -> None:
    from seismograd.cli import app

    written(tmp_path, "three", 3, rank1={"status": "critical", "host": "other"})
    written(tmp_path, "alone", 1)
    with open_store(tmp_path) as store:
        report = store.run("three").report()
        assert [each["id"] for each in report["findings"]] == ["lr-jump", "memory-leak"]
        assert [(side["rank"], side["status"], side["life"]) for side in report["ranks"]] == [
            (0, "healthy", "ended"),
            (1, "critical", "ended"),
            (2, "healthy", "ended"),
        ]
        assert "ranks" not in store.run("alone").report()

    def said(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--store", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.stdout

    shown = said("show", "three")
    assert "3 ranks" in shown
    assert "  rank  host" in shown
    assert shown.count("warning[memory-leak]") == 1
    assert "--> all 3 ranks, step 1" in shown
    assert "--> rank 1, step 1" in shown
    alone = said("show", "alone")
    assert "rank" not in alone.partition("in full:")[0]
    assert "--> all 3 ranks, step 1" in said("diagnose", "three")
    listed = said("runs").splitlines()
    assert "ranks" in listed[0]
    rows = {row["id"]: row for row in json.loads(said("runs", "--json"))["runs"]}
    assert (rows["three"]["ranks"], rows["three"]["attempts"]) == ([0, 1, 2], 1)
    assert rows["three"]["findings"] == {"critical": 1, "warning": 1, "info": 0}
    assert len(json.loads(said("show", "three", "--json"))["ranks"]) == 3


# -- what is found between ranks ---------------------------------------------------------------------------------------


def test_how_it_spread_stands_between_where_it_began_and_what_others_saw() -> None:
    found = merged(
        [
            finding("rank-nonfinite", "critical", 12, rank=1),
            finding("nonfinite-loss", "critical", 12, rank=1, evidence={"origin": "loss"}),
            finding("nonfinite-gradient", "critical", 12, rank=0),
            finding("nonfinite-gradient", "critical", 12, rank=2),
        ]
    )
    (told,) = stories(found)
    assert told.finding.id == "nonfinite-loss"
    assert [(each.finding.id, each.finding.evidence.get("ranks")) for each in told.after()] == [
        ("rank-nonfinite", None),
        ("nonfinite-gradient", [0, 2]),
    ]


def test_why_a_rank_is_slow_only_it_knows() -> None:
    slow = finding("rank-straggler", step=20, rank=3)
    found = merged([slow, finding("data-starvation", step=40, rank=3)])
    assert {each.id: each.evidence.get("because") for each in found} == {
        "rank-straggler": "data-starvation",
        "data-starvation": None,
    }
    assert all("because" not in each.evidence for each in merged([slow, finding("data-starvation", rank=2)]))
