import pytest

from seismograd.detectors.resources.slow_step import SlowStep
from seismograd.records import Reading

LINE = {"file": "train.py", "line": 9, "code": "gc.collect()"}
RECOMPILES = {"count": 4, "seconds": 2.0, "reason": "tensor 'x' size mismatch at index 0.", "file": None, "line": 3}


def reading(**changed):
    facts = {
        "steps": 100,
        "seconds": 10.0,
        "typical": 0.05,
        "lost": {},
        "counts": {},
        "phase": None,
        "worst": {"lost": 0.5, "seconds": 0.55},
        "sizes": [320.0, 0],
        "gc": 0.0,
        "gc_steps": 0,
        "gc_line": None,
        "between": {},
        "recompiles": None,
    }
    return Reading(99, facts={"pace": facts | changed})


def test_silent(lab):
    assert lab.run(SlowStep(), [reading()]) == []


def test_garbage_collection(lab):
    (finding,) = lab.run(SlowStep(), [reading(gc=3.0, gc_steps=60, gc_line=LINE)])
    assert finding.severity == "warning"
    assert "30% of the run's time, in 60 of 100 steps: the loop calls `gc.collect()`" in finding.message
    assert (finding.where.file, finding.where.line) == ("train.py", 9)
    assert "out of the loop" in finding.recommendations[0]


def test_garbage_collection_that_nobody_asked_for(lab):
    (finding,) = lab.run(SlowStep(), [reading(gc=3.0, gc_steps=60, gc_line={**LINE, "code": "x = [i]"})])
    assert "gc.freeze()" in finding.recommendations[0]


@pytest.mark.parametrize(
    ("limit", "below"),
    [
        ({"gc": 1.0, "gc_steps": 10}, {"gc": 0.99, "gc_steps": 10}),
        ({"gc": 1.0, "gc_steps": 10}, {"gc": 1.0, "gc_steps": 9}),
        ({"gc": 0.2, "gc_steps": 10, "seconds": 1.0}, {"gc": 0.19, "gc_steps": 10, "seconds": 1.0}),
        ({"gc": 1.0, "gc_steps": 10, "steps": 16}, {"gc": 1.0, "gc_steps": 10, "steps": 15}),
        ({"recompiles": RECOMPILES}, {"recompiles": RECOMPILES | {"count": 3}}),
        ({"recompiles": RECOMPILES | {"seconds": 1.0}}, {"recompiles": RECOMPILES | {"seconds": 0.99}}),
        ({"between": {"checkpoint": 5.0}}, {"between": {"checkpoint": 4.9}}),
        ({"lost": {"size": 1.0}, "counts": {"size": 3}}, {"lost": {"size": 1.0}, "counts": {"size": 2}}),
    ],
)
def test_sits_on_its_limits(lab, limit, below):
    assert len(lab.run(SlowStep(), [reading(**limit)])) == 1
    assert lab.run(SlowStep(), [reading(**below)]) == []


def test_recompilations(lab):
    (finding,) = lab.run(SlowStep(), [reading(recompiles=RECOMPILES, steps=0)])
    assert finding.severity == "warning"
    assert "size mismatch at index 0" in finding.message
    assert "dynamic=True" in finding.recommendations[0]
    other = RECOMPILES | {"reason": "L['flag'] == 3", "file": "net.py"}
    (finding,) = lab.run(SlowStep(), [reading(recompiles=other)])
    assert "dynamic=True" not in finding.recommendations[0]
    assert (finding.where.file, finding.where.line) == ("net.py", 3)


@pytest.mark.parametrize(
    ("cause", "words"), [("size", "larger"), ("pass", "new pass"), ("data", "for data"), ("unknown", "`backward`")]
)
def test_what_is_no_fault_is_only_a_note(lab, cause, words):
    lost = {"stalled": 3.0, cause: 2.0}
    (finding,) = lab.run(SlowStep(), [reading(lost=lost, counts={"stalled": 9, cause: 4}, phase="backward")])
    assert finding.severity == "info"
    assert words in finding.message
    assert finding.evidence["cause"] == cause


def test_a_busy_machine_is_no_fault(lab):
    assert lab.run(SlowStep(), [reading(lost={"stalled": 8.0}, counts={"stalled": 60})]) == []


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "logging"])
def test_what_the_user_wants_is_a_note_at_most(lab, phase):
    (finding,) = lab.run(SlowStep(), [reading(between={phase: 6.0})])
    assert finding.severity == "info"
    assert "60%" in finding.message


def test_limits_can_be_set(lab):
    assert len(lab.run(SlowStep(share=0.01), [reading(gc=0.3, gc_steps=60)])) == 1
    assert lab.run(SlowStep(outrageous=0.7), [reading(between={"evaluation": 6.0})]) == []
