"""Tables over steps, thinned: nothing great or bad disappears, and the new does not crowd out the old."""

from __future__ import annotations

import numpy as np

from seismograd.store.layers import Samples


def samples(steps, values=None) -> Samples:
    at = np.asarray(steps, dtype=np.int64)
    table = np.ones((2, len(at)), dtype=np.float32) if values is None else np.asarray(values, dtype=np.float32)
    return Samples(at, at, {"gradient": ("a", "b")}, {("gradient", "norm"): table})


def test_columns_stand_for_as_many_steps_each_however_fine_the_newest_are_kept():
    steps = [*range(0, 90_000, 1000), *range(90_000, 100_000)]
    shown = samples(steps).spread(50)
    assert 40 <= len(shown) <= 50
    assert np.diff(shown.last).max() <= 2 * np.median(np.diff(shown.last))


def test_few_samples_stay_as_they_are():
    assert samples([0, 1, 2, 50, 1000]).spread(5).last.tolist() == [0, 1, 2, 50, 1000]
    assert len(samples(range(1000)).spread(1)) == 1


def test_the_greatest_and_what_is_not_finite_are_seen_however_few_columns():
    values = np.ones((2, 1000))
    values[0, 333], values[1, 444] = 50.0, np.nan
    heat = samples(range(1000), values).spread(10).heat("gradient", "norm")
    assert heat.values[0].max() == 50.0
    assert np.isinf(heat.values[1]).sum() == 1
