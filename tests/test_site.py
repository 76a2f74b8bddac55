"""The site builds with strict links and without the network, and works when it is opened from a file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from seismograd.reports.pages import pages

from .documents import ROOT

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BUILD = "import mkdocs.__main__; mkdocs.__main__.cli()"
FETCHES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""What a browser fetches by itself, by element."""


class Seen(HTMLParser):
    """The links, the ids and what is fetched, of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHES and FETCHES[tag] in given:
            self.fetched.append(given[FETCHES[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, with every way to the network shut."""
    folder = tmp_path_factory.mktemp("site")
    shut = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-c", BUILD, "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, **shut, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Seen]:
    return {path: Seen(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_nothing_is_fetched_from_elsewhere(site: Path, parsed: dict[Path, Seen]) -> None:
    fetched = {url for seen in parsed.values() for url in seen.fetched}
    assert fetched
    assert not [url for url in fetched if re.match(r"(https?:)?//", url)]
    for style in site.rglob("*.css"):
        assert not re.search(
            r"url\(\s*['\"]?(https?:)?//|@import\s+['\"]?https?:", style.read_text(encoding="utf-8")
        ), style


def test_every_finding_and_every_document_has_a_page(site: Path) -> None:
    for name in pages():
        assert (site / "findings" / f"{name}.html").exists(), name
    for document in (ROOT / "docs").rglob("*.md"):
        assert (site / document.relative_to(ROOT / "docs")).with_suffix(".html").exists(), document
    assert (site / "changelog.html").exists()
    assert (site / "contributing.html").exists()


def test_every_link_within_the_site_leads_somewhere(parsed: dict[Path, Seen]) -> None:
    broken = []
    for path, seen in parsed.items():
        for link in seen.links:
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            page = (path.parent / target).resolve() if target else path
            if not page.exists() or (anchor and page in parsed and anchor not in parsed[page].ids):
                broken.append(f"{path.name}: {link}")
    assert not broken


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield found
        found.close()


def test_search_works_from_a_file_and_the_browser_has_nothing_to_complain_of(browser: Any, site: Path) -> None:
    noise: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click(".md-search__input")
    page.type(".md-search__input", "missing-zero-grad")
    first = page.locator(".md-search-result__item a").first
    first.wait_for(timeout=30_000)
    assert "missing-zero-grad" in first.inner_text()
    first.click()
    page.wait_for_url("**/findings/missing-zero-grad.html*")
    assert page.inner_text("h1").startswith("missing-zero-grad")
    assert noise == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.parametrize("name", ["index.html", "findings.html", "comparison.html", "api/watching.html"])
def test_a_page_fits_a_phone(browser: Any, site: Path, name: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.goto((site / name).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
