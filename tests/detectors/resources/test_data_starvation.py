import pytest

from seismograd.detectors.resources.data_starvation import DataStarvation
from seismograd.records import Reading

LINE = {"file": "data.py", "line": 7, "code": "image = Image.open(path)"}


def trial(*rates, cpu=0.001, quiet=0.06, again=1.0, waits=True):
    rounds = [
        {"workers": workers, "batches": 16, "rate": rate, "cpu": cpu, "quiet": quiet, "bytes": 8000.0}
        for workers, rate in rates
    ]
    return {"waits": waits, "rounds": rounds, "again": again}


def reading(**changed):
    facts = {
        "workers": 0,
        "prefetch": None,
        "pinned": False,
        "dataset": "Images",
        "samples": 1000,
        "batch": 8,
        "cores": 2,
        "threads": 1,
        "trial": trial((1, 50.0), (4, 200.0)),
        "refused": None,
        "caches": False,
        "stages": {"reading": 0.9, "transform": 0.1},
        "line": LINE,
        "share": 0.8,
        "wait": 0.02,
        "step": 0.025,
        "steps": 16,
        "passes": 1,
    }
    return Reading(30, facts={"loading": facts | changed})


def test_fires(lab):
    (finding,) = lab.run(DataStarvation(), [reading()])
    assert finding.severity == "warning"
    assert "20 ms of 25 ms (80%" in finding.message
    assert "reading samples for 90%" in finding.message
    assert (finding.where.file, finding.where.line) == ("data.py", 7)
    assert finding.evidence["stage"] == "reading"
    assert finding.evidence["speedup"] == pytest.approx(4.0)
    assert finding.evidence["step_then"] == pytest.approx(0.005)
    assert (
        "`num_workers=4` (now 0): 4.0x as many batches a second, measured on 16 batches" in finding.recommendations[0]
    )
    assert "about 977 kB in all" in finding.recommendations[1]


@pytest.mark.parametrize(
    ("limit", "below"),
    [({"share": 0.5}, {"share": 0.499}), ({"wait": 0.01}, {"wait": 0.0099}), ({"steps": 16}, {"steps": 15})],
)
def test_sits_on_its_limits(lab, limit, below):
    assert len(lab.run(DataStarvation(), [reading(**limit)])) == 1
    assert lab.run(DataStarvation(), [reading(**below)]) == []


def test_limits_can_be_set(lab):
    assert lab.run(DataStarvation(share=0.9), [reading()]) == []
    assert len(lab.run(DataStarvation(share=0.2, seconds=0.001), [reading(share=0.2, wait=0.001)])) == 1


def test_a_cache_that_fills_is_left_in_peace_until_the_second_pass(lab):
    warming = {"trial": trial((1, 50.0), again=20.0)}
    assert lab.run(DataStarvation(), [reading(**warming)]) == []
    assert len(lab.run(DataStarvation(), [reading(**warming, passes=2)])) == 1
    untried = {"trial": None, "refused": "`f` is an open file", "caches": True}
    assert lab.run(DataStarvation(), [reading(**untried)]) == []
    assert len(lab.run(DataStarvation(), [reading(**untried, passes=2)])) == 1


def test_what_the_cores_allow(lab):
    """Work for the CPU that two cores cannot do faster than one and a half times."""
    (finding,) = lab.run(DataStarvation(), [reading(trial=trial((1, 50.0), (2, 75.0), cpu=0.02, waits=False))])
    assert finding.evidence["step_then"] == pytest.approx(1 / 75)
    little = trial((1, 50.0), (2, 51.0), cpu=0.04, waits=False)
    (finding,) = lab.run(DataStarvation(), [reading(trial=little)])
    assert "More workers help little here" in finding.recommendations[0]
    assert "2 cores" in finding.recommendations[0]


def test_what_was_not_tried_says_why(lab):
    refused = reading(trial=None, refused="the dataset is iterable", stages={"sample": 1.0})
    (finding,) = lab.run(DataStarvation(), [refused])
    assert "the dataset is iterable" in finding.recommendations[0]
    assert finding.evidence["not_tried"] == "the dataset is iterable"
    assert "speedup" not in finding.evidence
    assert "`__getitem__`" in finding.message


def test_workers_that_keep_every_core_busy(lab):
    busy = reading(workers=2, prefetch=2, trial=trial((2, 60.0), waits=False))
    (finding,) = lab.run(DataStarvation(), [busy])
    assert "not worth a trial" in finding.recommendations[0]
    assert "`prefetch_factor` (now 2)" in finding.recommendations[1]


def test_nothing_is_known_of_the_stage(lab):
    (finding,) = lab.run(DataStarvation(), [reading(stages={}, line=None, trial=None)])
    assert finding.message.endswith("steps).")
    assert finding.where.file is None
    assert finding.evidence["stage"] == "unknown"


def test_workers_that_only_a_busy_machine_makes_slow(lab):
    """What they need, undisturbed, is less than the step takes: others have the processors."""
    assert len(lab.run(DataStarvation(), [reading(workers=2, trial=trial((2, 50.0), quiet=0.0301))])) == 1
    assert lab.run(DataStarvation(), [reading(workers=2, trial=trial((2, 50.0), quiet=0.0299))]) == []
    (finding,) = lab.run(DataStarvation(), [reading(workers=2, trial=None, refused="the dataset is iterable")])
    assert finding.severity == "info"


def test_a_loader_that_only_a_busy_machine_makes_slow(lab):
    assert len(lab.run(DataStarvation(), [reading(trial=trial((1, 50.0), quiet=0.0101))])) == 1
    assert lab.run(DataStarvation(), [reading(trial=trial((1, 50.0), quiet=0.0099))]) == []
