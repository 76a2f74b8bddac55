import math

import pytest

from seismograd.detectors.numerics.nonfinite_loss import NonfiniteLoss


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_fires_at_once_each_time(lab, bad):
    first, second = lab.run(NonfiniteLoss(), lab.scalars([2.0, 1.9, bad, bad]))
    assert (first.step, second.step) == (2, 3)
    assert first.severity == "critical"
    assert first.evidence["last_finite"] == 1.9
    assert any("learning rate" in text for text in first.recommendations)


def test_says_that_it_grew_before(lab):
    (finding,) = lab.run(NonfiniteLoss(), lab.scalars([2.0, 80.0, math.nan]))
    assert "growing" in finding.recommendations[0]


def test_silent_on_finite_losses(lab):
    assert lab.run(NonfiniteLoss(), lab.scalars([2.0, -3.0, 0.0])) == []


def test_the_largest_float_is_finite(lab):
    assert lab.run(NonfiniteLoss(), lab.scalars([1.7e308, -1.7e308])) == []
