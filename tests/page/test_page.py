"""The report page: what is on it, that nothing breaks out of it, and that it stays small."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import seismograd as sg
from seismograd.records import Finding, Severity, Where
from seismograd.reports.page import render_page, write_page
from seismograd.reports.report import build_report, join_reports

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x00\ud800`</code>`"

NAN = Finding(
    "nonfinite-gradient",
    Severity.CRITICAL,
    12,
    "the gradient of 3 of 8 parameters is NaN",
    where=Where("encoder.1", None, "aten.sqrt", "backward", "train.py", 42, "    h = torch.sqrt(h)  # here"),
    evidence={
        "origin": "backward",
        "columns": [8, 21],
        "inputs": [{"name": "self", "low": 0.0, "high": 3.0, "size": 2}],
    },
    recommendations=("take it of `h + 1e-8`", "skip such samples"),
    last_step=14,
    count=3,
)
EFFECT = Finding("nonfinite-loss", Severity.CRITICAL, 13, "the loss is NaN", evidence={"because": "nonfinite-gradient"})
REMARK = Finding("blind-probe", Severity.INFO, 3, "probe Memory: OSError: no such file")


def report_on(*findings: Finding, **run):
    return build_report(run={"name": "train.py", "steps": 120, "level": "basic", **run}, findings=findings)


# -- a real run --------------------------------------------------------------------------------------------------------


def test_a_sick_run_is_told_from_verdict_to_environment(sick_page, made):
    page = sick_page.read_text(encoding="utf-8")
    text = made.text_of(page)
    assert "nan.py: critical" in text
    assert "The gradient of at least one parameter holds NaN or infinite values" in text
    assert "It began at step 23 in nan.py , line 24, the op aten.sqrt of the backward pass." in text
    assert "nonfinite-parameter and nonfinite-loss follow from it" in text
    assert "Do this first: Add the epsilon inside, not after it: torch.sqrt(x + 1e-8) ." in text
    assert "24 return torch.sqrt((difference**2).sum(dim=1)) # at zero its derivative is infinite" in text
    assert "aten.sqrt: inputs 0 to 5.18, 1 of 256 is 0" in text
    for title in ("Loss", "Gradient norm", "Learning rate", "Update ratio", "Dead units", "Memory", "Environment"):
        assert f">{title}</" in page
    assert "37 values not finite (NaN), from step 23 on" in text
    assert "nan.py --token=***" in text
    assert "hf_abc" not in page
    assert len(page) < 150_000


def test_the_mark_stands_under_the_op(sick_page):
    page = sick_page.read_text(encoding="utf-8")
    code = re.search(r"<pre.*?</pre>", page, re.DOTALL)[0]
    line, under = re.sub(r"<[^>]+>", "", code).split("\n")
    marked = re.search(r"<mark>(.*?)</mark>", code)[1]
    assert line.index(marked) == under.index("^")
    assert under.count("^") == len(marked)


def test_a_run_gives_its_page_and_writes_it(sick_run, tmp_path):
    path = tmp_path / "new" / "page.html"
    text = sick_run.html(path)
    assert path.read_text(encoding="utf-8") == text
    assert "torch.sqrt" in text
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]


def test_a_watch_gives_its_page_while_it_goes_on_and_after(tmp_path):
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[], store=tmp_path / "store", name="mine") as run:
        for step in range(30):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
            if step == 20:
                during = run.html()
    after = run.html(tmp_path / "page.html")
    assert "healthy so far" in during
    assert "still running" in during
    assert "This run looks healthy<" in after
    assert ">Gradient norm</p>" in after
    assert (tmp_path / "page.html").read_text() == after


def test_without_a_store_a_watch_still_has_a_page():
    import torch

    model = torch.nn.Linear(3, 1)
    with sg.watch(model, sinks=[], store=False) as run:
        model(torch.ones(4, 3)).square().mean().backward()
    page = run.html()
    assert "The run was not stored" in page
    assert f"<dd>{torch.__version__}</dd>" in page


@pytest.mark.parametrize("store", ["off", "home"])
def test_several_trainings_are_one_page(store, tmp_path, made):
    script = tmp_path / "twice.py"
    script.write_text(
        "import torch\n"
        "for seed in range(2):\n"
        "    model = torch.nn.Linear(3, 1)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for _ in range(12):\n"
        "        optimizer.zero_grad()\n"
        "        model(torch.randn(4, 3)).square().mean().backward()\n"
        "        optimizer.step()\n"
    )
    command = [sys.executable, "-m", "seismograd", "run", "-q", "--store", store, "--html", "page.html", "twice.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    text = made.text_of(page)
    assert "2 runs in one process" in text
    assert "Run 1 of 2" in text
    assert "Run 2 of 2" in text
    assert page.count(">Environment</h3>") == 2
    assert page.count('class="chart"') == (6 + 2 if store == "home" else 2)  # three curves, and memory


def test_a_program_that_ends_with_an_error_has_its_page_too(tmp_path, made):
    (tmp_path / "fails.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(3, 1)\n"
        "for _ in range(3):\n"
        "    model(torch.randn(4, 3)).square().mean().backward()\n"
        "raise ValueError('no more </script> data')\n"
    )
    command = [sys.executable, "-m", "seismograd", "run", "-q", "--html", "deep/page.html", "fails.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 1
    text = made.text_of((tmp_path / "deep" / "page.html").read_text(encoding="utf-8"))
    assert "The program ended with an error" in text
    assert "ValueError: no more </script> data." in text


def test_a_folder_is_refused_before_the_script_starts(tmp_path):
    command = [sys.executable, "-m", "seismograd", "run", "--html", str(tmp_path), "missing.py"]
    (tmp_path / "missing.py").write_text("print('started')")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 2
    assert "the page cannot be written to" in done.stderr
    assert "started" not in done.stdout


def test_a_page_takes_no_torch(sick_page):
    code = (
        "import sys\n"
        "from seismograd.store import open_store\n"
        f"with open_store({str(sick_page.parent / 'home')!r}) as store:\n"
        "    assert 'torch.sqrt' in store.run('last').html()\n"
        "assert not {'torch', 'plotly'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"the page cannot be written to '.*file/page.html'"):
        write_page("text", tmp_path / "file" / "page.html")


# -- made by hand ------------------------------------------------------------------------------------------------------


def test_a_report_alone_has_verdict_findings_and_environment(made):
    text = made.text_of(render_page(report_on(NAN, EFFECT, exit={"code": 1, "exception": "ValueError: bad luck"})))
    assert "It ended after 120 steps: ValueError: bad luck." in text
    assert "42 h = torch.sqrt(h) # here" in text
    assert "What follows from it critical nonfinite-loss the loss is NaN" in text
    assert "Level basic" in text
    assert "Exit code 1" in text


def test_what_is_no_run_is_refused():
    with pytest.raises(TypeError, match="not of int"):
        render_page(3)
    with pytest.raises(ValueError, match="no 'run'"):
        render_page({"schema": 1})
    with pytest.raises(ValueError, match="no run"):
        render_page([])


def test_findings_come_most_severe_first_and_effects_under_their_cause(made):
    warning = Finding("overfitting", Severity.WARNING, 5, "validation turned up")
    page = render_page(report_on(REMARK, warning, EFFECT, NAN))
    order = re.findall(r'<article class="finding (\w+)" id="finding-(\d)"', page)
    assert order == [("critical", "1"), ("warning", "2"), ("info", "3")]
    first = page[page.index('id="finding-1"') : page.index('id="finding-2"')]
    assert "nonfinite-loss" in first
    assert "Besides it there is 1 more finding: overfitting" in made.text_of(page)


def test_a_healthy_run_says_what_was_looked_at_and_what_not(made):
    curves = {name: made.series(name, np.linspace(2, 1, 50)) for name in ("loss", "grad/norm", "lr/0", "time/step")}
    heats = {("gradient", "norm"): (("a.weight", "b.weight"), np.ones((2, 5)))}
    run = made.Stored(curves, heats, (REMARK,), level="basic", overhead={"measured": 0.01, "steps_read": 0.25})
    text = made.text_of(render_page(run))
    assert "This run looks healthy" in text
    assert (
        "Looked at were the loss, the learning rate, the gradient norm, gradients by layer and the time of a step"
        in text
    )
    assert "No validation loss was read, so overfitting could not be judged." in text
    assert "no readings by layer of weights, updates and dead and saturated units (level basic)" in text
    assert "25% of the steps were read" in text
    assert "probe Memory: OSError: no such file." in text


@pytest.mark.parametrize(
    ("state", "told"), [({"live": True}, "It is still going on"), ({"lost": True}, "It broke off after 100 steps")]
)
def test_a_run_without_an_end_says_so(state, told, made):
    assert told in made.text_of(render_page(made.Stored(**state)))


def test_nothing_at_all_was_seen_and_nothing_is_called_healthy(made):
    page = render_page(build_report(run={"name": "x"}))
    assert "No backward pass was seen" in made.text_of(page)
    assert "<title>x: nothing seen" in page
    assert 'class="verdict healthy"' not in page


def test_an_axis_without_a_finite_value_has_no_numbers(made):
    run = made.Stored({"loss": made.series("loss", np.full(50, math.nan))}, steps=50)
    page = render_page(run)
    assert "was never finite in 50 readings" in made.text_of(page)
    assert '<div class="y" aria-hidden="true"></div>' in page


def test_time_is_that_of_the_steps_that_were_read(made):
    steps = np.arange(0, 640, 64)
    phases = {"step": 1.0, "forward": 0.1, "backward": 0.2, "watch": 0.7}
    curves = {
        f"time/{name}": replace(made.series(name, np.full(10, each)), first=steps, steps=steps)
        for name, each in phases.items()
    }
    text = made.text_of(render_page(made.Stored(curves, steps=640)))
    assert "takes 1 s on average, 700 ms of it for Seismograd, and backward the most of the rest." in text


def test_what_is_not_finite_is_marked_and_never_dropped(made):
    values = np.ones(50)
    values[20], values[30], values[31:34] = math.nan, math.inf, math.nan
    run = made.Stored({"loss": made.series("loss", values)}, steps=50)
    page = render_page(run)
    assert re.findall(r'<div class="bad"[^>]*>(?:<span>(.*?)</span>)?', page) == ["NaN", "Inf \N{MULTIPLICATION SIGN}4"]
    assert "5 values not finite (NaN/Inf), from step 20 on" in made.text_of(page)
    path = re.search(r'<path d="([^"]+)" class="line c1"', page)[1]
    assert path.count("M") == 3  # a gap each
    numbers = json.loads(re.search(r'application/json">(.*?)</script>', page)[1])
    assert numbers["lines"][0]["bad"]["30"] == ["Inf", 1]


def test_a_thinned_curve_has_its_band_and_one_that_spans_decades_is_logarithmic(made):
    values = np.geomspace(1e-6, 1e3, 200)
    page = render_page(made.Stored({"grad/norm": made.series("grad/norm", values, width=1000)}, steps=200_000))
    assert 'class="band c1"' in page
    assert ">log scale<" in page
    assert "highest 1,100 in steps 199,000 to 199,999" in page  # within the last point, whose mean is 1,000
    flat = render_page(made.Stored({"grad/norm": made.series("grad/norm", np.linspace(1, 2, 200))}))
    assert 'class="band' not in flat
    assert ">log scale<" not in flat
    assert ", highest" not in flat  # where it ends


def test_what_is_kept_coarsely_is_seen_from_afar(made):
    curve = made.series("loss", np.linspace(2, 1, 300), width=1000)
    finding = Finding("loss-spike", Severity.WARNING, 150_000, "it jumped")
    page = render_page(made.Stored({"loss": curve}, findings=(finding,), steps=300_000))
    figure = re.search(r'<figure class="chart small">.*?</figure>', page, re.DOTALL)[0]
    numbers = json.loads(re.search(r'application/json">(.*?)</script>', figure)[1])
    assert 24 <= len(numbers["lines"][0]["x"]) < 200
    assert numbers["x"][0] < 150_000 < numbers["x"][1]


def test_the_layer_stands_among_its_neighbours(made):
    names = tuple(f"layers.{at}.weight" for at in range(30))
    values = np.full((30, 40), 0.5)
    values[17, 12:] = 1e-9
    values[18, 12:] = math.inf
    finding = Finding(
        "gradient-vanishing", Severity.WARNING, 12, "no gradient", where=Where("layers.17", "layers.17.weight")
    )
    page = render_page(made.Stored(heats={("gradient", "norm"): (names, values)}, findings=(finding,)))
    figure = re.search(r'<figure class="bars">.*?</figure>', page, re.DOTALL)[0]
    rows = re.findall(r"<tr(.*?)>.*?<bdi>(.*?)</bdi>.*?value\">(.*?)</td>", figure)
    assert [name for _, name, _ in rows] == list(names[11:24])
    assert [name for mark, name, _ in rows if "sick warning" in mark] == ["layers.17.weight"]
    assert {name: value for _, name, value in rows}["layers.17.weight"] == "1e-9"
    assert {name: value for _, name, value in rows}["layers.18.weight"] == "not finite"
    assert "13 of 30 layers, in their order, at step 12" in figure


def test_nothing_that_a_run_says_is_markup(made):
    finding = replace(
        NAN,
        id=HOSTILE,
        message=HOSTILE,
        where=Where(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 3, HOSTILE),
        evidence={HOSTILE: HOSTILE, "note": HOSTILE, "origin": HOSTILE, "columns": [2, 9], "first_bad": HOSTILE},
        recommendations=(HOSTILE,),
    )
    known = replace(finding, id="nonfinite-gradient", step=3)
    heats = {
        (kind, column): ((HOSTILE, "b"), np.ones((2, 5)))
        for kind, column in (("gradient", "norm"), ("update", "ratio"))
    }
    run = made.Stored(
        {name: made.series(name, np.ones(9)) for name in ("loss", "grad/norm", HOSTILE)},
        heats,
        (finding, known),
        {"command": HOSTILE, HOSTILE: HOSTILE, "devices": [HOSTILE]},
        name=HOSTILE,
        level=HOSTILE,
        exit={"code": 1, "exception": HOSTILE},
    )
    page = render_page(run)
    page.encode("utf-8")
    read = made.balanced(page)
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert not [attrs for _, attrs in read.tags if any(name.startswith("on") for name in attrs)]
    assert [attrs.get("type") for tag, attrs in read.tags if tag == "script"].count(None) == 1
    assert "\u202e" not in page
    assert "\x00" not in page


def test_a_status_that_is_made_up_breaks_nothing(made):
    made.balanced(render_page(report_on(NAN, status='"><script>alert(1)</script>')))


def test_nothing_outside_is_asked_for(sick_page, made):
    page = sick_page.read_text(encoding="utf-8")
    read = made.balanced(page)
    assert "http://" not in page
    assert "https://" not in page
    sources = [
        attrs[name] for _, attrs in read.tags for name in ("src", "href", "action", "data", "srcset") if name in attrs
    ]
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert "url(" not in page
    assert "@import" not in page
    policy = next(attrs["content"] for tag, attrs in read.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy


def test_the_policy_lets_only_the_pages_own_script_run(sick_page):
    import base64
    import hashlib

    page = sick_page.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in page


def test_hundreds_of_layers_over_a_million_steps_stay_small(made):
    generator = np.random.default_rng(0)
    names = (
        "loss",
        "val_loss",
        "grad/norm",
        "lr/0",
        "memory/rss",
        "memory/own",
        *(f"time/{p}" for p in ("step", "data", "forward", "backward")),
    )
    curves = {name: made.series(name, generator.lognormal(0, 2, 360), width=2778) for name in names}
    layers = tuple(f"model.decoder.layers.{at // 10}.attention.part{at % 10}.weight" for at in range(500))
    noise = generator.lognormal(-6, 3, (500, 160))
    heats = dict.fromkeys((("gradient", "norm"), ("update", "ratio"), ("activation", "dead")), (layers, noise))
    finding = replace(NAN, step=500_000, last_step=900_000, where=replace(NAN.where, module=layers[77]))
    run = made.Stored(curves, heats, (finding, replace(EFFECT, step=500_001)), steps=1_000_000)
    page = render_page(run)
    made.balanced(page)
    assert len(page.encode()) < 900_000
    assert all(points is not None and points <= 400 for points in run.asked)


def test_many_findings_and_many_runs_stay_small(made):
    curves = {name: made.series(name, np.random.default_rng(0).random(360)) for name in ("loss", "grad/norm", "lr/0")}
    many = tuple(replace(NAN, step=at, evidence={"series": at}) for at in range(100))
    page = render_page(made.Stored(curves, findings=many, steps=360))
    assert page.count("<article") == 100
    assert len(page) < 900_000
    page = render_page([made.Stored(curves, steps=360) for _ in range(40)])
    assert page.count("Run 40 of 40") == 1
    assert page.count("shows the curves of this one") == 30
    assert len(page) < 1_500_000
    made.balanced(page)


@pytest.mark.parametrize("several", [False, True])
def test_headings_leave_no_level_out(several, made):
    run = made.Stored({"loss": made.series("loss", np.ones(9))}, findings=(NAN, EFFECT))
    page = render_page([run, run] if several else run)
    levels = [int(tag[1]) for tag, _ in made.balanced(page).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_reports_of_several_runs_are_taken_apart(made):
    both = join_reports([report_on(NAN), report_on()], {"name": "train.py"})
    page = render_page(both)
    text = made.text_of(page)
    assert "train.py trained 2 times; 1 of the runs is healthy." in text
    assert 'id="run-1-finding-1"' in page


def test_a_command_that_holds_a_key_leaves_without_it(made):
    page = render_page(made.Stored(about={"command": "train.py --api-key=sk-abcdefghijklmnopqrstuv --lr 1"}))
    assert "sk-abc" not in page
    assert "--lr 1" in page


def test_a_store_that_cannot_be_read_costs_the_page_its_curves_only(tmp_path, monkeypatch, capfd):
    from seismograd.run import supervisor
    from seismograd.run.script import Script

    class Watched:
        def stored(self):
            raise RuntimeError("the database is gone")

    options = supervisor.Options(html=tmp_path / "page.html")
    each = supervisor.Supervisor(Script(path="train.py"), options)
    try:
        each._watched = [Watched()]
        each._write_page(report_on(NAN))
    finally:
        each._exits.leave()
        each._forget_import()
        each._debuggers()  # closes what looks for trainings in this very process
        each._tracebacks.leave()
    assert "torch.sqrt(h)" in (tmp_path / "page.html").read_text()
    assert "the database is gone" in capfd.readouterr().err
