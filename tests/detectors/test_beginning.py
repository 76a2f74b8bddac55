import math

import numpy as np
import pytest

from seismograd.detectors.beginning import Beginning
from seismograd.records import Reading


def begin(lab, gains, layers=3, **measures):
    beginning = Beginning()
    gains = np.broadcast_to(gains, layers)
    beginning.learn(lab.reading(0, layers, parameter_gain=gains, parameter_std=gains / 8.0, **measures))
    return beginning


@pytest.mark.parametrize("gain", [math.sqrt(1 / 3), 1.0, math.sqrt(2.0), 8 * 0.02], ids=["torch", "1", "relu", "0.02"])
def test_knows_a_usual_initialisation(lab, gain):
    assert begin(lab, gain).fresh is True
    assert begin(lab, [gain, gain, 3.3]).fresh is True, "one layer may be odd"
    assert begin(lab, 1.1 * gain).fresh is False


def test_trained_weights_are_not_fresh_and_few_are_not_known(lab):
    assert begin(lab, [0.71, 0.9, 1.2]).fresh is False
    assert begin(lab, 0.5774, layers=1).fresh is None
    assert begin(lab, 0.5774, parameter_size=16.0).fresh is None
    late = Beginning()
    for step in range(10):
        late.learn(Reading(step))
    late.learn(lab.reading(10))
    assert late.fresh is None, "by then they are trained"


def test_what_guessing_gives(lab):
    ten = begin(lab, 0.5774, parameter_size=640.0)  # a fan-in of 64
    assert ten.outputs == 10
    assert ten.guess(math.log(10)) == ten.guess(1.029 * math.log(10)) == ten.guess(0.991 * math.log(10)) == 10
    assert ten.guess(1.031 * math.log(10)) == ten.guess(0.989 * math.log(10)) == ten.guess(math.log(8)) == 0
    assert begin(lab, 0.5774, parameter_size=64.0).guess(math.log(2)) == 2, "one logit, two classes"
    assert Beginning().guess(math.log(10)) == 0
