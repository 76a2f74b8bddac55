from dataclasses import replace

from seismograd.detectors.numerics.amp_scale_collapse import AmpScaleCollapse


def run(lab, skipped, first=65536.0):
    scale, scales = first, []
    for skip in skipped:
        scales.append(scale)
        scale = scale / 2 if skip else scale
    readings = lab.scalars(amp__scale=scales)
    marked = [
        replace(reading, marks=frozenset(["amp-skipped"])) if skip else reading
        for reading, skip in zip(readings, skipped, strict=True)
    ]
    return lab.run(AmpScaleCollapse(), marked)


def test_fires_when_it_keeps_skipping(lab):
    findings = run(lab, [False] * 20 + [True] * 12)
    assert findings[0].step == 29
    assert findings[0].severity == "critical"


def test_fires_when_no_step_ever_succeeds(lab):
    assert run(lab, [True] * 30)


def test_silent_while_settling_and_after_growth(lab):
    assert run(lab, [True] * 6 + [False] * 50) == []
    assert run(lab, ([False] * 200 + [True]) * 5) == []


def test_silent_at_a_low_scale_that_works(lab):
    assert run(lab, [False] * 100, first=0.5) == []


def test_on_its_limit(lab):
    assert run(lab, [False] * 20 + [True] * 9 + [False]) == []
    assert len(run(lab, [False] * 20 + [True] * 10 + [False])) == 1
