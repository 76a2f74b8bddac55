"""`seismograd runs | show | diagnose | html | diff | explain | prune`, as a user meets them."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import seismograd as sg
from seismograd.cli import app
from seismograd.records import Finding, Reading, Severity, Where
from seismograd.reports.plots import Line, Plot
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which nothing has to be left out, whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str, store: Path | str | None = None, **more: Any) -> tuple[int, str, str]:
    given = [*arguments, *([] if store is None else ["--store", str(store)])]
    result = CliRunner().invoke(app, given, **more)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def said(*arguments: str, store: Path | str | None = None) -> str:
    code, out, err = run(*arguments, store=store)
    assert (code, err) == (0, ""), err
    return out


def data(*arguments: str, store: Path | str | None = None, code: int = 0) -> dict[str, Any]:
    """What is printed as JSON, which has to be strict."""
    found, out, _ = run(*arguments, "--json", store=store)
    assert found == code

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    told: dict[str, Any] = json.loads(out, parse_constant=refuse)
    assert told["schema"] == 1
    return told


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, *, bad: bool = False) -> torch.Tensor:
        hidden = self.first(x).relu()
        if bad:
            hidden = torch.sqrt(hidden * 0.0)  # its derivative at zero is infinite
        return self.last(hidden)


def train(where: Path, name: str, *, lr: float = 0.05, bad: int = -1, steps: int = 60) -> str:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with sg.watch(model, optimizer, store=where, name=name, sinks=[]) as watch:
        for step in range(steps):
            x = torch.randn(32, 6)
            loss = nn.functional.cross_entropy(model(x, bad=step == bad), (x.sum(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 19:
                watch.validate(loss.item() + 0.1)
    return watch.id


def made(where: Path, name: str, *, ended: bool = True, **state: Any) -> Recorder:
    """A run of hand-made readings; `ended=False` leaves it open."""
    told = {"status": "healthy", "level": "basic", "steps": 40, **state}
    recorder = Recorder(url_of(where), f"id-{name}", name, state=lambda: told)
    for step in range(40):
        recorder.write_reading(Reading(step, {"loss": 1.0 / (step + 1), "grad/norm": 1.0, "lr/0": 0.1}))
    assert recorder.flush(60)
    if ended:
        recorder.close({"schema": 1, "run": {"id": f"id-{name}"}, "findings": []})
    return recorder


def age(where: Path, run_id: str, days: float) -> None:
    """The run began, lived and ended so many days ago."""
    with closing(sqlite3.connect(where / "seismograd.db")) as connection, connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        (ranks,) = (name for name in tables if name.endswith("ranks"))
        (runs,) = (name for name in tables if name.endswith("runs"))
        connection.execute(f"update {runs} set started = started - ? where id = ?", (days * 86400, run_id))
        connection.execute(
            f"update {ranks} set started = started - ?1, heartbeat = heartbeat - ?1, ended = ended - ?1 where run = ?2",
            (days * 86400, run_id),
        )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sick run, two twins and one with another learning rate. Nobody writes to it."""
    with pytest.MonkeyPatch.context() as patch:
        where = tmp_path_factory.mktemp("store")
        patch.setenv("SEISMOGRAD_HOME", str(where))
        patch.setattr("seismograd.governor.GRACE", 1e9)
        train(where, "base")
        train(where, "twin")
        train(where, "faster", lr=0.1)
        train(where, "sick", bad=30)
        return where


# -- runs --------------------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first(store: Path) -> None:
    lines = said("runs", store=store).splitlines()
    assert lines[0].split() == ["run", "name", "state", "status", "steps", "loss", "curve", "findings"]
    assert [line.split()[1] for line in lines[1:]] == ["sick", "faster", "twin", "base"]
    assert [line.split()[3] for line in lines[1:]] == ["critical", "healthy", "healthy", "healthy"]
    assert "nonfinite-gradient +" in lines[1]
    assert "!" in lines[1]
    assert re.search(r"[▁▂▃▄▅▆▇█]{24}", lines[2])
    assert max(map(len, lines)) <= 120


def test_runs_as_json(store: Path) -> None:
    told = data("runs", store=store)
    assert told["total"] == 4
    sick, *_, base = told["runs"]
    assert (sick["name"], sick["status"], sick["state"], sick["loss"]) == ("sick", "critical", "ended", "NaN")
    assert sick["findings"]["critical"] >= 1
    assert sick["first_finding"] == "nonfinite-gradient"
    assert (base["steps"], base["ranks"], base["findings"]) == (60, [0], {"critical": 0, "warning": 0, "info": 0})
    assert len(base["curve"]) == 24


def test_runs_can_be_fewer(store: Path) -> None:
    out = said("runs", "--limit", "1", store=store)
    assert "sick" in out
    assert "base" not in out
    assert "1 of 4 runs in" in out
    assert "--all lists the rest" in out
    assert "base" in said("runs", "--limit", "1", "--all", store=store)
    assert [each["name"] for each in data("runs", "--status", "critical", store=store)["runs"]] == ["sick"]
    healthy = data("runs", "--status", "healthy", "--limit", "2", store=store)["runs"]
    assert [each["name"] for each in healthy] == ["faster", "twin"]
    assert data("runs", "--status", "live", "--status", "lost", store=store)["runs"] == []


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_list_keeps_to_the_width(store: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = said("runs", store=store).splitlines()
    assert max(map(len, lines)) <= width
    assert all(re.match(r"\d{8}-\d{6}-[0-9a-f]{6}", line) for line in lines[1:])  # the id is never cut
    assert ("took" in lines[0]) == (width >= 200)


def test_a_live_and_a_lost_run_are_told_apart(tmp_path: Path) -> None:
    lost, live = made(tmp_path, "killed", ended=False), made(tmp_path, "going", ended=False)
    try:
        age(tmp_path, "id-killed", 1)
        states = {each["name"]: each["state"] for each in data("runs", store=tmp_path)["runs"]}
        assert states == {"going": "live", "killed": "lost"}
        assert "the run goes on" in said("diagnose", "going", "--again", store=tmp_path)
    finally:
        for recorder in (lost, live):
            recorder.close({"schema": 1, "run": {}, "findings": []})


def test_an_empty_store_says_how_to_begin(tmp_path: Path) -> None:
    made(tmp_path, "only")
    with open_store(tmp_path) as found:
        found.delete("id-only")
    assert "Begin with: seismograd run train.py" in said("runs", store=tmp_path)
    assert data("runs", store=tmp_path)["runs"] == []


def test_the_store_is_where_the_environment_says(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEISMOGRAD_STORE", str(store))
    assert "sick" in said("runs")
    monkeypatch.setenv("SEISMOGRAD_STORE", "off")  # nothing is recorded, but what was can be read
    monkeypatch.setenv("SEISMOGRAD_HOME", str(store))
    assert "sick" in said("runs")


def test_runs_are_looked_for_where_they_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEISMOGRAD_STORE")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.seismograd]\nstore = "records"\n')
    model = Net()
    with sg.watch(model, sinks=[], name="configured"):
        model(torch.randn(4, 6)).sum().backward()
    assert (tmp_path / "records" / "seismograd.db").is_file()
    assert "configured" in said("runs")
    assert [each.name for each in sg.runs()] == ["configured"]
    monkeypatch.setenv("SEISMOGRAD_STORE", "elsewhere")  # goes before what the file says, for both
    with sg.watch(model, sinks=[], name="by variable"):
        model(torch.randn(4, 6)).sum().backward()
    assert [each.name for each in sg.runs()] == ["by variable"]
    assert "by variable" in said("runs")


def test_a_wrong_store_in_pyproject_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nstore = 3\n")
    code, _, err = run("runs")
    assert code == 2
    assert "store is 3: it takes a path" in err


def test_a_loss_that_was_never_finite_is_said_once(tmp_path: Path) -> None:
    debugger = sg.TrainingDebugger(store=tmp_path)
    for step in range(3):
        debugger.step(step, math.nan, [[0.1]], 0.01)
    debugger.close()
    assert "loss  NaN, 3 not finite" in said("show", store=tmp_path)


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    made(tmp_path, "\x1b[31m[bold]red[/bold]\n<b>&")
    out = said("runs", store=tmp_path)
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2
    assert "?[31m[bold]" in out
    assert "\x1b" not in said("show", store=tmp_path)


def test_a_layer_cannot_move_the_cursor(tmp_path: Path) -> None:
    layer = "\x1b[2J\x9bA[bold]layer"
    recorder = made(tmp_path, "x", ended=False)
    recorder.write_finding(
        Finding("loss-spike", Severity.WARNING, 3, f"{layer} " + "is long " * 20, where=Where(module=layer))
    )
    recorder.close({"schema": 1, "run": {"id": "id-x"}, "findings": []})
    for command in ("show", "diagnose"):
        out = said(command, store=tmp_path)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out)
        assert "module [2JA[bold]layer" in out
        assert len(re.findall("is long", " ".join(out.split()))) == 20  # and nothing is cut off


def test_a_terminal_without_unicode_gets_all_but_the_letters_it_lacks(store: Path) -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "COLUMNS": "40"}
    for command in (["runs"], ["show", "sick"], ["diagnose", "sick"], ["diff", "base", "sick"], ["explain"]):
        more = [] if command == ["explain"] else ["--store", str(store)]
        done = start(*command, *more, env=ascii_only)
        assert done.returncode == (1 if command[0] == "diff" else 0), done.stderr
        assert done.stdout.isascii()
    page = start("html", "sick", "-o", "-", "--store", str(store), env=ascii_only)
    assert (page.returncode, page.stdout.strip()[-7:]) == (0, "</html>")  # as UTF-8, which it says it is


# -- show --------------------------------------------------------------------------------------------------------------


def test_show_draws_the_run(store: Path) -> None:
    out = said("show", "base", store=store)
    lines = out.splitlines()
    assert re.fullmatch(r"\S+  base  ended  healthy", lines[0])
    assert "60 steps, level advanced" in lines[1]
    titles = [line for line in lines if re.match(r"(loss|grad/norm|lr/0)  ", line)]
    assert [title.split()[0] for title in titles] == ["loss", "grad/norm", "lr/0"]
    assert "o val_loss" in titles[0]
    assert any("┤" in line and re.search(r"[⠀-⣿]", line) for line in lines)
    for part in ("time of a step", "memory", "environment", "torch", "nothing was found"):
        assert part in out
    assert max(map(len, lines)) <= 120
    share = re.search(r"^  watch +(\d+)%", out, re.MULTILINE)
    assert share is not None
    assert int(share[1]) <= 5 or "a short run: the watch's first two seconds" in out


def test_show_names_what_was_found_and_what_is_saved(store: Path) -> None:
    out = said("show", "sick", store=store)
    assert "critical[nonfinite-gradient]" in out
    assert "saved steps  seismograd replay" in out
    assert "in full: seismograd diagnose" in out
    assert "not finite" in out


def test_show_as_json(store: Path) -> None:
    told = data("show", "sick", store=store)
    assert told["run"]["name"] == "sick"
    assert told["run"]["about"]["torch"] == torch.__version__
    assert told["series"]["loss"]["last"][-1] == "NaN"
    assert told["series"]["loss"]["steps"][-1] == 59
    assert told["findings"][0]["id"] == "nonfinite-gradient"
    assert told["captures"][0]["step"] == 30
    assert told["whole"] == [[0, 59]]
    assert told["performance"]["seconds"]["forward"] > 0


def test_a_run_has_many_names(store: Path) -> None:
    newest = data("runs", store=store)["runs"][0]["id"]
    for name in ("last", newest, newest[:20], "sick"):
        assert data("show", name, store=store)["run"]["id"] == newest
    assert data("show", store=store)["run"]["id"] == newest


@pytest.mark.parametrize("width", [50, 80])
def test_show_keeps_to_the_width(store: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, said("show", "sick", store=store).splitlines())) <= width


# -- plots -------------------------------------------------------------------------------------------------------------


def test_show_begins_with_the_first_value_and_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    recorder = Recorder(url_of(tmp_path), "20260101-000000-abcdef", "a name of some length", state=dict)
    for step in range(500):  # more than are drawn: a point stands for several steps
        recorder.write_reading(Reading(step, {"loss": 1000.0 - step}))
    recorder.close({"schema": 1, "run": {"id": "x"}, "findings": []})
    out = said("show", store=tmp_path)
    assert "loss  1,000 to 501" in out
    assert "healthy" in out.split("steps")[0]


def drawn(plot: Plot, encoding: str = "utf-8", width: int = 40) -> list[str]:
    import io

    from rich.console import Console

    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=out, width=width, color_system=None).print(plot)
    out.flush()
    return out.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]


def test_a_plot_shows_extremes_of_what_a_point_stands_for() -> None:
    low, high = [1.0] * 100, [1.0] * 100
    high[50] = 9.0
    lines = drawn(Plot(Line("loss", range(100), low, high), height=4))
    assert lines[0] == "loss"
    assert lines[1].startswith("        9 ┤")
    column = re.search(r"[⠁-⣿]", lines[1])
    assert column is not None
    assert abs(column.start() - (11 + 29 // 2)) <= 1
    assert lines[-1].split() == ["0", "50", "99"]


def test_a_plot_without_unicode_has_the_same_axes() -> None:
    values = [10.0 ** (-step / 10) for step in range(60)]
    lines = drawn(Plot(Line("loss", range(60), values, values)), "ascii")
    assert lines[1].startswith("        1 +*")  # over a hundredfold: by the logarithm
    assert lines[6].rstrip().endswith("*")
    assert all(len(line) <= 40 for line in lines)


def test_a_plot_of_what_is_not_finite_says_so() -> None:
    values = [1.0, 2.0, math.nan, math.nan]
    lines = drawn(Plot(Line("loss", range(4), values, values), height=3))
    assert "!!" in lines[3]
    assert drawn(Plot(Line("loss", range(2), [math.nan] * 2, [math.inf] * 2)))[1].strip() == "no finite value"
    flat = drawn(Plot(Line("lr", [0, 1], [0.1, 0.1], [0.1, 0.1]), height=3))
    assert [line[:11].strip() for line in flat[1:4]] == ["│", "0.1 ┤", "│"]
    assert drawn(Plot(Line("x", [0, 1], [-1e308, 1e308], [-1e308, 1e308])))[0] == "x"


# -- diagnose ----------------------------------------------------------------------------------------------------------


def test_diagnose_prints_the_findings_in_full(store: Path) -> None:
    out = said("diagnose", "sick", store=store)
    assert out.startswith("seismograd: critical after 60 steps")
    assert "critical[nonfinite-gradient]" in out
    assert "torch.sqrt(hidden * 0.0)" in out
    assert "= help: " in out
    assert "= evidence: " in out
    assert said("diagnose", "base", store=store) == "seismograd: healthy after 60 steps, nothing found\n"


def test_diagnose_again_finds_the_same(store: Path) -> None:
    live, again = data("diagnose", "sick", store=store), data("diagnose", "sick", "--again", store=store)
    assert again["findings"] == live["findings"]
    assert again["run"] == live["run"]
    assert "again" not in live
    assert again["again"] == {
        "spans": [{"start": 0, "stop": 59, "width": 1, "whole": True}],
        **{"whole": True, "unrecorded": None, "kept": [], "gone": [], "new": [], "notes": []},
    }
    assert said("diagnose", "sick", "--again", store=store).endswith("judged again: every reading was there\n")


def test_diagnose_fails_on_what_is_severe(store: Path) -> None:
    assert run("diagnose", "sick", "--fail-on", "critical", store=store)[0] == 3
    assert run("diagnose", "sick", store=store)[0] == 0
    assert run("diagnose", "base", "--fail-on", "warning", store=store)[0] == 0


@pytest.mark.parametrize("again", [[], ["--again"]])
def test_diagnose_ignores_what_is_to_be_ignored(store: Path, again: list[str]) -> None:
    told = data("diagnose", "sick", *again, "--ignore", "nonfinite-gradient,nonfinite-loss", store=store)
    ids = {finding["id"] for finding in told["findings"]}
    assert "nonfinite-parameter" in ids
    assert not ids & {"nonfinite-gradient", "nonfinite-loss"}
    assert not {finding["evidence"].get("because") for finding in told["findings"]} & {
        "nonfinite-gradient",
        "nonfinite-loss",
    }
    code, _, err = run("diagnose", "base", *again, "--ignore", "nonfinite-grad", store=store)
    assert code == 0
    assert "--ignore nonfinite-grad names no finding, did you mean nonfinite-gradient" in err


def test_diagnose_again_takes_the_limits_of_pyproject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "runs"
    recorder = Recorder(url_of(where), "flat", "flat", state=lambda: {"status": "healthy", "steps": 300})
    for step in range(300):
        recorder.write_reading(Reading(step, {"loss": 1.0, "lr/0": 0.1 * (step < 100)}))
    recorder.write_finding(Finding("loss-spike", Severity.INFO, 9, "it jumped"))
    recorder.close({"schema": 1, "run": {"id": "flat", "steps": 300}, "findings": []})
    monkeypatch.chdir(tmp_path)
    assert "lr-jump" in {each["id"] for each in data("diagnose", "--again", store=where)["findings"]}
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text("[tool.seismograd.limits.lr-jump]\ndead = 100000\n[tool.seismograd.limits.nonsense]\na = 1\n")
    code, out, err = run("diagnose", "--again", store=where)
    assert code == 0
    assert "lr-jump" not in out
    assert "note: loss-spike of step 9 was found live, and not again with these limits" in out
    assert "limits.nonsense] names no finding" in err
    pyproject.write_text("[tool.seismograd.limits.lr-jump]\ndaed = 1\n")
    code, _, err = run("diagnose", "--again", store=where)
    assert code == 2
    assert "has no limit 'daed'" in err


# -- html, diff, explain -----------------------------------------------------------------------------------------------


def test_html_writes_the_page(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    newest = data("runs", store=store)["runs"][0]["id"]
    assert said("html", store=store) == f"seismograd-{newest}.html\n"
    page = (tmp_path / f"seismograd-{newest}.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "nonfinite-gradient" in page
    told = data("html", "base", "-o", "deep/down.html", store=store)
    assert told["path"] == str(tmp_path / "deep" / "down.html")
    assert told["bytes"] == (tmp_path / "deep" / "down.html").stat().st_size
    assert said("html", "base", "-o", "-", store=store).lstrip().lower().startswith("<!doctype html>")
    code, _, err = run("html", "base", "-o", str(tmp_path), store=store)
    assert (code, "it is a folder, give a file" in err) == (2, True)


def test_a_run_says_what_it_takes(store: Path) -> None:
    one = sg.runs(store)[0]
    with pytest.raises(TypeError, match="'loss-spike' is not a detector: it needs id"):
        one.check(["loss-spike"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="other is 'base': it takes a run"):
        one.compare("base")  # type: ignore[arg-type]


def test_stdout_takes_the_page_or_the_json(store: Path) -> None:
    code, out, err = run("html", "-o", "-", "--json", store=store)
    assert (code, out) == (2, "")
    assert "not both" in err


def test_diff_of_twins_and_of_others(store: Path) -> None:
    out = said("diff", "base", "twin", store=store)
    assert out.startswith("bit-equal: ")
    code, out, _ = run("diff", "base", "faster", store=store)
    assert code == 1
    assert "The runs part at step 0: lr/0 is 0.05 against 0.1" in out
    assert "when each quantity parts" in out
    assert re.search(r"^  loss +step 1$", out, re.MULTILINE)
    assert "how far apart they are" in out
    assert max(map(len, out.splitlines())) <= 120
    told = data("diff", "base", "faster", store=store, code=1)
    assert (told["verdict"], told["parted"]["quantity"], told["layer"]["layer"]) == ("parted", "lr/0", "first.weight")
    assert data("diff", "base", "faster", "--rtol", "10", store=store)["verdict"] == "equal"
    told = data("diff", "base", "sick", store=store, code=1)
    assert told["parted"]["step"] == 30


def test_explain_as_json() -> None:
    told = data("explain", "loss-plateau")["findings"]
    assert [each["id"] for each in told] == ["loss-plateau"]
    assert told[0]["markdown"].startswith("# loss-plateau")
    assert told[0]["group"] == "learning"
    every = data("explain")["findings"]
    assert len(every) > 50
    assert all(each["title"] for each in every)
    code, _, err = run("explain", "loss-plateu", "--json")
    assert (code, "did you mean loss-plateau" in err) == (2, True)


# -- prune -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Path]:
    """Four runs of 0, 10, 20 and 30 days ago, of which the oldest has a saved step, and one that goes on."""
    where = tmp_path / "many"
    for number in range(4):
        made(where, f"run{number}")
        age(where, f"id-run{number}", 10 * number)
    live = made(where, "live", ended=False)
    saved = where / "id-run3" / "step-000007-nonfinite-loss"
    saved.mkdir(parents=True)
    (saved / "capture.json").write_bytes(b"{" + b" " * 5000 + b"}")
    yield where
    live.close({"schema": 1, "run": {}, "findings": []})


def names(where: Path) -> list[str]:
    return sorted(each["name"] for each in data("runs", store=where)["runs"])


def test_prune_removes_by_age_number_and_name(many: Path) -> None:
    assert said("prune", "--days", "25", "--yes", store=many).splitlines()[-1].startswith("1 run removed, ")
    assert names(many) == ["live", "run0", "run1", "run2"]
    assert not (many / "id-run3").exists()
    said("prune", "--days", "5", "--keep", "3", "--yes", store=many)  # all that is said has to fit
    assert names(many) == ["live", "run0", "run1"]
    said("prune", "run1", "id-run0", "--yes", store=many)
    assert names(many) == ["live"]
    assert "there is nothing to remove" in said("prune", "--days", "5", "--yes", store=many)


def test_a_run_that_goes_on_is_never_removed(many: Path) -> None:
    out = said("prune", "--keep", "0", "--yes", store=many)
    assert "id-live goes on and stays" in out
    assert names(many) == ["live"]
    code, _, err = run("prune", "live", "--yes", store=many)
    assert (code, err) == (2, "seismograd: id-live goes on: stop it first\n")


def test_saved_steps_count_in_how_large_a_run_is(many: Path) -> None:
    (many / "id-run3" / "tensors.safetensors").write_bytes(bytes(3 << 20))
    told = data("prune", "--larger-than", "2MB", "--dry-run", store=many)
    assert [each["name"] for each in told["runs"]] == ["run3"]


def test_prune_only_shows_when_it_is_dry(many: Path) -> None:
    out = said("prune", "--days", "15", "--dry-run", store=many)
    assert "2 runs would go" in out
    told = data("prune", "--days", "15", "--dry-run", store=many)
    assert [each["id"] for each in told["runs"]] == ["id-run2", "id-run3"]
    assert told["runs"][1]["bytes"] >= 5000
    assert told["freed"] == 0
    assert len(names(many)) == 5
    assert (many / "id-run3").is_dir()


def test_prune_asks_first(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("prune", "--days", "15", store=many)
    assert (code, "nobody can be asked here" in err) == (2, True)
    monkeypatch.setattr("seismograd.cli.pruning._is_asked", lambda: True)
    code, _, _ = run("prune", "--days", "15", store=many, input="n\n")
    assert code == 1
    assert len(names(many)) == 5
    code, _, err = run("prune", "--days", "15", store=many, input="y\n")
    assert code == 0
    assert "remove 2 runs, about" in err
    assert names(many) == ["live", "run0", "run1"]


def test_prune_gives_the_space_back(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for number in range(2):
        recorder = Recorder(url_of(tmp_path), f"big{number}", "big", state=lambda: {"steps": 4000})
        for step in range(4000):
            values = torch.rand(20, generator=generator, dtype=torch.float64).tolist()
            recorder.write_reading(Reading(step, {f"v{at}": value for at, value in enumerate(values)}))
            if step % 1000 == 999:
                assert recorder.flush(60)
        recorder.close({"schema": 1, "run": {}, "findings": []})
    path = tmp_path / "seismograd.db"
    before = path.stat().st_size
    assert data("prune", "--larger-than", "1GB", "--yes", store=tmp_path)["runs"] == []
    told = data("prune", "big0", "--yes", store=tmp_path)
    after = path.stat().st_size
    assert after < 0.7 * before
    assert told["freed"] >= before - after > 100_000
    assert [each["id"] for each in data("prune", "--larger-than", "100kB", "--yes", store=tmp_path)["runs"]] == ["big1"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "say which runs are to go"),
        (["base", "--days", "3"], "name runs, or say which"),
        (["--larger-than", "many"], "'many' is no size"),
        (["nobody", "--yes"], "there is no run 'nobody'"),
    ],
)
def test_prune_refuses_what_it_does_not_understand(store: Path, arguments: list[str], problem: str) -> None:
    code, out, err = run("prune", *arguments, store=store)
    assert (code, out) == (2, "")
    assert problem in err
    assert len(err.splitlines()) == 1


def test_a_link_is_not_followed(many: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    shutil.rmtree(many / "id-run3")
    (many / "id-run3").symlink_to(precious, target_is_directory=True)
    said("prune", "run3", "--yes", store=many)
    assert (precious / "data").exists()


# -- what goes wrong ---------------------------------------------------------------------------------------------------

COMMANDS = (["runs"], ["show"], ["diagnose"], ["html"], ["diff", "a", "b"], ["prune", "--keep", "1"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_store_that_is_none_is_said_in_a_line(command: list[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.db"
    wrong.write_bytes(b"this is no database" * 100)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("create table runs (id)")
    newer = tmp_path / "newer"
    made(newer, "x")
    with closing(sqlite3.connect(newer / "seismograd.db")) as connection, connection:
        connection.execute("update seismograd_meta set value = '99' where name = 'schema'")
    (tmp_path / "file.txt").write_text("x")
    problems = {
        tmp_path / "nothing": "there is no store at",
        wrong: "file is not a database",
        foreign: "is no store of Seismograd's",
        newer: "has schema 99",
        tmp_path / "file.txt": "neither a folder nor a .db file",
        "": "--store is empty",
        "mysql://root@localhost/runs": "cannot be kept in 'mysql'",
        "postgresql://nobody@127.0.0.1:1/runs": "cannot be opened",
    }
    for where, problem in problems.items():
        code, out, err = run(*command, store=where)
        assert (code, out) == (2, ""), where
        assert problem in err, where
        assert len(err.splitlines()) == 1, err
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SEISMOGRAD_STORE", "mysql://root@localhost/runs", "cannot be kept in 'mysql'"),
        ("SEISMOGRAD_STORE_LIMIT", "0.5", "SEISMOGRAD_STORE_LIMIT is '0.5'"),
        (None, "", "--store is empty"),
    ],
)
def test_a_wrong_store_is_said_before_the_script_starts(
    name: str | None, value: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it was started')\n")
    monkeypatch.delenv("SEISMOGRAD_STORE", raising=False)
    if name is not None:
        monkeypatch.setenv(name, value)
    options = [] if name is not None else ["--store", value]
    command = [sys.executable, "-m", "seismograd", "run", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


TINY = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad(), model(torch.ones(4, 2)).square().mean().backward(), optimizer.step()
"""


def test_run_says_where_it_is_recorded_and_show_looks_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEISMOGRAD_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TINY)

    def heard(*arguments: str) -> str:
        command = [sys.executable, "-m", "seismograd", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    told = heard("run", "--store", "my runs", "--name", "first try", "train.py")
    assert "seismograd show last --store 'my runs', seismograd ui" in told
    assert sg.runs("my runs")[0].name == "first try"
    (tmp_path / "pyproject.toml").write_text('[tool.seismograd]\nstore = "ours"\n')
    assert "seismograd show last, seismograd ui" in heard("run", "train.py")
    code, out, _ = run("runs", "--json")
    assert (code, len(json.loads(out)["runs"])) == (0, 1)
    monkeypatch.setenv("SEISMOGRAD_STORE", "my runs")
    assert len(sg.runs()) == 1
    (tmp_path / "file").write_text("x")
    told = heard("run", "--store", "file/store", "train.py")
    assert "seismograd: it was not recorded: the last" in told
    assert "recorded as" not in told


@pytest.mark.parametrize("command", [["show"], ["diagnose"], ["html"], ["diff", "base"]], ids=lambda each: each[0])
def test_a_run_that_is_not_there_is_said_with_what_is(command: list[str], store: Path) -> None:
    code, _, err = run(*command, "bsae", store=store)
    assert (code, "did you mean 'base'?" in err) == (2, True)
    code, _, err = run(*command, "20", store=store)
    assert (code, "is the beginning of 4 runs" in err) == (2, True)


# -- as a program ------------------------------------------------------------------------------------------------------


def start(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seismograd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **more)


def test_no_command_imports_torch(store: Path, tmp_path: Path) -> None:
    program = """
import sys
from seismograd.cli import app
for arguments in (["runs"], ["runs", "--json"], ["show"], ["diagnose", "--again"], ["diff", "base", "twin"],
                  ["html", "-o", sys.argv[2]], ["prune", "--keep", "9", "--yes"], ["explain", "loss-plateau"]):
    more = [] if arguments[0] == "explain" else ["--store", sys.argv[1]]
    try:
        app([*arguments, *more], prog_name="seismograd")
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
    assert "torch" not in sys.modules, arguments
"""
    command = [sys.executable, "-c", program, str(store), str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_pipe_gets_no_colours_and_may_be_closed(store: Path) -> None:
    done = start("show", "sick", "--store", str(store))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    command = f"{sys.executable} -m seismograd show sick --store {store} | head -1"
    piped = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert len(piped.stdout.splitlines()) == 1
    assert "Traceback" not in piped.stderr


def test_a_terminal_gets_colours_unless_it_wants_none(store: Path) -> None:
    import pty

    def shown(**more: str) -> str:
        leader, follower = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **more}
        command = [sys.executable, "-m", "seismograd", "runs", "--store", str(store)]
        with subprocess.Popen(command, stdout=follower, stdin=follower, stderr=subprocess.PIPE, env=environment):
            os.close(follower)
            out = b""
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    part = os.read(leader, 65536)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                out += part
        os.close(leader)
        return out.decode()

    assert "\x1b[1;31mcritical" in shown()
    assert "\x1b[1;31m" not in shown(NO_COLOR="1")


def test_a_damaged_record_is_said_in_a_line(tmp_path: Path) -> None:
    made(tmp_path, "one")
    made(tmp_path, "other")
    with closing(sqlite3.connect(tmp_path / "seismograd.db")) as connection, connection:
        (segments,) = (
            name for (name,) in connection.execute("select name from sqlite_master where name like '%segments'")
        )
        connection.execute(f"update {segments} set scalars = x'00112233' where run = 'id-one'")
    code, _, err = run("diagnose", "one", "--again", store=tmp_path)
    assert code == 0
    assert err.startswith("seismograd: steps 0 to 39 of the run id-one are left out: ")
    assert len(err.splitlines()) == 1
    told = data("diff", "one", "other", store=tmp_path, code=1)
    assert told["verdict"] == "incomparable"
    assert run("runs", store=tmp_path)[0] == run("show", "one", store=tmp_path)[0] == 0
    with closing(sqlite3.connect(tmp_path / "seismograd.db")) as connection, connection:
        connection.execute("update seismograd_ranks set report = '{' where run = 'id-one'")
    code, _, err = run("show", "one", store=tmp_path)
    assert code == 2
    assert err.startswith("seismograd: the store is damaged: it has JSON that cannot be read")
