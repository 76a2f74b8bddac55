"""`memory-leak`, on readings written by hand."""

from __future__ import annotations

import pytest

from seismograd.detectors.resources.memory_leak import MemoryLeak
from seismograd.records import Reading, Severity

GB = float(2**30)


def holder(lengths, **more):
    """A list of losses that keep their graphs, in train.py:31; `lengths` by step."""
    steps = max(1, lengths[-1][0] - lengths[0][0])
    return {
        "name": "history",
        "kind": "list",
        "scope": "local of `main`",
        "module": None,
        "file": "train.py",
        "line": 31,
        "code": "history.append(loss)",
        "known": True,
        "how": "append",
        "value": "loss",
        "count": lengths[-1][1],
        "lengths": [list(each) for each in lengths],
        "rate": (lengths[-1][1] - lengths[0][1]) / steps,
        "each": 2000.0,
        "holds": "tensors",
        "tensors": 1.0,
        "graphs": True,
        "freed": True,
        "numel": 1,
        "shape": [],
        "dtype": "float32",
        "device": "cpu",
        "limit": None,
        "guarded": False,
        "emptied": False,
        "read": True,
        "passing": False,
        "by_tensors": False,
        "unused": False,
        **more,
    }


def facts(step, *growing, workers=None, limit=8 * GB, used=2 * GB, complete=True, passes=1, device=None):
    told = {
        "looks": 3,
        "growing": list(growing),
        "groups": [],
        "complete": complete,
        "own": 10**8,
        "limit": limit,
        "used": used,
        "device": device,
        "passes": passes,
        "workers": workers,
    }
    return Reading(step, facts={"holders": told})


RISES = [(10, 11), (20, 21), (40, 41)]


def memory(steps, each, start=3e8):
    """What the process owns at each step, if `each` bytes are added with it."""
    return [Reading(step, {"memory/own": start + each * step}) for step in range(steps)]


def test_a_list_of_losses_with_graphs_is_named_with_its_line(lab):
    finding = lab.run(MemoryLeak(), [facts(40, holder(RISES))])[0]
    assert finding.severity is Severity.WARNING
    assert (finding.where.file, finding.where.line) == ("train.py", 31)
    assert "List `history` in train.py:31, local of `main`, holds 41 tensors that keep their graphs" in finding.message
    assert "8 GB" in finding.message
    assert "Append `loss.item()`" in finding.recommendations[0]
    assert finding.evidence["bytes_per_step"] == 2000
    assert finding.evidence["limit"] == 8 * GB


@pytest.mark.parametrize(
    "more",
    [
        {"holds": "numbers", "graphs": False, "tensors": 0.0},
        {"limit": 100},
        {"guarded": True},
        {"emptied": True},
        {"passing": True},
        {"graphs": False},  # small, and read
        {"known": False},  # a library's own
        {"lengths": [(10, 11), (20, 41), (40, 41)]},  # stands still
        {"lengths": [(10, 31), (20, 5), (30, 60), (40, 90)]},  # was emptied in between
        {"lengths": [(10, 1), (20, 200), (40, 201), (80, 202)]},  # is nearly full
    ],
    ids=str,
)
def test_neighbours_are_left_alone(lab, more):
    assert lab.run(MemoryLeak(), [facts(40, holder(more.pop("lengths", RISES), **more))]) == []


def test_a_capacity_that_was_passed_bounds_nothing(lab):
    assert lab.run(MemoryLeak(), [facts(40, holder(RISES, limit=30))])


def test_looks_and_items_sit_on_their_limits(lab):
    assert lab.run(MemoryLeak(), [facts(40, holder([(10, 0), (20, 8), (40, 16)]))])
    assert not lab.run(MemoryLeak(), [facts(40, holder([(10, 0), (20, 8), (40, 15)]))])
    assert lab.run(MemoryLeak(items=15), [facts(40, holder([(10, 0), (20, 8), (40, 15)]))])
    assert not lab.run(MemoryLeak(), [facts(40, holder([(10, 0), (40, 30)]))])
    assert lab.run(MemoryLeak(looks=2), [facts(40, holder([(10, 0), (40, 30)]))])


def test_the_heaviest_of_several_is_named_and_the_others_counted(lab):
    heavy = holder(RISES, name="outputs", each=1e6, numel=4096, value="output")
    finding = lab.run(MemoryLeak(), [facts(40, holder(RISES), heavy)])[0]
    assert finding.evidence["holder"] == "outputs"
    assert "1 other container grows as well" in finding.message
    assert "`output.detach()`" in finding.recommendations[0]


def test_the_live_tensors_stand_in_the_evidence(lab):
    reading = facts(40, holder(RISES))
    held = {"history": 40, "others": 1}
    group = {"shape": [8, 64], "dtype": "float32", "device": "cpu", "count": 41, "bytes": 2048 * 41, "held": held}
    reading.facts["holders"]["groups"] = [group]
    told = lab.run(MemoryLeak(), [reading])[0].evidence["live_tensors"]
    assert told == "41 of [8, 64] float32, 82 kB (40 in history, 1 in others)"


def test_it_is_critical_where_the_limit_is_near(lab):
    near = holder(RISES, each=1e7)
    assert lab.run(MemoryLeak(), [facts(40, near, limit=3 * GB, used=2 * GB)])[0].severity is Severity.CRITICAL
    far = lab.run(MemoryLeak(soon=10), [facts(40, near, limit=3 * GB, used=2 * GB)])
    assert far[0].severity is Severity.WARNING


# -- by bytes ------------------------------------------------------------------------------------------------------


def heavy(each=2e6, **more):
    return holder(RISES, graphs=False, each=each, numel=500_000, **more)


def test_large_tensors_count_once_memory_grew_with_them(lab):
    grown = [*memory(41, 2e6), facts(40, heavy())]
    assert lab.run(MemoryLeak(), grown)[0].evidence["why"] == "bytes"
    assert lab.run(MemoryLeak(), [*memory(41, 0.0), facts(40, heavy())]) == []  # they are there anyway
    assert lab.run(MemoryLeak(), [*memory(41, 2e6), facts(40, heavy(each=5e5))]) == []  # 15 MB
    assert lab.run(MemoryLeak(noticeable=1e7), [*memory(41, 2e6), facts(40, heavy(each=5e5))])
    assert lab.run(MemoryLeak(horizon=1000), grown) == []


def test_tensors_on_an_accelerator_are_measured_by_its_memory(lab):
    there = heavy(device="cuda")
    assert lab.run(MemoryLeak(), [facts(40, there, device=[16 * GB, 1 * GB])])[0].severity is Severity.CRITICAL
    finding = lab.run(MemoryLeak(), [facts(40, there, device=[16 * GB, 10 * GB])])[0]
    assert finding.evidence["limit"] == 16 * GB
    assert "16 GB" in finding.message
    assert lab.run(MemoryLeak(), [facts(40, there, device=[1e16, 9e15])]) == []


def test_a_dict_may_be_filled_in_the_first_pass(lab):
    by_sample = heavy(kind="dict", how="[]=")
    assert lab.run(MemoryLeak(), [*memory(41, 2e6), facts(40, by_sample, passes=0)]) == []
    assert lab.run(MemoryLeak(), [*memory(41, 2e6), facts(40, by_sample, passes=1)])
    assert lab.run(MemoryLeak(), [*memory(41, 2e6), facts(40, by_sample, passes=None)])


def test_what_nothing_reads_counts_earlier(lab):
    lengths = [(10, 11), (30, 31), (70, 71)]
    unread = holder(lengths, graphs=False, read=False, each=5000.0, numel=512)
    finding = lab.run(MemoryLeak(), [facts(70, unread)])[0]
    assert "nothing reads it" in finding.message
    assert lab.run(MemoryLeak(unread=100), [facts(70, unread)]) == []
    assert lab.run(MemoryLeak(bytes_unread=6000), [facts(70, unread)]) == []
    assert lab.run(MemoryLeak(), [facts(70, {**unread, "holds": "objects"})]) == []
    assert lab.run(MemoryLeak(), [*memory(71, 0.0), facts(70, {**unread, "each": 5e5})]) == []  # there anyway
    assert lab.run(MemoryLeak(), [*memory(71, 5e5), facts(70, {**unread, "each": 5e5})])
    assert lab.run(MemoryLeak(), [facts(70, {**unread, "read": None})]) == []


def test_hooks_threads_and_caches(lab):
    hooks = holder(RISES, kind="hooks", holds="functions", graphs=False, scope="register_forward_hook", name="model[0]")
    finding = lab.run(MemoryLeak(), [facts(40, hooks)])[0]
    assert "`model[0]` has 41 hooks" in finding.message
    assert "handle.remove()" in finding.recommendations[0]
    threads = holder([(10, 5), (20, 30), (40, 60)], kind="threads", holds="threads", graphs=False)
    assert "60 threads are alive" in lab.run(MemoryLeak(), [facts(40, threads)])[0].message
    assert lab.run(MemoryLeak(threads=60), [facts(40, threads)]) == []
    cache = holder(RISES, kind="cache", graphs=False, by_tensors=True, unused=True, name="mask", each=9e3)
    assert "never finds one again" in lab.run(MemoryLeak(), [facts(40, cache)])[0].recommendations[0]
    assert lab.run(MemoryLeak(), [facts(40, {**cache, "by_tensors": False, "unused": False})]) == []


# -- without a holder ----------------------------------------------------------------------------------------------


def blind(each, steps=800, **more):
    return [facts(20, **more), *memory(steps, each)]


def test_memory_that_nobody_holds_is_told_of_late(lab):
    findings = lab.run(MemoryLeak(), blind(1e6))
    assert findings
    assert findings[0].step >= 500
    assert "no container" in findings[0].message
    assert findings[0].evidence["measured_bytes_per_step"] == pytest.approx(1e6)


def test_the_limits_of_the_blind_slope(lab):
    assert lab.run(MemoryLeak(), blind(1e6, steps=500)) == []
    assert lab.run(MemoryLeak(blind_steps=300), blind(1e6, steps=500))
    assert lab.run(MemoryLeak(), blind(2e5)) == []
    assert lab.run(MemoryLeak(blind_bytes=1e8), blind(2e5))
    assert lab.run(MemoryLeak(warm_up=400), blind(1e6)) == []


def test_a_first_pass_may_fill_what_it_likes(lab):
    """Without a loader that says when a pass is over, it takes four times as long."""
    assert lab.run(MemoryLeak(), blind(1e6, passes=None)) == []
    assert lab.run(MemoryLeak(), blind(1e6, steps=2200, passes=None, limit=80 * GB))
    fills = [Reading(step, {"memory/own": 3e8 + 1e6 * min(step, 1000)}) for step in range(2000)]
    told = [*fills[:900], facts(900, passes=0), *fills[900:1010], facts(1010, passes=1), *fills[1010:]]
    assert lab.run(MemoryLeak(), told) == []


def test_growth_that_is_explained_jumps_or_slows_down_is_no_leak(lab):
    buffer = holder(RISES, limit=10_000, each=1e6, graphs=False)
    assert lab.run(MemoryLeak(), [facts(20, buffer), *memory(800, 1e6)]) == []
    jump = [Reading(step, {"memory/own": 3e8 + 1e9 * (step > 400)}) for step in range(800)]
    assert lab.run(MemoryLeak(), [facts(20), *jump]) == []
    fills = [Reading(step, {"memory/own": 3e8 + 1e9 * (1 - 0.99**step)}) for step in range(800)]
    assert lab.run(MemoryLeak(), [facts(20), *fills]) == []
    stairs = [Reading(step, {"memory/own": 3e8 + 1e8 * (step // 100)}) for step in range(800)]
    assert lab.run(MemoryLeak(), [facts(20), *stairs])  # the allocator takes memory in large pieces


# -- workers -------------------------------------------------------------------------------------------------------

GIVEN = {
    **{"name": "self.given", "kind": "list", "file": "data.py", "line": 12, "code": "self.given.append(x)"},
    **{"how": "append", "guarded": False, "emptied": False, "limit": None},
}


def workers(each, *grown, steps=200):
    return {
        "count": 2,
        "own": [[step, round(1e8 + each * step)] for step in range(0, steps, 10)],
        "dataset": "Pictures",
        "grown": list(grown),
    }


def test_a_list_that_grows_in_the_workers(lab):
    finding = lab.run(MemoryLeak(), [facts(200, workers=workers(1e6, GIVEN))])[0]
    assert finding.where.line == 12
    assert "2 workers of the loader grow by" in finding.message
    assert "`self.given` of the dataset `Pictures`" in finding.message
    assert lab.run(MemoryLeak(), [facts(200, workers=workers(1e6, {**GIVEN, "guarded": True}))]) == []
    assert lab.run(MemoryLeak(), [facts(200, workers=workers(1e5, GIVEN))]) == []
    assert lab.run(MemoryLeak(of_workers=1e7), [facts(200, workers=workers(1e5, GIVEN))])
    assert lab.run(MemoryLeak(), [facts(200, workers=workers(1e6))]) == []  # not that much, and no name for it


def test_it_remembers_little(lab):
    checker = MemoryLeak().start()
    for reading in memory(20_000, 10.0):
        checker.check(reading)
    assert len(checker._own.after(0)) <= 64
