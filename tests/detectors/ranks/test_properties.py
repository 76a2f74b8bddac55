"""Facts with parts missing, facts out of a store, facts of ten thousand ranks: no detector raises, or says too much."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seismograd.detectors import DEFAULT
from seismograd.detectors.ranks.facts import by_rank, who
from seismograd.judge import Judge
from seismograd.records import Reading, strict

OURS = [
    dataclasses.replace(detector, window=4, warmup=0) if detector.id == "rank-straggler" else detector
    for detector in DEFAULT
    if detector.id.startswith("rank-") or detector.id == "unused-parameter"
]
ORIGIN = {
    "phase": "backward",
    "module": "1",
    "op": "aten.sqrt",
    "file": "t.py",
    "line": 12,
    "samples": [3],
    "note": "x",
}


def spread(high, who):
    return {"median": 0.05, "low": 0.05, "high": high, "who": who, "low_who": 0}


def full(world=2, listed=(0, 1), step=12, times=9) -> dict[str, Any]:
    """Everything that can be told, and all of it wrong."""
    listed = list(listed)
    last = listed[-1]
    parting = {
        "groups": [listed[:-1], [last]], "counts": [world - 1, 1], "agreed": 11, "agreements": 40, "first": 12,
        "times": times,
    }  # fmt: skip
    every = {rank: ["0.weight"] for rank in listed}
    ranks = {
        "world": world,
        "told": world,
        "kind": "ddp",
        "hosts": 2,
        "missing": [last],
        "times": {name: spread(0.9, last) for name in ("step", "data", "forward", "backward", "optimizer", "rest")},
        "own": spread(0.5, last),
        "apart": {what: copy.deepcopy(parting) for what in ("parameters", "gradients", "buffers")},
        "detail": {
            "what": "parameters", "step": 12, "differ": 3, "of": 4, "gap": 0.03,
            "names": [{"name": f"{at}.weight", "values": {rank: 1.0 + rank for rank in listed}} for at in range(16)],
        },
        "signs": {
            "called_inside": [last], "no_sync": [last], "foreign": every, "changed_outside": every, "ungraded": every,
            "clipped": {rank: 1.0 + rank for rank in listed}, "rates": {rank: [0.1 + rank] for rank in listed},
            "unstepped": [last], "collectives": {rank: 40 + rank for rank in listed}, "graded_otherwise": [last],
        },
        "broken": {
            rank: {"loss": "NaN", "loss_bad": rank == last, "gradient_bad": True, "origin": ORIGIN}
            if rank == last
            else {"loss": 1.0, "loss_bad": False, "gradient_bad": True, "origin": None}
            for rank in listed
        },
        "loaders": {"lengths": {rank: 10 + rank for rank in listed}, "join": False},
        "samplers": {
            "kind": "DistributedSampler", "seeds": {rank: rank for rank in listed}, "shuffle": True, "stuck": True,
            "ranks": dict.fromkeys(listed, 0), "replicas": dict.fromkeys(listed, 7),
            "epochs": {rank: [0, 0, 0] for rank in listed},
        },
        "batches": {"same": [listed], "steps": 50},
        "random": {"same": [listed], "steps": 50, "dropout": True},
        "unused": {"find_unused": True, "never": [], "steps": 99},
    }  # fmt: skip
    standing = {
        rank: {
            "step": 41, "phase": "backward", "seconds": 31.0, "sign": "silent" if rank == last else "alive",
            "collective": "all_reduce", "sequence": 3, "host": "a", "pid": 1,
            "stack": [{"file": "t.py", "line": 4, "function": "f", "code": "{x}"}],
        }
        for rank in listed
    }  # fmt: skip
    hang = {"seconds": 31.0, "limit": 30.0, "usual": 0.05, "world": world, "step": 41, "ranks": standing}
    return {"ranks": ranks, "hang": hang, "ddp": {"unused": ["head.weight"], "message": "Expected"}}


def judged(facts: list[dict[str, Any]]) -> list[Any]:
    judge = Judge(OURS)  # raises what a detector raises
    for step, each in enumerate(facts, start=12):
        for topic, told in each.items():
            judge.observe(Reading(step, facts={topic: told}))
    return judge.findings


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be taken out."""
    if not isinstance(value, dict):
        return []
    return [path for key, item in value.items() for path in ((*at, key), *paths(item, (*at, key)))]


PATHS = paths(full())


def without(facts: dict[str, Any], gone: list[tuple[Any, ...]], put: Any = ...) -> dict[str, Any]:
    for path in gone:
        inner: Any = facts
        for key in path[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and len(path) > 1:
            inner.pop(path[-1], None)
            if put is not ...:
                inner[path[-1]] = put
    return facts


def test_everything_wrong_is_told_by_all_of_them():
    ids = {finding.id for finding in judged([full(times=at) for at in range(1, 10)])}
    assert ids == {detector.id for detector in OURS}


@pytest.mark.parametrize("put", [..., None], ids=["missing", "None"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_one_key_missing(path, put):
    judged([without(full(times=at), [path], put) for at in range(1, 7)])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PATHS), max_size=30), st.booleans(), st.booleans())
def test_many_keys_missing(gone, stored, empty):
    facts = [without(full(times=at), gone, None if empty else ...) for at in range(1, 7)]
    judged([json.loads(json.dumps(strict(each))) for each in facts] if stored else facts)


def test_out_of_a_store_it_is_the_same():
    live = [full(times=at) for at in range(1, 10)]
    stored = [json.loads(json.dumps(strict(each))) for each in live]
    assert [f.to_dict() for f in judged(live)] == [f.to_dict() for f in judged(stored)]


@pytest.mark.parametrize("listed", [range(16), [*range(15), 9_999], range(10_000)], ids=["first", "last", "all"])
def test_what_is_said_of_ten_thousand_ranks_is_short(listed):
    findings = judged([full(10_000, listed, times=at) for at in range(1, 7)])
    assert {finding.id for finding in findings} >= {"rank-desync", "rank-hang", "rank-sampler", "rank-straggler"}
    for finding in findings:
        assert len(json.dumps(strict(finding.to_dict()))) < 12_000, finding.id
        assert len(finding.message) < 1_200, finding.id
        assert finding.message.endswith(".")
        assert finding.recommendations
        assert "limit" in finding.evidence
        json.dumps(strict(finding.to_dict()), allow_nan=False)


@pytest.mark.parametrize("detector", OURS, ids=lambda detector: detector.id)
def test_a_checker_remembers_no_more_with_time(detector):
    checker, sizes = detector.start(), []
    facts = full(16, range(16))
    del facts["ranks"]["detail"]
    for step in range(3_000):
        for parting in facts["ranks"]["apart"].values():
            parting["times"] = step + 1
        facts["ranks"]["own"]["who"] = step % 16
        facts["ranks"]["signs"] = {f"new-{step}": [1], "no_sync": [1]}
        for topic, told in facts.items():
            if any(f"facts/{topic}" in need.split("|") for need in detector.needs):
                checker.check(Reading(step, facts={topic: told}))
        if step in (1_000, 2_999):
            state = {name: getattr(checker, name) for name in checker.__slots__ if name != "_detector"}
            sizes.append(len(pickle.dumps(state)))
    assert sizes[1] <= sizes[0] + 200


def test_ranks_in_words():
    assert who([2]) == "rank 2"
    assert who([3, 0, 1]) == "ranks 0, 1 and 3"
    assert who([0, 1]) == "ranks 0 and 1"
    assert who(range(7)) == "ranks 0 to 6"
    assert who([0, 2, 4, 6, 8]) == "ranks 0, 2, 4 and 2 more"
    assert who([0, 1, 2], 9_999) == "ranks 0, 1, 2 and 9,996 more"
    assert who([], 12) == "12 ranks"
    assert by_rank({"1": 1, 0: 2, "count": 3}) == {0: 2, 1: 1}
