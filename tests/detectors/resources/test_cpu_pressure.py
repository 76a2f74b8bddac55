import pytest

from seismograd.detectors.resources.cpu_pressure import CpuPressure
from seismograd.records import Reading, Severity

LINE = {"file": "train.py", "line": 3, "code": "torch.set_num_threads(16)"}


def looks(number=2, **more):
    facts = {
        **{"allowed": 2, "machine": 64, "quota": None, "threads": 16, "ranks": 1, "workers": 0, "at_work": 16},
        **{"busy": 1.9, "throttled": None, "line": LINE},
        **more,
    }
    return [Reading(step, facts={"processors": facts}) for step in range(number)]


def test_many_threads_on_few_processors(lab):
    (finding,) = lab.run(CpuPressure(), looks())
    assert finding.severity is Severity.WARNING
    assert finding.step == 1
    assert finding.message.startswith("16 threads and workers share 2 processors (torch uses 16 threads)")
    assert finding.where.line == 3
    assert "`torch.set_num_threads(2)`" in finding.recommendations[0]
    assert finding.evidence["running"] == 16


def test_ranks_share_the_machine(lab):
    (finding,) = lab.run(CpuPressure(), looks(allowed=8, threads=8, at_work=8, ranks=4, busy=2.0))
    assert finding.evidence["running"] == 32
    assert "in each of 4 ranks" in finding.message
    assert "`torch.set_num_threads(2)`" in finding.recommendations[0]


def test_workers(lab):
    (finding,) = lab.run(CpuPressure(), looks(threads=2, workers=12, at_work=13))
    assert "the loader 12 workers" in finding.message
    assert finding.recommendations == ("`num_workers=2`: more of them only take turns.",)


@pytest.mark.parametrize(
    "told",
    [
        {"at_work": 2},
        {"at_work": 5},
        {"allowed": 1, "at_work": 4},
        {"busy": 0.1},
        {"throttled": 0.2, "at_work": 4, "quota": 2.0},
        {"number": 1},
    ],
    ids=["threads that wait", "not many more", "a few too many", "next to nothing is used", "a little", "one look"],
)
def test_silent(lab, told):
    assert lab.run(CpuPressure(), looks(**told)) == []


def test_held_back_by_the_quota(lab):
    (finding,) = lab.run(CpuPressure(), looks(quota=2.0, throttled=0.8, at_work=4))
    assert finding.severity is Severity.WARNING
    assert "held the run back in 80% of its periods" in finding.message
    assert "the quota pays for 2" in finding.message
    (finding,) = lab.run(CpuPressure(), looks(quota=2.0, throttled=0.8, at_work=2, threads=2))
    assert finding.severity is Severity.INFO
    assert finding.recommendations


def test_on_the_limit(lab):
    for at_work, said in ((5, 0), (6, 1)):
        assert len(lab.run(CpuPressure(), looks(at_work=at_work))) == said
    for share, said in ((0.24, 0), (0.25, 1)):
        assert len(lab.run(CpuPressure(), looks(quota=2.0, throttled=share, at_work=4))) == said


def test_the_limits_can_be_set(lab):
    assert lab.run(CpuPressure(times=10.0), looks()) == []
    assert lab.run(CpuPressure(looks=3), looks()) == []
    assert lab.run(CpuPressure(excess=15), looks()) == []
    assert lab.run(CpuPressure(busy=1.0), looks()) == []
    assert lab.run(CpuPressure(throttled=0.1), looks(throttled=0.2, at_work=4, quota=2.0))
