"""The part of the page on ranks: a table, a curve for each of a few, a map of many."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from seismograd.records import Finding, Reading, Severity
from seismograd.reports.page import render_page
from seismograd.reports.report import build_report
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of

HOSTILE = "<img src=x onerror=alert(1)>"


def written(where: Path, ranks: int, steps: int = 30) -> None:
    for rank in range(ranks):
        slow, sick = rank == ranks - 1, rank == 1
        state: dict[str, Any] = {
            "status": "critical" if sick else "healthy",
            "steps": steps,
            "host": HOSTILE if sick else "here",
            "summary": {"last": {"loss": math.nan if sick else 0.5}},
            "performance": {"seconds_per_reading": 0.2 if slow else 0.05},
        }
        recorder = Recorder(url_of(where), "several", "several", rank=rank, state=lambda state=state: state)
        for step in range(steps):
            loss = math.nan if sick and step >= 20 else 2.0 / (1 + step)
            seconds = (0.2 if slow else 0.05) + 1e-4 * ((rank * 7 + step) % 11)
            shared = {} if rank else {"ranks/wait": 0.15}
            recorder.write_reading(Reading(step, {"loss": loss, "time/step": seconds, **shared}, rank=rank))
        recorder.write_finding(Finding("memory-leak", Severity.WARNING, 3, "it leaks", rank=rank))
        if sick:
            recorder.write_finding(Finding("nonfinite-loss", Severity.CRITICAL, 20, "the loss is NaN", rank=rank))
        recorder.close(build_report(run={"id": "several"}))


def page_of(where: Path) -> tuple[str, str]:
    """The page, and its part on ranks."""
    with open_store(where) as store:
        text = render_page(store.run("last"))
    part = text.partition('<section id="ranks">')[2].partition("</section>")[0]
    return text, part


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    where = tmp_path_factory.mktemp("few")
    written(where, 3)
    return page_of(where)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    where = tmp_path_factory.mktemp("many")
    written(where, 48, 24)
    return page_of(where)


def test_ranks_stand_side_by_side_with_a_curve_each(few: tuple[str, str]) -> None:
    page, part = few
    assert '<a href="#ranks">Ranks</a>' in page
    assert part.count("<tr>") == 4
    assert "200 ms" in part
    for title in ("Loss by rank", "Time of a step by rank", "What the slowest rank costs the others"):
        assert f'<p class="title">{title}</p>' in part
    for rank in range(3):
        assert f'<li class="c{rank + 1}">rank {rank}</li>' in part
    assert 'class="heat' not in part
    assert HOSTILE not in page


def test_a_finding_says_its_ranks_and_draws_the_curve_of_its_own(few: tuple[str, str]) -> None:
    page, _ = few
    assert '<p class="place">all 3 ranks, step 3</p>' in page
    assert '<p class="place">rank 1, step 20</p>' in page
    assert '<p class="title">Loss on rank 1</p>' in page
    assert page.count('<article class="finding') == 2
    assert "It was first seen at step 20 on rank 1." in page


def test_of_many_ranks_the_gravest_are_listed_and_a_map_shows_all(many: tuple[str, str]) -> None:
    page, part = many
    assert part.count("<tr>") == 17
    assert "32 more are not listed" in part
    assert '<th scope="row" class="number">1</th>' in part
    assert '<th scope="row" class="number">47</th>' in part, "the slow one"
    assert "median of 48 ranks, lowest to highest" in part
    assert '<li class="c2">rank 47</li>' in part, "who stands out has a curve"
    assert part.count('class="heat many dense"') == 2
    assert "ranks over steps" in part
    assert len(page) < 400_000


def test_a_report_without_a_store_has_the_table(tmp_path: Path) -> None:
    written(tmp_path, 3)
    with open_store(tmp_path) as store:
        report = store.run("last").report()
    text = render_page(report)
    part = text.partition('<section id="ranks">')[2].partition("</section>")[0]
    assert part.count("<tr>") == 4
    assert 'class="chart' not in part
    assert '<p class="place">all 3 ranks, step 3</p>' in text


def test_a_run_of_one_rank_has_no_such_part(tmp_path: Path) -> None:
    written(tmp_path, 1)
    text, part = page_of(tmp_path)
    assert not part
    assert "rank" not in text.partition("<main")[2].partition("<footer")[0].replace("ranks/wait", "")
