"""The page in a real Chromium: quiet, at home on a phone, on paper and in the dark, and usable with the keyboard."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seismograd.records import Finding, Severity, Where
from seismograd.reports.page import render_page

pytest.importorskip("playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


SHADES = """names => names.map(name => {
    const shade = (color) => color.match(/[\\d.]+/g).map(Number);
    let element = document.querySelector(name), ink = shade(getComputedStyle(element).color), page = null;
    for (; element && !page; element = element.parentElement) {
        const back = shade(getComputedStyle(element).backgroundColor);
        if (back.length < 4 || back[3] === 1) page = back;
    }
    return [name, ink.slice(0, 3), page.slice(0, 3)];
})"""
"""The colours of elements, and of what lies under them."""


@dataclass
class Seen:
    """A page that is open, and everything it said or asked for."""

    page: Any
    noise: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.textContent.trim().slice(0, 60)"))

    def is_calm(self) -> bool:
        return not self.noise and all(url.startswith(("file:", "data:")) for url in self.requests)


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
def show(browser) -> Iterator[Any]:
    contexts = []

    def open_page(path: Path, width: int = 1100, **how: Any) -> Seen:
        context = browser.new_context(viewport={"width": width, "height": 800}, **how)
        contexts.append(context)
        seen = Seen(context.new_page())
        seen.page.on("console", lambda message: seen.noise.append(message.text))
        seen.page.on("pageerror", lambda error: seen.noise.append(str(error)))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri())
        return seen

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def large(made, tmp_path) -> Path:
    """A page with long names, many layers and many steps."""
    generator = np.random.default_rng(0)
    values = generator.lognormal(0, 2, 300)
    values[100:120] = math.nan
    scalars = (
        "loss",
        "val_loss",
        "grad/norm",
        "lr/0",
        "memory/rss",
        "time/step",
        "time/forward",
        "my/very_long_metric_name" * 4,
    )
    curves = {name: made.series(name, values, width=3000) for name in scalars}
    layers = tuple(f"model.decoder.layers.{at // 10}.self_attention.projection{at % 10}.weight" for at in range(300))
    noise = generator.lognormal(-6, 3, (300, 120))
    heats = dict.fromkeys((("gradient", "norm"), ("update", "ratio"), ("activation", "dead")), (layers, noise))
    where = Where(layers[9], layers[9], "aten.sqrt", "backward", "/a/very/long/path" * 12, 3, "x = " + "abc(" * 60)
    finding = Finding("nonfinite-gradient", Severity.CRITICAL, 300_000, "it is " + "verylongword" * 30, where=where)
    path = tmp_path / "large.html"
    path.write_text(render_page(made.Stored(curves, heats, (finding,), steps=900_000)), encoding="utf-8")
    return path


def test_nothing_is_complained_of_and_nothing_leaves(sick_page, large, show):
    for path in (sick_page, large):
        seen = show(path)
        seen.page.wait_for_timeout(100)
        assert seen.is_calm(), (seen.noise, seen.requests)
        assert seen.page.locator("article.finding").count() == 1


def test_a_hostile_name_runs_nothing(made, show, tmp_path):
    name = "<script>document.title='gotcha'</script><img src=x onerror=\"document.title='gotcha'\">"
    curves = {"loss": made.series("loss", np.ones(9)), name: made.series(name, np.ones(9))}
    heats = {("gradient", "norm"): ((name, "b"), np.ones((2, 9))), ("update", "ratio"): ((name, "b"), np.ones((2, 9)))}
    path = tmp_path / "page.html"
    path.write_text(render_page(made.Stored(curves, heats, name=name)), encoding="utf-8")
    seen = show(path)
    cells = seen.page.locator(".cells").first
    cells.focus()
    cells.press("ArrowRight")
    assert seen.page.locator(".told").first.inner_text().startswith(name)
    assert "gotcha" not in seen.page.title().replace(name, "")
    assert seen.is_calm()


def test_a_script_that_slipped_in_would_not_run(sick_page, show, tmp_path):
    text = sick_page.read_text(encoding="utf-8").replace("</main>", "<script>document.title='gotcha'</script></main>")
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    seen = show(path)
    assert seen.page.title() != "gotcha"
    assert any("Content Security Policy" in line for line in seen.noise)


@pytest.mark.parametrize("width", [360, 500, 768])
def test_a_narrow_window_scrolls_down_only(width, sick_page, large, show):
    for path in (sick_page, large):
        seen = show(path, width)
        wide = seen.page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]")
        assert wide == [width, width, width]


def test_the_keyboard_goes_from_map_to_map(sick_page, show):
    seen = show(sick_page)
    page = seen.page
    tabs = page.get_by_role("tab")
    assert [tab.inner_text() for tab in tabs.all()] == ["Gradient norm", "Update ratio", "Dead units"]
    panels = page.get_by_role("tabpanel", include_hidden=True)
    shown = lambda: [panel.is_visible() for panel in panels.all()]  # noqa: E731
    assert shown() == [True, False, False]
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    assert (seen.focused(), shown()) == ("Update ratio", [False, True, False])
    page.keyboard.press("End")
    assert (seen.focused(), shown()) == ("Dead units", [False, False, True])
    page.keyboard.press("ArrowRight")
    assert (seen.focused(), shown()) == ("Gradient norm", [True, False, False])
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    told = page.locator(".heat:visible .told").inner_text()
    assert told == "layers.0.bias, step 59: not finite"
    assert seen.is_calm()


def test_the_keyboard_reads_a_curve(sick_page, show):
    page = show(sick_page).page
    plot = page.get_by_role("slider", name="Loss over steps").last
    readout = page.locator("#curves .readout").first
    plot.focus()
    page.keyboard.press("Home")
    first = plot.get_attribute("aria-valuetext")
    assert first.startswith("step 0. loss: 1.0")
    page.keyboard.press("End")
    assert plot.get_attribute("aria-valuetext") == "step 59. loss: NaN"
    assert plot.get_attribute("aria-valuenow") == "59"
    assert readout.is_visible()
    page.keyboard.press("Escape")
    assert not readout.is_visible()


def test_the_pointer_reads_curves_and_maps(sick_page, show):
    page = show(sick_page).page
    plot = page.locator("#curves .plot").first
    plot.hover(position={"x": 5, "y": 40})
    assert "step 0" in plot.locator(".readout").inner_text()
    cells = page.locator(".cells").first
    cells.hover(position={"x": 3, "y": 5})
    assert page.locator(".told").first.inner_text().startswith("layers.0.weight, step ")


def test_everything_can_be_reached_and_the_first_stop_skips_ahead(sick_page, show):
    page = show(sick_page).page
    page.keyboard.press("Tab")
    skip = page.get_by_text("Skip to the verdict")
    assert skip.evaluate("each => each === document.activeElement && each.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    stops = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        stops.add(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body")
    assert {"reader", "cells", "SUMMARY", "A", "BUTTON"} <= stops


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_and_page_stand_out_from_each_other(scheme, sick_page, show):
    seen = show(sick_page, color_scheme=scheme)
    pairs = seen.page.evaluate(
        SHADES, [".lead", ".place", ".finding .headline", ".badge", "figcaption", ".under", ".x span"]
    )
    pairs += seen.page.evaluate(SHADES, ["footer p", ".hint", ".mark a", ".sick .value, .value", ".tabs button"])

    def light(colour: list[float]) -> float:
        linear = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name, ink, page in pairs:
        low, high = sorted((light(ink), light(page)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ink, page)
    assert (light(pairs[0][2]) < 0.2) == (scheme == "dark")
    assert seen.is_calm()


def test_on_paper_nothing_is_folded_or_left_out(sick_page, show):
    seen = show(sick_page)
    page = seen.page
    page.emulate_media(media="print")
    assert [each.is_visible() for each in page.locator(".heat").all()] == [True, True, True]
    assert not page.locator(".tabs").first.is_visible()
    paper = page.pdf(format="A4", print_background=True)
    assert paper.startswith(b"%PDF-")
    assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 8
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() == 3
    assert seen.is_calm()


def test_without_scripts_all_is_there(sick_page, show):
    page = show(sick_page, java_script_enabled=False).page
    assert page.locator(".heat").count() == 3
    assert all(each.is_visible() for each in page.locator(".heat").all())
    assert page.locator("path.line").first.is_visible()
