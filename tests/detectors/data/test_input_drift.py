import math

import numpy as np
import pytest

from seismograd.detectors.data.input_drift import InputDrift
from seismograd.judge import judge_all
from seismograd.records import Reading


def told(deviations, means=0.0, detector=None, filled=1.0):
    means = means if np.ndim(means) else [means] * len(deviations)
    readings = [
        Reading(
            step,
            facts={"batches": {"inputs": {"net": {"mean": float(mean), "std": float(deviation), "filled": filled}}}},
        )
        for step, (mean, deviation) in enumerate(zip(means, deviations, strict=True))
    ]
    return judge_all(readings, [detector or InputDrift()])


def noisy(count, scale=1.0, spread=0.05, seed=0):
    return scale * np.exp(spread * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize("after", [noisy(10, 255.0), noisy(10, 0.05), np.zeros(10)])
def test_fires_when_the_scale_jumps_and_stays(after):
    (finding,) = told([*noisy(40), *after])
    assert (finding.step, finding.severity, finding.where.module) == (40, "warning", "net")


def test_fires_when_the_mean_jumps():
    (finding,) = told(noisy(60), [*[0.0] * 40, *[30.0] * 20])
    assert (finding.step, finding.severity) == (40, "warning")


def test_fires_when_some_sources_are_strange():
    (finding,) = told([100.0 if at > 40 and at % 5 == 0 else one for at, one in enumerate(noisy(100))])
    assert finding.severity == "warning"


def test_only_mentions_a_single_batch():
    values = noisy(100)
    values[50] = 1000.0
    (finding,) = told(values)
    assert (finding.step, finding.severity) == (50, "info")


@pytest.mark.parametrize(
    "deviations",
    [
        noisy(200),
        noisy(200, spread=0.7),  # heavy tails
        np.exp(np.arange(200) / 30),  # by and by
        [*noisy(10), *noisy(100, 100.0)],  # too early to know what is usual
        [*noisy(40), *noisy(100, 4.0)],
        np.zeros(100),
        [math.nan] * 100,
    ],
)
def test_stays_silent(deviations):
    assert told(deviations) == []


def test_stays_silent_on_words_as_ones_among_zeros():
    deviations = [*[0.03] * 17, *[0.0, 0.03, 0.0, 0.0, 0.03, 0.0, 0.0] * 4]
    assert told(deviations, filled=0.001) == []
    assert told(deviations) != []


def test_what_stays_becomes_the_usual():
    (finding,) = told([*noisy(40), *noisy(400, 255.0)])
    assert finding.count < 40


def test_sits_on_its_limits():
    jump = [*[1.0] * 40, *[9.0] * 3]
    assert [finding.severity for finding in told(jump)] == ["info"]
    assert [finding.severity for finding in told(jump, detector=InputDrift(stays=3))] == ["warning"]
    assert told(jump, detector=InputDrift(factor=9.1)) == []
    assert told(jump, detector=InputDrift(batches=41)) == []


def test_strange_batches_that_come_again_and_again():
    def every(gap, detector=None):
        values = noisy(400)
        values[60::gap] = 300.0
        return [finding.severity for finding in told(values, detector=detector)]

    assert every(60) == ["warning"]
    assert every(60, InputDrift(within=180)) == ["info"]
    assert every(180) == ["info"]


def test_a_batch_that_is_one_number_throughout():
    def blank(mean):
        deviations, means = noisy(60), np.zeros(60)
        deviations[50], means[50] = 0.0, mean
        return [finding.severity for finding in told(deviations, means)]

    assert blank(-40.0) == ["warning"]
    assert blank(0.0) == ["info"]  # left out on purpose, maybe
