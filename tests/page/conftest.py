"""Runs to make pages of: real ones from the store, and one whose every answer a test says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seismograd.records import Finding
from seismograd.reports.report import build_report
from seismograd.store import Heat, Run, Series, open_store

EXAMPLES = Path(__file__).parents[2] / "examples"


def series(name: str, values: Any, steps: Any = None, width: int = 1) -> Series:
    """A curve; with `width` each point stands for so many steps, and varies by a tenth within them."""
    given = np.asarray(values, dtype=np.float64)
    last = np.arange(width - 1, width * len(given), width) if steps is None else np.asarray(steps)
    finite = np.isfinite(given)
    mean = np.where(finite, given, np.nan)
    spread = 0.1 * np.abs(mean) if width > 1 else 0.0
    count = np.full(len(given), width, dtype=np.int64)
    return Series(
        name,
        first=last - width + 1,
        steps=last,
        low=mean - spread,
        high=mean + spread,
        mean=mean,
        last=given,
        count=count,
        bad=np.where(finite, 0, count),
        times=np.zeros(len(given)),
    )


class Stored:
    """Stands in for a stored run: what it was given is what it has."""

    def __init__(
        self,
        curves: dict[str, Series] | None = None,
        heats: dict[tuple[str, str], tuple[tuple[str, ...], Any]] | None = None,
        findings: tuple[Finding, ...] = (),
        about: dict[str, Any] | None = None,
        **run: Any,
    ) -> None:
        self._curves, self._heats, self._findings = curves or {}, heats or {}, findings
        self.about = about or {}
        self.ranks, self.bytes = [0], 1000
        self.live, self.lost = run.pop("live", False), run.pop("lost", False)
        self._run = {"id": "20261116-120000-abcdef", "name": "train.py", "steps": 100, **run}
        self.asked: list[int | None] = []

    def names(self, rank: int = 0) -> list[str]:
        return list(self._curves)

    def tables(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for kind, column in self._heats:
            found.setdefault(kind, []).append(column)
        return found

    def series(self, names: Any, start: Any = None, stop: Any = None, points: Any = None, rank: int = 0) -> Any:
        self.asked.append(points)
        found = {}
        for name in names:
            whole = self._curves[name]
            inside = (whole.steps >= (start or 0)) & (whole.first <= (stop if stop is not None else 1e12))
            parts = ("first", "steps", "low", "high", "mean", "last", "count", "bad", "times")
            found[name] = Series(name, **{part: getattr(whole, part)[inside] for part in parts})
        return found

    def heat(  # noqa: PLR0917 (as the store has it)
        self, kind: str, column: str, start: Any = None, stop: Any = None, samples: int = 200, rank: int = 0
    ) -> Heat:
        names, values = self._heats[kind, column]
        values = np.asarray(values, dtype=np.float64)
        return Heat(kind, column, names, np.arange(values.shape[1]), values)

    def findings(self) -> list[Finding]:
        return list(self._findings)

    def report(self) -> dict[str, Any]:
        return build_report(run=self._run, findings=self._findings)


@pytest.fixture
def made() -> SimpleNamespace:
    """What hand-made runs are made of."""
    return SimpleNamespace(Stored=Stored, series=series, balanced=balanced, text_of=text_of)


@pytest.fixture(scope="session")
def sick_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that `seismograd run --html` wrote of a loop which makes a NaN."""
    return _trained(tmp_path_factory.mktemp("sick"), "sick/nan.py")


@pytest.fixture(scope="session")
def sick_run(sick_page: Path) -> Iterator[Run]:
    """The same run as the store has it."""
    with open_store(sick_page.parent / "home") as store:
        yield store.run("last")


def _trained(folder: Path, script: str) -> Path:
    import os

    page = folder / "page.html"
    environment = {**os.environ, "SEISMOGRAD_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seismograd", "run", "--quiet", "--html", str(page), str(EXAMPLES / script)]
    done = subprocess.run(
        [*command, "--token=hf_abcdefghijklmnopqrst"],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert page.exists(), done.stderr
    return page


class _Reader(HTMLParser):
    """Walks a page, and notes what is not as it should be."""

    VOID = frozenset(("br", "img", "meta"))

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in self.VOID and "svg" not in self.open:
            self.wrong.append(f"<{tag}/> closes itself")

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append(f"<{tag}> has an attribute twice: {names}")
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-3:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


def balanced(page: str) -> _Reader:
    """The page, read: every element is closed, no id is there twice, every link of its own leads somewhere."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.wrong, reader.wrong[:5]
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids))
    links = [attrs["href"] for tag, attrs in reader.tags if tag == "a"]
    assert all(link and link.startswith("#") and link[1:] in reader.ids for link in links)
    return reader


def text_of(page: str) -> str:
    """What a person reads of it."""
    return " ".join(" ".join(balanced(page).text).split())
