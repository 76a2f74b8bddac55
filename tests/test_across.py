"""A scalar over all ranks: the summary against one made by hand, who stands out, and which ranks are read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from seismograd.reports.across import across, chosen
from seismograd.reports.ranks import sides
from seismograd.store.curves import Series


def series(name: str, values: list[float], every: int = 1, start: int = 0) -> Series:
    array = np.array(values, dtype=float)
    bad = (~np.isfinite(array)).astype(np.int64)
    steps = start + every * np.arange(len(values))
    finite = np.where(bad, np.nan, array)
    count = np.ones(len(values), np.int64)
    return Series(
        name=name,
        first=steps,
        steps=steps,
        low=finite,
        high=finite,
        mean=finite,
        last=array,
        count=count,
        bad=bad,
        times=steps.astype(float),
    )


class Fake:
    """A run of hand-made curves."""

    def __init__(self, curves: dict[int, Series]) -> None:
        self.curves = curves

    def series(self, names: Any, start: Any, stop: Any, points: int, rank: int) -> dict[str, Series]:
        return {"loss": self.curves[rank]} if rank in self.curves else {}


def test_the_summary_has_quartiles_and_who_is_lowest_and_highest() -> None:
    curves = {rank: series("loss", [float(rank), 10.0 - rank]) for rank in (0, 1, 2, 3, 4)}
    told = across(Fake(curves), ["loss"], curves)["loss"].told()
    assert (told["first"], told["steps"]) == ([0, 1], [0, 1])
    assert [told[name] for name in ("low", "q1", "median", "q3", "high")] == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10]]
    assert (told["low_who"], told["high_who"]) == ([0, 4], [4, 0])
    assert (told["count"], told["bad"]) == ([5, 5], [0, 0])


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    curves = {0: series("loss", [1.0, math.nan]), 7: series("loss", [3.0, math.inf])}
    told = across(Fake(curves), ["loss"], curves)["loss"].told()
    assert told["median"][0] == 2
    assert math.isnan(told["median"][1])
    assert (told["low_who"], told["high_who"]) == ([0, None], [7, None])
    assert (told["count"], told["bad"]) == ([2, 0], [0, 2])


def test_ranks_that_began_later_or_are_read_more_rarely_share_the_grid() -> None:
    curves = {
        0: series("loss", [1.0] * 100),
        1: series("loss", [3.0] * 25, every=4),
        2: series("loss", [5.0], start=50),
    }
    spread = across(Fake(curves), ["loss"], curves, points=10)["loss"]
    told = spread.told()
    assert (told["first"][0], told["steps"][-1], len(told["steps"])) == (0, 99, 10)
    assert told["median"] == [2.0] * 5 + [3.0] + [2.0] * 4
    assert told["count"] == [2] * 5 + [3] + [2] * 4


def test_a_scalar_that_is_read_every_few_steps_leaves_no_holes() -> None:
    curves = {rank: series("loss", [1.0, 2.0, 3.0], every=10) for rank in (0, 1)}
    told = across(Fake(curves), ["loss"], curves)["loss"].told()
    assert (told["steps"], told["median"]) == ([0, 10, 20], [1, 2, 3])


def test_a_rank_without_the_scalar_and_a_scalar_without_a_rank_are_left_out() -> None:
    curves = {0: series("loss", [1.0])}
    found = across(Fake(curves), ["loss", "nothing"], [0, 1])
    assert list(found) == ["loss"]
    assert found["loss"].ranks.tolist() == [0]


def test_who_stands_out() -> None:
    generator = np.random.default_rng(0)
    curves = {rank: series("loss", generator.normal(1.0, 0.01, 50).tolist()) for rank in range(20)}
    assert across(Fake(curves), ["loss"], curves)["loss"].outliers() == []
    curves[7] = series("loss", [1.0] * 25 + [1.5] * 25)
    curves[3] = series("loss", [0.2] * 50)
    curves[11] = series("loss", [1.0] * 49 + [math.nan])
    assert across(Fake(curves), ["loss"], curves)["loss"].outliers() == [11, 3, 7]
    assert across(Fake(curves), ["loss"], curves)["loss"].outliers(1) == [11]
    same = {rank: series("loss", [1.0] * 9) for rank in range(5)}
    assert across(Fake(same), ["loss"], same)["loss"].outliers() == []


@pytest.mark.parametrize("number", [2, 256, 257, 1024])
def test_of_very_many_ranks_the_gravest_are_read(number: int) -> None:
    states: dict[int, dict[str, Any]] = {rank: {"steps": 10} for rank in range(number)}
    states[number - 1] = {"steps": 10, "status": "critical"}
    found = chosen(range(number), sides(states))
    assert len(found) == min(number, 256)
    assert found == sorted(set(found))
    assert number - 1 in found
