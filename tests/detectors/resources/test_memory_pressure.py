import pytest

from seismograd.amounts import size
from seismograd.detectors.resources.memory_pressure import MemoryPressure
from seismograd.records import Reading, Severity

GB = 1 << 30


def look(at, left, *, limit=16 * GB, own=8 * GB, of="cgroup", device=None):
    facts = {
        **{"seconds": float(at), "limit": limit, "used": limit - left, "left": left, "limit_of": of, "own": own},
        "device": device,
    }
    return Reading(10 * at, facts={"pressure": facts})


def looks(lefts, **more):
    return [look(at, int(left), **more) for at, left in enumerate(lefts)]


def swing(amount):
    return [Reading(0, {"memory/rss": 4.0 * GB, "memory/after_forward": 4.0 * GB + amount})]


def exhausted(**more):
    facts = {
        **{"error": "RuntimeError", "message": "can't allocate", "asked": GB, "phase": "forward", "module": "net.1"},
        **{"line": {"file": "train.py", "line": 7, "code": "out = net(x)"}, "device": "cpu", "caught": False},
        **{"parameters": 100, "gradients": 100, "optimizer": 200, "buffers": 0, "activations": 2 * GB, "other": 300},
        **{"held": 3 * GB, "left": GB // 2, "limit": 4 * GB, "limit_of": "cgroup", "to_come": 0, "batch": 64},
        **{"history": None, "fit": None},
    }
    return [Reading(3, facts={"exhaustion": {**facts, **more}})]


FIT = {
    **{"batch": 64, "activations": 2 * GB, "each": 32 << 20, "largest": 24, "by_module": {"net.1": GB}},
    **{"checkpointed": GB, "largest_checkpointed": 48, "blocks": "net", "halved": GB, "largest_halved": 50},
}


def test_little_is_left_look_after_look(lab):
    found = lab.run(MemoryPressure(), looks([0.5 * GB] * 5))
    assert [finding.step for finding in found] == [20, 30, 40]
    assert found[0].severity is Severity.WARNING
    assert found[0].evidence["left"] == GB // 2
    assert "512 MB of the container's limit is left" in found[0].message


@pytest.mark.parametrize(
    "lefts",
    [[8 * GB] * 20, [0.5 * GB, 0.5 * GB, 4 * GB] * 5, [GB] * 20, range(16 * GB, GB, -GB)],
    ids=["half", "for a moment", "more than a little", "it fills up to a level"],
)
def test_silent(lab, lefts):
    assert lab.run(MemoryPressure(), looks(lefts)) == []


def test_on_the_limit(lab):
    for left, said in ((0.04 * 16 * GB + 1, 0), (0.04 * 16 * GB - 1, 1)):
        assert len(lab.run(MemoryPressure(), looks([left] * 3))) == said


def test_others_fill_the_machine(lab):
    found = lab.run(MemoryPressure(), looks([0.3 * GB] * 3, own=GB, of="machine"))
    assert found[0].severity is Severity.INFO
    assert "others fill the memory" in found[0].message


def test_a_step_takes_more_than_is_left(lab):
    (finding,) = lab.run(MemoryPressure(), [*swing(GB), look(1, GB // 2)])
    assert finding.severity is Severity.CRITICAL
    assert "1 GB for a moment" in finding.message
    assert lab.run(MemoryPressure(), [*swing(GB // 4), look(1, GB // 2)]) == []
    assert lab.run(MemoryPressure(), [*swing(6 * GB), look(1, 5 * GB)]) == []


def test_it_grows_and_will_be_gone_soon(lab):
    lefts = [4 * GB - at * 0.35 * GB for at in range(11)]
    found = lab.run(MemoryPressure(), looks(lefts))
    assert found[0].severity is Severity.CRITICAL
    assert "gone in" in found[0].message
    slowly = lab.run(MemoryPressure(), looks([0.6 * GB - at * 1e6 for at in range(11)]))
    assert {finding.severity for finding in slowly} == {Severity.WARNING}


def test_the_accelerators_allocator_gives_back_all_it_kept(lab):
    def device(retries):
        return {"limit": 16 * GB, "peak": 15 * GB, "retries": retries}

    readings = [look(at, 8 * GB, device=device(retries)) for at, retries in enumerate([0, 1, 2, 3])]
    (finding,) = lab.run(MemoryPressure(), readings)
    assert finding.severity is Severity.WARNING
    assert finding.evidence["retries"] == 3
    assert lab.run(MemoryPressure(), [look(at, 8 * GB, device=device(7)) for at in range(20)]) == []


def test_out_of_memory(lab):
    (finding,) = lab.run(MemoryPressure(), exhausted(fit=FIT))
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence["out_of_memory"] is True
    assert (finding.where.line, finding.where.module, finding.where.phase) == (7, "net.1", "forward")
    assert "activations 2 GB" in finding.message
    assert [each for each in finding.recommendations if "24 would fit instead of 64" in each]
    assert [each for each in finding.recommendations if "a batch of 48 would fit" in each]
    assert [each for each in finding.recommendations if "bfloat16" in each and "50" in each]
    assert finding.evidence["activations_of_a_step"] == 2 * GB
    assert all(type(value) in (int, float, str, bool) for value in finding.evidence.values())


def test_out_of_memory_elsewhere_than_in_the_model(lab):
    (finding,) = lab.run(MemoryPressure(), exhausted(fit={**FIT, "largest": 64}, phase="loop"))
    assert "`out = net(x)`" in finding.recommendations[0]


def test_out_of_memory_without_figures_or_caught(lab):
    assert lab.run(MemoryPressure(), exhausted())[0].recommendations
    assert lab.run(MemoryPressure(), exhausted(line=None, asked=None, history="dump.pickle"))[0].recommendations
    found = lab.run(MemoryPressure(), exhausted(caught=True) * 3)
    assert [finding.severity for finding in found] == [Severity.INFO, Severity.INFO, Severity.WARNING]
    assert lab.run(MemoryPressure(caught=1), exhausted(caught=True))[0].severity is Severity.WARNING
    assert "Not even one" in lab.run(MemoryPressure(), exhausted(fit={**FIT, "largest": 0}))[0].recommendations[0]


def test_the_limits_can_be_set(lab):
    assert lab.run(MemoryPressure(looks=6), looks([0.5 * GB] * 5)) == []
    assert lab.run(MemoryPressure(low=0.1), looks([GB] * 3))
    others = {"own": GB, "of": "machine"}
    assert lab.run(MemoryPressure(share=0.01), looks([0.3 * GB] * 3, **others))[0].severity is Severity.WARNING
    growing = looks([4 * GB - at * 0.35 * GB for at in range(11)])
    assert Severity.CRITICAL not in {each.severity for each in lab.run(MemoryPressure(soon=0.1), growing)}
    assert Severity.CRITICAL not in {each.severity for each in lab.run(MemoryPressure(growths=12), growing)}
    assert lab.run(
        MemoryPressure(retries=1), [look(at, 8 * GB, device={"limit": 1, "peak": 1, "retries": at}) for at in (0, 1)]
    )


@pytest.mark.parametrize(
    ("amount", "words"),
    [(12, "12 bytes"), (1536, "1.5 kB"), (1 << 20, "1 MB"), (1000 << 20, "1000 MB"), (4 << 50, "4,096 TB")],
)
def test_sizes(amount, words):
    assert size(amount) == words
