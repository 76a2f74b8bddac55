import pytest

from seismograd.detectors.resources.growing_graph import GrowingGraph
from seismograd.records import Reading, Severity

TOTAL = {"name": "total", "scope": "global", "file": "train.py", "line": 9, "code": "total += loss"}
CALL = {"file": "train.py", "line": 7, "code": "loss.backward()"}


def below(steps, **more):
    return {
        **{"nodes": 9 * steps, "old": 9 * (steps - 1), "depth": 5 + steps, "steps": steps, "links": steps},
        **{"through": TOTAL, "made": None, "at": CALL},
        **more,
    }


def backwards(reached, every=1):
    return [
        Reading(every * at, facts={"growth": {"backward": below(steps), "kept": None, "failed": False}})
        for at, steps in enumerate(reached)
    ]


def kept(**more):
    return [Reading(11, facts={"growth": {"backward": None, "kept": {**below(11, freed=10), **more}, "failed": False}})]


def refused(**more):
    chain = {"steps": 2, "through": TOTAL, "made": None, "at": CALL, "freed": True, **more}
    return [Reading(1, facts={"growth": {"backward": chain, "kept": None, "failed": True}})]


def test_a_graph_that_reaches_further_back_at_each_step(lab):
    found = lab.run(GrowingGraph(), backwards(range(2, 13)))
    assert [finding.step for finding in found] == [8, 9, 10]
    assert found[0].severity is Severity.CRITICAL
    assert (found[0].where.file, found[0].where.line) == ("train.py", 9)
    assert found[0].evidence["steps"] == found[0].evidence["limit"] == 10
    assert "1 more with each step" in found[0].message


@pytest.mark.parametrize(
    "reached",
    [
        [2] * 40,
        [*range(2, 10), *range(2, 10), *range(2, 10)],
        range(2, 10),
        [12] * 40,
        [2, 30] * 10,
    ],
    ids=["one step back", "cut every few steps", "not far yet", "a window that moves on", "now and then a long one"],
)
def test_what_does_not_grow(lab, reached):
    assert lab.run(GrowingGraph(), backwards(reached)) == []


def test_a_variable_that_backward_does_not_see(lab):
    (finding,) = lab.run(GrowingGraph(), kept())
    assert finding.severity is Severity.WARNING
    assert "`total` keeps the graphs of the last 11 steps" in finding.message
    assert "`total += loss`" in finding.recommendations[0]
    assert lab.run(GrowingGraph(), kept(links=9)) == []
    assert len(lab.run(GrowingGraph(), kept(links=10))) == 1


def test_losses_side_by_side_are_no_chain(lab):
    assert lab.run(GrowingGraph(), kept(links=2, steps=40)) == []


def test_what_waits_for_its_backward_may_wait(lab):
    waiting = kept()[0].facts["growth"]["kept"] | {"freed": 0}
    for links, said in ((255, 0), (256, 1)):
        facts = {"growth": {"backward": None, "kept": waiting | {"links": links}, "failed": False}}
        assert len(lab.run(GrowingGraph(), [Reading(300, facts=facts)])) == said


@pytest.mark.parametrize(("freed", "why"), [(True, "is freed"), (False, "the optimizer has changed")])
def test_backward_was_refused(lab, freed, why):
    (finding,) = lab.run(GrowingGraph(), refused(freed=freed))
    assert finding.severity is Severity.CRITICAL
    assert why in finding.message
    assert finding.evidence["refused"]
    assert finding.recommendations[0].startswith("`total = total.detach()`")


def test_the_limits_can_be_set(lab):
    assert lab.run(GrowingGraph(steps=20), backwards(range(2, 13))) == []
    assert lab.run(GrowingGraph(steps=4, growths=2), backwards(range(2, 6)))[0].step == 2
    assert lab.run(GrowingGraph(growths=9), backwards(range(2, 13)))[0].step == 9
    assert lab.run(GrowingGraph(steps=12), kept()) == []


def test_the_line_that_calls_backward_where_nothing_else_is_known(lab):
    readings = backwards(range(2, 13))
    for reading in readings:
        reading.facts["growth"]["backward"]["through"] = None
    found = lab.run(GrowingGraph(), readings)
    assert found[0].where.line == 7
    assert "variable" not in found[0].evidence
