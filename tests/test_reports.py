"""Reports on hand-made findings: their shape, their order, their text at 80 and 200 columns."""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

import seismograd
from seismograd.judge import ranked
from seismograd.records import DebugLevel, Finding, Severity, Where
from seismograd.reports.report import build_report, finding_of, read_report, write_report
from seismograd.reports.terminal import render_finding, render_verdict
from seismograd.reports.words import describe_evidence


def finding(name: str, severity: str = "warning", step: int = 1, **more: Any) -> Finding:
    return Finding(name, Severity(severity), step, more.pop("message", f"{name} it is"), **more)


ROOT = finding(
    "nonfinite-gradient",
    "critical",
    12,
    message="the gradient of 3 of 8 parameters is NaN, first in encoder.1.weight; the loss is still finite",
    where=Where("encoder.1", None, "aten.sqrt", "backward", "train.py", 42, "    h = torch.sqrt(h)"),
    evidence={"norm": math.nan, "limit": 100.0, "parameters": ["a.weight", "b.weight", "c.weight", "d.weight"]},
    recommendations=[
        "sqrt has an infinite derivative at 0: take it of h + 1e-8, so that it is never taken of zero",
        "skip such samples",
    ],
    count=3,
    last_step=14,
)
EFFECT = finding(
    "nonfinite-parameter",
    "critical",
    13,
    message="4 parameters hold NaN",
    evidence={"because": "nonfinite-gradient", "tensors": 4},
    recommendations=["start again from a checkpoint before step 12", "watch it"],
)


def report_on(*findings: Finding, **run: Any) -> dict[str, Any]:
    return build_report(run={"steps": 120, "overhead": {"budget": 0.01, "measured": 0.0061}, **run}, findings=findings)


def text(renderable: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(renderable)
    return out.getvalue()


def test_the_report_has_the_shape_of_the_design() -> None:
    report = build_report(
        run={"id": "r1", "name": "mine", "steps": 20, "level": DebugLevel.BASIC},
        findings=[ROOT],
        summary={"loss": math.inf},
        events=[{"at": 1}],
        memory=[{"rss": np.int64(5)}],
        performance={"step": np.float32(0.5)},
    )
    assert list(report) == ["schema", "version", "run", "findings", "summary", "events", "memory", "performance"]
    assert (report["schema"], report["version"]) == (1, seismograd.__version__)
    assert report["run"] == {
        "id": "r1",
        "name": "mine",
        "status": "critical",
        "steps": 20,
        "ranks": 1,
        "level": "basic",
        "started": None,
        "ended": None,
        "exit": {"code": None, "exception": None},
        "overhead": {"budget": None, "measured": None},
    }
    told = report["findings"][0]
    keys = "id severity step last_step count rank where message evidence recommendations"
    assert list(told) == keys.split()
    assert list(told["where"]) == ["module", "parameter", "op", "phase", "file", "line", "code"]
    assert told["evidence"]["norm"] == "NaN"
    assert report["summary"] == {"loss": "Infinity"}
    assert (report["memory"], report["performance"]) == ([{"rss": 5}], {"step": 0.5})
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize(
    ("findings", "ended", "status"),
    [
        ([], None, "healthy"),
        ([finding("a", "info")], None, "healthy"),
        ([finding("a", "warning")], None, "warning"),
        ([finding("a", "info"), finding("b", "critical")], None, "critical"),
        ([finding("a", "critical")], {"code": 1, "exception": "ValueError: no"}, "crashed"),
    ],
)
def test_the_status_follows_from_the_findings(findings: list[Finding], ended: dict[str, Any], status: str) -> None:
    assert build_report(run={"exit": ended}, findings=findings)["run"]["status"] == status


def test_most_severe_first_then_earliest() -> None:
    given = [
        finding("a", "info", 1),
        finding("b", "critical", 9),
        finding("c", "warning", 2),
        finding("d", "critical", 3),
    ]
    assert [f.id for f in ranked(given)] == ["d", "b", "c", "a"]


def test_an_effect_stands_below_its_cause_which_is_as_severe_as_the_effect() -> None:
    given = [
        finding("effect", "critical", 3, evidence={"because": "cause"}),
        finding("other", "warning", 1),
        finding("cause", "warning", 4),
        finding("late", "critical", 9),
    ]
    assert [f.id for f in ranked(given)] == ["cause", "late", "effect", "other"]


def test_findings_that_blame_each_other_or_nobody_there_are_all_kept() -> None:
    given = [
        finding("a", evidence={"because": "b"}),
        finding("b", evidence={"because": "a"}),
        finding("c", evidence={"because": "absent"}),
        finding("d", evidence={"because": "d"}),
    ]
    assert {f.id for f in ranked(given)} == set("abcd")
    shown = text(render_verdict(report_on(*given)))
    assert all(shown.count(f"warning[{f.id}]") == 1 for f in given)


def test_a_finding_survives_the_report() -> None:
    entry = report_on(ROOT)["findings"][0]
    assert finding_of(entry).to_dict() == {**ROOT.to_dict(), "evidence": {**ROOT.evidence, "norm": "NaN"}}


@given(st.recursive(st.none() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_whatever_is_in_it_the_report_is_strict_json(value: Any) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    report = build_report(run={}, summary={"x": value})
    json.loads(json.dumps(report, allow_nan=False), parse_constant=refuse)


def test_a_written_report_reads_the_same(tmp_path: Path) -> None:
    report = report_on(ROOT, EFFECT)
    path = tmp_path / "new" / "folder" / "out.json"
    assert write_report(report, path) == path
    assert read_report(path) == report
    write_report(report_on(), str(path))
    assert read_report(path)["findings"] == []
    assert os.listdir(path.parent) == ["out.json"], "no draft is left"


def test_writing_follows_a_link_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_report(report_on(), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert read_report(tmp_path / "real.json")["schema"] == 1


def test_a_report_that_cannot_be_written_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError, match=r"cannot be written to '.*taken/out.json' \(.+\): give a path"):
        write_report(report_on(), tmp_path / "taken" / "out.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"cannot be written to '.*folder' \(Is a directory\)"):
        write_report(report_on(), tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "taken"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1}', '{"schema": 99, "run": {}}', "\x00"])
def test_what_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"x\.json' (is not a report|has schema 99)"):
        read_report(path)


def test_a_finding_at_80_columns() -> None:
    assert text(render_finding(ROOT), 80) == (
        "critical[nonfinite-gradient]: the gradient of 3 of 8 parameters is NaN, first in\n"
        "    encoder.1.weight; the loss is still finite\n"
        "  --> train.py:42, module encoder.1, op aten.sqrt in backward, steps 12 to 14 (3\n"
        "      times)\n"
        "42 |     h = torch.sqrt(h)\n"
        "   = evidence: norm=NaN, limit=100, parameters=[a.weight, b.weight, c.weight, a…\n"
        "   = help: sqrt has an infinite derivative at 0: take it of h + 1e-8, so that it\n"
        "           is never taken of zero\n"
        "   = help: skip such samples\n"
    )


def test_a_finding_at_200_columns_is_no_wider_than_120() -> None:
    assert text(render_finding(ROOT), 200) == (
        "critical[nonfinite-gradient]: the gradient of 3 of 8 parameters is NaN, first in encoder.1.weight; "
        "the loss is still\n"
        "    finite\n"
        "  --> train.py:42, module encoder.1, op aten.sqrt in backward, steps 12 to 14 (3 times)\n"
        "42 |     h = torch.sqrt(h)\n"
        "   = evidence: norm=NaN, limit=100, parameters=[a.weight, b.weight, c.weight, and 1 more]\n"
        "   = help: sqrt has an infinite derivative at 0: take it of h + 1e-8, so that it is never taken of zero\n"
        "   = help: skip such samples\n"
    )


def test_a_brief_finding_keeps_the_first_advice_only() -> None:
    shown = text(render_finding(ROOT, brief=True), 120)
    assert "evidence" not in shown
    assert shown.count("= help") == 1
    assert "= help" not in text(render_finding(EFFECT, brief=True)), "the cause is to be mended"
    assert text(render_finding(EFFECT)).count("= help") == 2


@pytest.mark.parametrize("width", [1, 10, 24, 40, 79, 80, 81, 200])
def test_no_line_is_wider_than_the_terminal_nor_ends_in_blanks(width: int) -> None:
    for line in text(render_verdict(report_on(ROOT, EFFECT)), width).splitlines():
        assert len(line) <= max(width, 1)
        assert line == line.rstrip()


def test_text_of_the_user_is_shown_as_it_is() -> None:
    odd = finding("a", message="[bold]x[/] :smile: \x1b[31m", where=Where(file="[red].py", line=1))
    shown = text(render_finding(odd))
    assert "[bold]x[/] :smile:" in shown
    assert "[red].py:1" in shown


def test_colour_only_in_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        out = io.StringIO()
        Console(file=out, force_terminal=True, color_system="standard", width=80).print(render_finding(ROOT))
        return out.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mcritical" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shown()


def test_places_are_told_as_far_as_they_are_known() -> None:
    assert "  --> step 1\n" in text(render_finding(finding("a")))
    assert "  --> parameter fc.weight, optimizer 1, rank 3, step 1\n" in text(
        render_finding(finding("a", where=Where("fc", "fc.weight"), rank=3, evidence={"series": 1}))
    )
    assert "  --> module fc, forward, steps 1 to 9 (2 times)\n" in text(
        render_finding(finding("a", where=Where("fc", phase="forward"), last_step=9, count=2))
    )


def test_evidence_in_one_line() -> None:
    evidence = {
        "norm": 123456.789,
        "n": 3,
        "ok": True,
        "by": {"a": 1e-9, "b": -math.inf},
        "because": "x",
        "text": "a\nb",
    }
    assert describe_evidence(evidence) == "norm=1.235e+05, n=3, ok=True, by={a: 1e-09, b: -Infinity}, text=a b"


def test_a_healthy_run_gets_one_line() -> None:
    assert text(render_verdict(report_on())) == "seismograd: healthy after 120 steps, nothing found, overhead 0.6%\n"
    assert text(render_verdict(build_report(run={"steps": 1}))) == "seismograd: healthy after 1 step, nothing found\n"
    remarked = report_on(finding("loss-spike", "info"), finding("lr-jump", "info"))
    assert text(render_verdict(remarked), 200) == (
        "seismograd: healthy after 120 steps, 2 remarks (loss-spike, lr-jump), overhead 0.6%\n"
    )


def test_a_verdict_puts_what_follows_under_its_cause() -> None:
    report = report_on(ROOT, EFFECT, finding("loss-spike", "warning", 3))
    assert text(render_verdict(report), 110) == (
        "seismograd: critical after 120 steps, 2 critical, 1 warning, overhead 0.6%\n"
        "\n"
        "critical[nonfinite-gradient]: the gradient of 3 of 8 parameters is NaN, first in encoder.1.weight; "
        "the loss is\n"
        "    still finite\n"
        "  --> train.py:42, module encoder.1, op aten.sqrt in backward, steps 12 to 14 (3 times)\n"
        "42 |     h = torch.sqrt(h)\n"
        "   = evidence: norm=NaN, limit=100, parameters=[a.weight, b.weight, c.weight, and 1 more]\n"
        "   = help: sqrt has an infinite derivative at 0: take it of h + 1e-8, so that it is never taken of zero\n"
        "   = help: skip such samples\n"
        "   = then: critical[nonfinite-parameter]: 4 parameters hold NaN\n"
        "\n"
        "warning[loss-spike]: loss-spike it is\n"
        "  --> step 3\n"
    )


def test_a_crash_is_told_in_the_headline() -> None:
    shown = text(render_verdict(report_on(exit={"code": 1, "exception": "ValueError: no\nmore"})), 200)
    assert shown == "seismograd: crashed after 120 steps, nothing found, overhead 0.6%, ValueError: no\n"
    long = text(render_verdict(report_on(exit={"exception": f"ValueError: {'x' * 1000}"})), 200)
    assert long.endswith(" " + "x" * 87 + "…\n"), "all of it stands in the traceback"


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        ("KeyboardInterrupt", ", stopped by Ctrl-C"),
        ("SIGTERM", ", stopped by SIGTERM"),
        ("SystemExit: 3", ", sys.exit(3)"),
        ("SystemExit: 0", ""),
        ("SystemExit", ""),
    ],
)
def test_an_end_that_is_no_crash_is_told_as_what_it_is(exception: str, words: str) -> None:
    shown = text(render_verdict(report_on(status="healthy", exit={"exception": exception})), 200)
    assert shown == f"seismograd: healthy after 120 steps, nothing found, overhead 0.6%{words}\n"


@pytest.mark.parametrize(
    ("exception", "words"),
    [(None, ""), ("KeyboardInterrupt", ", stopped by Ctrl-C"), ("OSError: no 'data'\nmore", ", OSError: no 'data'")],
)
def test_a_run_without_a_backward_pass_gets_one_line_and_no_praise(exception: str | None, words: str) -> None:
    report = report_on(steps=0, exit={"code": 1, "exception": exception})
    assert text(render_verdict(report)) == f"seismograd: no backward pass was seen{words}\n"
    report = report_on(steps=0, exit={"code": 1, "exception": "OSError: " + "far too long " * 20})
    assert text(render_verdict(report)).count("\n") == 1
    assert "warning[a]" in text(render_verdict(report_on(finding("a"), steps=0)))


def test_the_share_of_a_run_of_seconds_is_left_out() -> None:
    def shown(ended: str) -> str:
        return text(render_verdict(report_on(started="2026-01-01T00:00:00.000+00:00", ended=ended)), 200)

    assert shown("2026-01-01T00:00:09.900+00:00") == "seismograd: healthy after 120 steps, nothing found\n"
    assert "overhead 0.6%" in shown("2026-01-01T00:00:30.000+00:00")


def test_the_share_is_left_out_where_it_alone_would_take_a_second_line() -> None:
    report = report_on(status="healthy", exit={"exception": "KeyboardInterrupt"})
    whole = "seismograd: healthy after 120 steps, nothing found, overhead 0.6%, stopped by Ctrl-C\n"
    assert text(render_verdict(report), len(whole) - 1) == whole
    assert text(render_verdict(report)) == whole.replace(" overhead 0.6%,", "")
    assert "overhead" in text(render_verdict(report), 40), "it takes several lines in any case"


def several(*findings: Finding, runs: int = 2, **run: Any) -> dict[str, Any]:
    """The report on several runs in one process, as `seismograd run` makes it."""
    return {**report_on(*findings, steps=300, overhead={}, **run), "runs": [report_on()] * runs}


def of_run(number: int, found: Finding, **more: Any) -> Finding:
    return replace(found, evidence={**found.evidence, "run": number}, **more)


def test_several_runs_are_counted_and_a_finding_says_which_is_its() -> None:
    report = several(of_run(2, finding("a", "critical", where=Where("fc"), evidence={"norm": 3.0, "series": 1})))
    assert text(render_verdict(report)) == (
        "seismograd: critical after 2 runs, 300 steps, 1 critical\n"
        "\n"
        "critical[a]: a it is\n"
        "  --> module fc, run 2, optimizer 1, step 1\n"
        "   = evidence: norm=3\n"
    )
    assert text(render_verdict(several())) == "seismograd: healthy after 2 runs, 300 steps, nothing found\n"
    assert text(render_verdict(several(runs=1))) == "seismograd: healthy after 300 steps, nothing found\n"


def test_what_several_runs_have_in_common_is_told_once() -> None:
    report = several(*(of_run(n, each, step=n) for n in (3, 1, 2, 5) for each in (ROOT, EFFECT)), runs=5)
    shown = text(render_verdict(report), 120)
    assert shown.count("critical[nonfinite-gradient]") == 1
    assert shown.endswith(
        "   = help: skip such samples\n"
        "   = also: in runs 2, 3 and 5\n"
        "   = then: critical[nonfinite-parameter]: 4 parameters hold NaN\n"
    )
    assert "run 1, steps 1 to 14" in shown
    many = several(*(of_run(n, finding("a"), step=n) for n in range(1, 21)), runs=20)
    assert "   = also: in runs 2, 3, 4, 5, 6, 7, 8 and 12 more\n" in text(render_verdict(many))


def test_a_cause_is_one_of_the_same_run() -> None:
    cause, effect = finding("cause", "critical"), finding("effect", evidence={"because": "cause"})
    alone = text(render_verdict(several(of_run(1, cause), of_run(2, effect))))
    assert "then:" not in alone
    assert "warning[effect]: effect it is\n  --> run 2, step 1\n   = because: cause\n" in alone
    both = text(render_verdict(several(of_run(1, cause), of_run(2, cause), of_run(2, effect), of_run(3, effect))))
    assert "   = also: in run 2\n   = then: warning[effect] (run 2): effect it is\n" in both
    assert "\nwarning[effect]: effect it is\n  --> run 3, step 1\n" in both


def test_a_cause_is_one_of_the_same_optimizer_if_it_can_be() -> None:
    causes = [finding("cause", message=f"of {n}", evidence={"series": n}) for n in (0, 1)]
    effect = finding("effect", evidence={"because": "cause", "series": 1})
    lines = text(render_verdict(report_on(*causes, effect))).splitlines()
    assert lines.index("   = then: warning[effect]: effect it is") > lines.index("warning[cause]: of 1")


def test_a_finding_may_be_told_with_the_name_of_its_run() -> None:
    assert "  --> module fc, run 2, step 1\n" in text(render_finding(finding("a", where=Where("fc")), run="run 2"))


@pytest.mark.parametrize("height", [6, 10, 16, 24, 40])
@pytest.mark.parametrize("width", [80, 200])
def test_a_verdict_fits_on_one_screen(height: int, width: int) -> None:
    many = [finding(f"fault-{i}", "warning", i, recommendations=["do this", "do that"]) for i in range(20)]
    lines = text(render_verdict(report_on(ROOT, EFFECT, *many), height=height), width).splitlines()
    assert any(line.startswith("critical[nonfinite-gradient]") for line in lines)
    assert lines[-1].startswith("... and ")
    assert len(lines) <= max(height, 10 if width == 80 else 8)
