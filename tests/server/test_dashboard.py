"""The dashboard in a real Chromium, over a real `seismograd ui`, with a training process that really trains."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from seismograd.records import Finding, Reading, Severity, TensorStats, Where
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of

from .conftest import Served, Writer, report

pytest.importorskip("playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

WAIT = 60_000
"""Milliseconds: a busy machine is slow, and a test that fails is wrong sooner."""

EVIL = '<script>window.owned=1</script><img src=x onerror="window.owned=1"><b>bold</b>'

TRAINING = """\
import pathlib, time
import torch
from torch import nn

torch.manual_seed(0)
samples = torch.randn(64, 8)
bad = pathlib.Path("bad")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        y = self.layers(x)
        return torch.sqrt(y - y.max() - 1) if bad.exists() else y


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    loss = model(samples).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.03)
"""

POINTS = """Math.max(0, ...[...document.querySelectorAll(".plot")].flatMap(
    plot => (plot.data ?? []).map(each => each.x.length)))"""
"""How many points the longest curve on the page has."""


SIGNS = {
    "tab-overview": ".scatterlayer .trace",
    "tab-layers": ".heatmaplayer .hm",
    "tab-resources": ".empty",
    "tab-compare": "select",
    "tab-ranks": "tbody tr",
    "tab-events": ":is(.event, .empty)",
    "tab-environment": "dl",
}
"""What is there when a view is."""


@dataclass
class Seen:
    """An open dashboard, and everything it complained of or asked for."""

    page: Any
    address: str
    noise: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, hash_: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{hash_}")

    def wait(self, selector: str, **how: Any) -> Any:
        return self.page.wait_for_selector(selector, timeout=WAIT, **how)

    def until(self, condition: str) -> None:
        self.page.wait_for_function(f"() => ({condition})", timeout=WAIT)  # the page allows no eval

    def charts(self) -> None:
        """Waits until curves are drawn."""
        self.until("document.querySelector('.plot .scatterlayer .trace') !== null")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def asked(self, ending: str) -> list[dict[str, list[str]]]:
        """The queries of what was asked for so far at paths with that ending."""
        parts = map(urlsplit, self.requests)
        return [parse_qs(each.query) for each in parts if each.path.endswith(ending)]

    def is_calm(self) -> bool:
        return not self.noise and all(
            url.startswith((self.address, "data:", "blob:", "about:")) for url in self.requests
        )


Show = Callable[..., Seen]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield found
        found.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Show]:
    """Opens dashboards; none of them may have complained or left the machine."""
    opened: list[tuple[Any, Seen]] = []

    def begin(address: str, hash_: str = "", width: int = 1280, height: int = 900, **how: Any) -> Seen:
        context = browser.new_context(viewport={"width": width, "height": height}, **how)
        seen = Seen(context.new_page(), address)
        opened.append((context, seen))
        seen.page.on("console", lambda message: seen.noise.append(f"{message.type}: {message.text}"))
        seen.page.on("pageerror", lambda error: seen.noise.append(str(error)))
        seen.page.on("dialog", lambda dialog: (seen.noise.append(dialog.message), dialog.dismiss()))
        context.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(f"{address}{hash_}")
        return seen

    yield begin
    for context, seen in opened:
        context.close()
        assert seen.is_calm(), (seen.noise, [url for url in seen.requests if not url.startswith(seen.address)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs of all kinds."""
    folder = tmp_path_factory.mktemp("dashboard") / "runs"
    for run, shift in (("20260101-000000-first0", 0.0), ("20260102-000000-second", 0.5)):
        writer = Writer(folder, run, run[-6:])
        writer.train(50)
        writer.train(30, loss=0.01 + shift)
        writer.log("an epoch is over", "epoch", "info", epoch=1)
        writer.log("the disk is nearly full", "disk", "warning")
        writer.flush()
        writer.end(status="healthy")
    ranks = [
        Writer(folder, "20260103-000000-ranks0", "ranks", rank=rank, summary={"last": {"loss": 1.0 + rank}})
        for rank in range(3)
    ]
    for rank, writer in enumerate(ranks):
        writer.train(20, loss=1.0 + rank)
        writer.flush()
    for writer in ranks:
        writer.end(status="healthy")
    _evil(folder)
    return folder


def _evil(folder: Path) -> None:
    """Everything that a run can say about itself is markup."""
    recorder = Recorder(
        url_of(folder), "20260104-000000-evil00", EVIL, state=lambda: {"status": "critical", "steps": 20}
    )
    for step in range(20):
        norms = np.array([1.0 + step, 2.0])
        tables = {
            "gradient": TensorStats((EVIL, "%{x}" + EVIL), {"norm": norms}),
            EVIL: TensorStats((EVIL,), {EVIL: norms[:1]}),
        }
        recorder.write_reading(Reading(step, {"loss": 1.0 / (1 + step), EVIL: float(step), "lr/0": 0.1}, tables))
    where = Where(module=EVIL, op=EVIL, phase=EVIL, file=EVIL, line=3, code=f"    {EVIL}")
    evidence = {EVIL: EVIL, "note": EVIL, "first_bad": EVIL, "columns": [4, 12]}
    recorder.write_finding(
        Finding("nonfinite-loss", Severity.CRITICAL, 7, EVIL, where=where, evidence=evidence, recommendations=[EVIL])
    )
    recorder.write_event({"event_type": EVIL, "message": EVIL, "level": "info", "data": {EVIL: EVIL}})
    assert recorder.flush()
    recorder.close(report(status="critical", steps=20))


@pytest.fixture(scope="module")
def million(runs: Path) -> str:
    """A loss that falls, with one spike and one NaN in a million steps."""
    steps, run = 1_000_000, "20260105-000000-million"
    losses = 2.0 * np.exp(-np.arange(steps) / 2e5) + 0.2
    losses[654_321], losses[700_000] = 40.0, math.nan
    recorder = Recorder(url_of(runs), run, "million", state=lambda: {"steps": steps})
    for step, loss in enumerate(losses.tolist()):
        recorder.write_reading(Reading(step, {"loss": loss}))
        if step % 4000 == 0:
            assert recorder.flush(60.0)
    assert recorder.flush(60.0)
    assert recorder.thinned == 0
    recorder.close(report(status="healthy", steps=steps))
    return run


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    served = Served("--port", "0", "--store", str(runs))
    yield served.started()
    served.interrupt()
    served.ended()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Begins `seismograd run` of a script that goes bad when a file named `bad` appears beside it."""
    begun: list[subprocess.Popen[str]] = []

    def begin(store: Path) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(TRAINING)
        command = [sys.executable, "-m", "seismograd", "run", "--store", str(store), "--budget", "0.9", "train.py"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (tmp_path / "output.txt").open("w") as output:
            begun.append(
                subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output, text=True)
            )
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait()


# -- a run that is live ------------------------------------------------------------------------------------------------


def test_a_live_run_appears_falls_ill_and_does_what_it_is_asked_for(
    serve: Callable[..., Served], show: Show, store: Path, training: Any, tmp_path: Path
) -> None:
    seen = show(serve("--port", "0", "--store", str(store)).started())
    seen.wait(".empty")
    assert "seismograd run train.py" in seen.text(".empty")

    process = training(store)
    seen.wait("tbody tr .state.is-live")
    assert seen.text("tbody tr a") == "train.py"
    seen.until("document.title.startsWith('1 live')")
    seen.page.click("tbody tr .c-steps")  # anywhere in the row
    seen.charts()
    seen.until("document.title.startsWith('● healthy')")
    assert seen.page.query_selector(".finding") is None

    (tmp_path / "bad").touch()
    seen.wait('.finding[data-finding="nonfinite-activation"] mark')
    finding = '.finding[data-finding="nonfinite-activation"]'
    assert "torch.sqrt(y - y.max() - 1)" in seen.text(f"{finding} .code mark")
    assert "train.py:17" in seen.text(f"{finding} .place")
    assert seen.text(f"{finding} .code .line-number") == "17"
    assert seen.page.query_selector_all(f"{finding} .advice li")
    seen.until("document.getElementById('announce').textContent.includes('finding: nonfinite-')")
    seen.until("document.title.startsWith('● critical')")
    seen.until("[...document.querySelectorAll('.now')].some(now => now.textContent === 'NaN')")

    seen.page.click(".controls button[data-value=extreme]")
    seen.wait("[data-kind=level][data-state=answered]")
    seen.until("document.querySelector('.facts').textContent.includes('extreme')")
    assert open_store(store).run().level == "extreme"  # as the process says
    seen.page.fill(".budget input", "80")
    seen.page.keyboard.press("Enter")
    seen.wait("[data-kind=budget][data-state=answered]")
    seen.page.click("[data-ask=trace]")
    seen.wait("[data-kind=trace][data-state=answered]")
    assert "traced" in seen.text("[data-kind=trace]")
    seen.page.click("[data-ask=capture]")
    seen.wait("[data-kind=capture][data-state=answered]")
    assert "saved" in seen.text("[data-kind=capture]")
    assert process.poll() is None

    seen.page.click("[data-ask=stop]")
    seen.page.click("dialog[open] >> text=Let it run")
    assert "stop" not in {each["kind"] for each in open_store(store).run().requests()}
    seen.page.click("[data-ask=stop]")
    seen.page.click("dialog[open] >> text=Stop it")
    seen.wait(".state.is-ended")
    process.wait(timeout=60)
    assert "crashed" not in (tmp_path / "output.txt").read_text()
    assert seen.page.query_selector("[data-ask=stop]:visible") is None
    run = open_store(store).run()
    assert run.report()["run"]["level"] == "extreme"
    assert run.budget == pytest.approx(0.8)


def test_a_live_run_is_followed_with_a_bounded_number_of_points(
    serve: Callable[..., Served], show: Show, store: Path, live: Writer
) -> None:
    seen = show(serve("--port", "0", "--store", str(store)).started(), f"#/run/{live.run}")
    seen.charts()
    for _ in range(6):
        live.train(1000)
        live.flush()
        seen.until(f"document.querySelector('.span-tools input:nth-of-type(2)').value === '{live.steps - 1}'")
    assert seen.page.evaluate(POINTS) <= 2400
    assert seen.text(".follow") == "Following"

    seen.page.fill("[aria-label='First step in view']", "100")
    seen.page.fill("[aria-label='Last step in view']", "200")
    seen.page.keyboard.press("Enter")
    seen.until("document.querySelector('.follow').textContent === 'Follow'")
    live.train(500)
    live.flush()
    seen.until(f"document.querySelector('.facts').textContent.includes('{live.steps:,}')")
    assert seen.page.input_value("[aria-label='Last step in view']") == "200"
    seen.page.keyboard.press("Escape")  # out of the field
    seen.page.keyboard.press("f")
    seen.until(f"document.querySelector('.span-tools input:nth-of-type(2)').value === '{live.steps - 1}'")


def test_layers_appear_when_they_are_first_read(serve: Callable[..., Served], show: Show, store: Path) -> None:
    run, state = "20260106-000000-layers", {"steps": 3, "level": "basic"}
    recorder = Recorder(url_of(store), run, "layers", state=lambda: state)
    for step in range(3):
        recorder.write_reading(Reading(step, {"loss": 1.0}))
    assert recorder.flush()
    seen = show(serve("--port", "0", "--store", str(store)).started(), f"#/run/{run}?tab=layers")
    assert "raise it to advanced" in seen.wait("#panel .empty").inner_text()
    state.update(steps=9, level="advanced")
    for step in range(3, 9):
        tables = {"gradient": TensorStats(("0.weight",), {"norm": np.array([1.0 + step])})}
        recorder.write_reading(Reading(step, {"loss": 1.0}, tables))
    assert recorder.flush()
    for step in range(9, 600):  # the names of tables are asked for every few seconds
        if seen.page.query_selector("#panel .heatmaplayer .hm") is not None:
            break
        recorder.write_reading(Reading(step, {"loss": 1.0}))
        seen.page.wait_for_timeout(100)
    assert seen.page.query_selector("#panel .heatmaplayer .hm") is not None
    recorder.close(report(status="healthy", steps=9))


def test_a_server_that_only_shows_has_no_controls(
    serve: Callable[..., Served], show: Show, store: Path, live: Writer
) -> None:
    seen = show(serve("--port", "0", "--store", str(store), "--read-only").started(), f"#/run/{live.run}")
    seen.charts()
    assert seen.page.is_visible("#read-only")
    assert seen.page.query_selector(".controls") is None


def test_a_server_that_goes_is_told_of_and_found_again(
    serve: Callable[..., Served], show: Show, store: Path, live: Writer
) -> None:
    served = serve("--port", "0", "--store", str(store))
    seen = show(served.started(), f"#/run/{live.run}")
    seen.charts()
    served.interrupt(signal.SIGTERM)
    served.ended()
    seen.wait("#banner:not([hidden])")
    live.train(7)
    live.flush()
    port = re.search(r":(\d+)/", seen.address)
    assert port is not None
    serve("--port", port[1], "--store", str(store)).started()
    seen.page.evaluate("document.querySelector('#banner button')?.click()")  # it may have tried by itself
    seen.wait("#banner", state="hidden")
    seen.until("document.querySelector('.span-tools input:nth-of-type(2)').value === '11'")
    assert seen.noise
    assert all("ERR_CONNECTION_REFUSED" in each or "ERR_INCOMPLETE" in each for each in seen.noise)
    seen.noise.clear()


def test_the_token_is_asked_for(serve: Callable[..., Served], show: Show, store: Path, live: Writer) -> None:
    served = serve("--port", "0", "--store", str(store), "--token", "a-long-secret")
    seen = show(served.started().partition("?")[0])
    seen.wait("dialog#token[open]")
    seen.page.fill("#token input", "a-wrong-secret")
    seen.page.keyboard.press("Enter")
    seen.until("document.querySelector('#token .wrong').textContent !== ''")
    seen.page.fill("#token input", "a-long-secret")
    seen.page.keyboard.press("Enter")
    seen.wait("tbody tr")
    assert all("401" in each for each in seen.noise)
    seen.noise.clear()


# -- runs that are over ------------------------------------------------------------------------------------------------


def test_a_million_steps_are_zoomed_into(address: str, show: Show, million: str) -> None:
    seen = show(address, f"#/run/{million}")
    seen.charts()
    highest = "Math.max(...document.querySelector('.plot').data.flatMap(each => each.y).filter(Number.isFinite))"
    assert seen.page.evaluate(highest) == 40.0  # the one spike, from afar
    assert seen.page.evaluate(POINTS) <= 2400
    assert "1 not finite" in seen.text(".chart-note")

    box = seen.page.locator(".plot .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    seen.page.mouse.move(box["x"] + box["width"] * 0.60, middle)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] * 0.68, middle, steps=4)
    seen.page.mouse.up()
    seen.until("Number(document.querySelector('.span-tools input').value) > 500000")
    zoomed = seen.asked("/series")[-1]
    assert 590_000 < int(zoomed["start"][0]) < 620_000
    assert 660_000 < int(zoomed["stop"][0]) < 700_000
    assert re.search(r"start=\d+&stop=\d+", seen.page.url)  # a link to this view

    seen.page.fill("[aria-label='First step in view']", "654300")
    seen.page.fill("[aria-label='Last step in view']", "654340")
    seen.page.keyboard.press("Enter")
    seen.until("document.querySelector('.plot').data.every(each => each.x[0] >= 654000)")
    spike = "document.querySelector('.plot').data.flatMap(each => each.x.filter((_, at) => each.y[at] === 40))"
    near = seen.page.evaluate(spike)
    assert near
    assert all(abs(step - 654_321) <= 512 for step in near)

    link = seen.page.url.partition("/#")[2]
    seen.page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    seen.until("document.querySelector('.span-tools input').value === '0'")
    assert "start" not in seen.page.url
    seen.go(f"#{link}")
    seen.charts()
    assert seen.page.input_value("[aria-label='First step in view']") == "654300"


def test_the_keyboard_is_enough(address: str, show: Show) -> None:
    seen = show(address)
    seen.wait("tbody tr")
    press = seen.page.keyboard.press
    press("?")
    seen.wait("#keys[open]")
    press("Escape")
    seen.wait("#keys", state="hidden")
    press("/")
    seen.page.keyboard.type("second")
    seen.until("document.querySelectorAll('tbody tr').length === 1")
    assert "text=second" in seen.page.url
    press("Escape")
    seen.until("document.querySelectorAll('tbody tr').length > 3")
    press("/")
    seen.page.keyboard.type("no such run")
    seen.wait(".empty")
    press("Escape")
    seen.until("document.querySelectorAll('tbody tr').length > 3")
    press("ArrowDown")
    press("ArrowDown")
    assert seen.page.evaluate("document.activeElement === document.querySelectorAll('tbody tr a')[1]")
    press("End")
    assert seen.page.evaluate("document.activeElement.textContent") == "first0"
    press("Enter")
    seen.charts()
    assert "20260101-000000-first0" in seen.page.url

    seen.page.focus(".plot")
    press("+")
    seen.until("document.querySelector('.span-tools input').value !== '0'")
    press("ArrowLeft")
    press("0")
    seen.until("document.querySelector('.span-tools input').value === '0'")
    press("2")
    seen.until("document.querySelector('.heat .heatmaplayer .hm') !== null")
    seen.page.focus(".heat")
    press("ArrowDown")
    seen.until("document.querySelector('.chart h3').textContent.includes('gradient norm')")
    assert "layer=0.weight" in seen.page.url
    press("Escape")
    seen.wait("tbody tr")
    assert seen.page.evaluate("document.activeElement.tagName") == "H1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_at_home_on_a_phone(address: str, show: Show, scheme: str) -> None:
    seen = show(address, width=360, height=740, color_scheme=scheme, reduced_motion="reduce")
    seen.wait("tbody tr")
    assert seen.width() <= 360
    for run in ("20260104-000000-evil00", "20260103-000000-ranks0"):
        seen.go(f"#/run/{run}")
        seen.charts()
        for tab in seen.page.eval_on_selector_all("[role=tab]", "all => all.map(each => each.id)"):
            seen.page.click(f"#{tab}")
            seen.wait(f"#{tab}[aria-selected=true]")
            seen.wait(f"#panel {SIGNS[tab]}", state="attached")
            assert seen.width() <= 360, (run, tab)
        seen.go(f"#/run/{run}?tab=environment")
        tab = seen.wait("#tab-environment[aria-selected=true]")
        assert 0 <= tab.bounding_box()["x"] <= 360 - tab.bounding_box()["width"]  # the strip shows what was chosen
    shade = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", shade)[:3])) < 200) == (scheme == "dark")


def test_no_name_of_a_run_becomes_markup(address: str, show: Show) -> None:
    seen = show(address)
    seen.wait("tbody tr")
    assert EVIL in seen.page.eval_on_selector_all("tbody tr a", "all => all.map(each => each.textContent)")
    seen.go(f"#/run/20260104-000000-evil00?show={_twice(EVIL)}")
    seen.charts()
    seen.until("document.querySelectorAll('.chart').length === 3")
    finding = seen.wait(".finding")
    assert finding.query_selector(".message").text_content() == EVIL
    assert EVIL in finding.query_selector(".code").text_content()
    for summary in finding.query_selector_all("summary"):
        summary.click()
    assert EVIL in finding.query_selector(".evidence").text_content()
    box = seen.page.locator(".chart .nsewdrag").last.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.until("document.querySelector('.hoverlayer').childElementCount >= 0")

    seen.page.keyboard.press("2")
    seen.until("document.querySelector('.heat .heatmaplayer .hm') !== null")
    box = seen.page.locator(".heat .nsewdrag").bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 4)
    seen.wait(".tip:not([hidden])")
    assert EVIL in seen.page.text_content(".tip b")
    seen.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 4)
    seen.until("!document.querySelector('.chart').hidden")
    ticks = seen.page.eval_on_selector_all(".heat .ytick text", "all => all.map(each => each.textContent)")
    assert any("<" in tick for tick in ticks)
    for key in "3456":
        seen.page.keyboard.press(key)
        seen.page.wait_for_load_state("networkidle")
    seen.page.keyboard.press("5")
    seen.wait(".event")
    assert EVIL in seen.page.text_content(".event")
    assert seen.page.evaluate("window.owned") is None
    assert seen.page.query_selector("main img, main b b, .js-plotly-plot img") is None


def test_numbers_and_names_as_they_are_shown(address: str, show: Show) -> None:
    seen = show(address)
    seen.wait("tbody tr")
    call = "([name, ...args]) => import('/static/format.js').then(all => all[name](...args))"
    assert seen.page.evaluate(call, ["spelled", "\u202egnp.exe"]) == r"\u202egnp.exe"
    assert seen.page.evaluate(call, ["bytes", 1536]) == "1.5 kB"  # as the reports have it
    assert seen.page.evaluate(call, ["bytes", 361 << 20]) == "361 MB"
    short = seen.page.evaluate(call, ["shortened", "encoder_stack_of_blocks.73.a_long_projection.weight", 30])
    assert re.fullmatch(r"enc\w*…\.73\.a_l\w*…?\.weight", short)
    assert len(short) <= 30
    cross = "import('/static/icons.js').then(all => all.spark(['NaN', 'NaN']).querySelector('.spark-bad') !== null)"
    assert seen.page.evaluate(f"() => {cross}")


def _twice(text: str) -> str:
    from urllib.parse import quote

    return quote(quote(text, safe=""), safe="")


def test_two_runs_lie_over_each_other_and_the_parting_is_named(address: str, show: Show) -> None:
    seen = show(address, "#/run/20260101-000000-first0?tab=compare")
    seen.wait("select[aria-label='Second run']")
    seen.page.select_option("select[aria-label='Second run']", "20260102-000000-second")
    seen.wait(".parted .message")
    seen.charts()
    assert "step 50" in seen.text(".parted .message")
    legend = seen.text(".chart .legend")
    assert "first0" in legend
    assert "second" in legend
    assert "with=20260102-000000-second" in seen.page.url
    seen.page.click(".parted button")
    seen.until("Number(document.querySelector('.span-tools input').value) > 30")


def test_ranks_stand_side_by_side(address: str, show: Show) -> None:
    seen = show(address, "#/run/20260103-000000-ranks0?tab=ranks")
    seen.charts()
    seen.until("document.querySelectorAll('.facts-table tbody tr').length === 3")
    assert rows_of(seen, 3) == ["1", "2", "3"]
    assert seen.text(".chart .legend").split() == ["rank", "01", "rank", "12", "rank", "23"], "its name and its value"
    seen.page.click("text=Last loss")
    seen.until("document.querySelector('[aria-sort]').textContent.startsWith('Last loss')")
    assert rows_of(seen, 0) == ["2", "1", "0"]
    assert seen.is_calm(), seen.noise


def rows_of(seen: Seen, column: int) -> list[str]:
    """A column of the table of ranks."""
    told = seen.page.eval_on_selector_all(
        ".ranks-table tbody tr", f"all => all.map(each => each.children[{column}].textContent)"
    )
    return list(told)


@pytest.fixture(scope="module")
def crowd(runs: Path) -> str:
    """A run of 40 ranks: one is slow, one has gone bad, and all have the same fault."""
    run = "20260105-000000-crowd0"
    for rank in range(40):
        slow, sick = rank == 31, rank == 17
        seconds = 0.3 if slow else 0.1
        last = {"loss": math.nan if sick else 0.5, "time/step": seconds}
        status = "critical" if sick else "warning"
        writer = Writer(runs, run, "crowd", rank=rank, status=status, host=f"node{rank // 8}", summary={"last": last})
        writer.train(30, **{"time/step": seconds + 1e-4 * (rank % 7)})
        writer.train(3, **({"loss": math.nan} if sick else {}))
        writer.find("memory-leak", severity=Severity.WARNING, rank=rank, message="it leaks")
        if sick:
            writer.find(rank=rank)
        writer.end()
    return run


def test_very_many_ranks_are_a_band_with_who_stands_out(address: str, show: Show, crowd: str) -> None:
    seen = show(address, f"#/run/{crowd}?tab=ranks")
    seen.charts()
    seen.until("document.querySelectorAll('.ranks-table tbody tr').length === 12")
    assert rows_of(seen, 0)[:2] == ["17", "31"], "the gravest first"
    assert "1 to 12 of 40" in seen.text(".pages")
    legends = seen.page.eval_on_selector_all(".chart .legend", "all => all.map(each => each.textContent)")
    assert any("middle half" in each and "rank 17" in each for each in legends), legends
    assert any("middle half" in each and "rank 31" in each for each in legends), legends
    drawn = [asked for asked in seen.asked("/series") if asked.get("rank") != ["0"]]
    assert {asked.get("rank", [""])[0] for asked in drawn} == {"all", "17,31"}, "nobody asks for all curves"
    seen.page.click(".pages button:last-child")
    seen.until("document.querySelector('.pages').textContent.includes('13 to 24 of 40')")
    seen.page.click("text=Host")
    seen.until("document.querySelector('[aria-sort]')?.textContent.startsWith('Host')")
    assert rows_of(seen, 0)[:9] == [str(rank) for rank in range(9)]
    seen.page.click('[data-focus="pin-3"]')
    seen.until("[...document.querySelectorAll('.legend')].some(each => each.textContent.includes('rank 3'))")
    assert "ranks=3" in seen.page.url
    assert seen.is_calm(), seen.noise


def test_a_fault_of_all_ranks_is_one_card(address: str, show: Show, crowd: str) -> None:
    seen = show(address, f"#/run/{crowd}")
    seen.wait(".finding")
    places = seen.page.eval_on_selector_all(".finding .place", "all => all.map(each => each.textContent)")
    assert places == ["rank 17", "all 40 ranks"]


def test_ranks_of_a_live_run_go_on(
    serve: Callable[..., Served], show: Show, store: Path, write: Callable[..., Writer]
) -> None:
    writers = [write("20260103-000000-living", "living", rank=rank) for rank in range(2)]
    for writer in writers:
        writer.train(20)
        writer.flush()
    seen = show(serve("--store", str(store), "--port", "0").started(), "#/run/20260103-000000-living?tab=ranks")
    seen.charts()
    seen.until("document.querySelectorAll('.ranks-table tbody tr').length === 2")
    assert rows_of(seen, 2) == ["20", "20"]
    for writer in writers:
        writer.train(7)
        writer.flush()
    seen.until(
        "[...document.querySelectorAll('.ranks-table tbody tr')].every(row => row.children[2].textContent === '27')"
    )
    assert seen.page.url.count("tab=ranks") == 1


def test_attempts_are_told(address: str, show: Show) -> None:
    seen = show(address, "#/")
    seen.wait("table.runs")

    def with_attempts(route: Any) -> None:
        answer = route.fetch()
        told = answer.json()
        first = {"number": 0, "first": 0, "started": "2026-01-03T00:00:00+00:00", "reason": None}
        second = {**first, "number": 1, "first": 12, "reason": "rank 2 was killed <b>"}
        route.fulfill(response=answer, json={**told, "attempts": [first, second]})

    seen.page.route("**/ranks?*", with_attempts)
    seen.go("#/run/20260103-000000-ranks0?tab=ranks")
    seen.wait('section[aria-label="Attempts"]')
    assert "rank 2 was killed <b>" in seen.text('section[aria-label="Attempts"]')


def test_events_are_filtered(address: str, show: Show) -> None:
    seen = show(address, "#/run/20260101-000000-first0?tab=events")
    seen.until("document.querySelectorAll('.event').length === 2")
    seen.page.select_option("select[aria-label=Level]", "warning")
    seen.until("document.querySelectorAll('.event').length === 1")
    assert "nearly full" in seen.text(".event")
    seen.page.select_option("select[aria-label=Level]", "")
    seen.until("document.querySelectorAll('.event').length === 2")
    seen.page.fill("input[type=search]", "epoch")
    seen.until("document.querySelectorAll('.event').length === 1")
    assert "an epoch is over" in seen.text(".event")
    assert "text=epoch" in seen.page.url


def test_a_run_that_is_not_there_says_so_in_its_place(address: str, show: Show) -> None:
    seen = show(address, "#/run/20990101-000000-nothing")
    assert "20990101-000000-nothing" in seen.wait(".failed").inner_text()
    assert all("404" in each for each in seen.noise)
    seen.noise.clear()


def test_a_finding_is_explained(address: str, show: Show) -> None:
    seen = show(address, "#/explain")
    seen.page.click("text=nonfinite-gradient")
    seen.until("document.querySelector('.prose h1')?.textContent === 'nonfinite-gradient'")
    assert "Why it matters" in seen.text(".prose")
    seen.page.keyboard.press("Escape")
    seen.wait(".catalogue")
