"""`rank-uneven-input`, `rank-same-data`, `rank-sampler`, `rank-same-randomness`."""

from __future__ import annotations

import pytest

from seismograd.detectors import DEFAULT
from seismograd.detectors.ranks.rank_same_data import RankSameData
from seismograd.detectors.ranks.rank_same_randomness import RankSameRandomness
from seismograd.detectors.ranks.rank_sampler import RankSampler
from seismograd.detectors.ranks.rank_uneven_input import RankUnevenInput
from seismograd.judge import judge_all
from seismograd.records import Severity


def one(ranks, detector, **told):
    found = ranks.run(detector, [ranks.reading(3, **told)])
    return found[0] if found else None


# -- uneven input ----------------------------------------------------------------------------------------------------


def test_uneven_input(ranks):
    finding = one(ranks, RankUnevenInput(), loaders={"lengths": {0: 10, 1: 9}, "join": False})
    assert (finding.severity, finding.rank) == (Severity.WARNING, 1)
    assert finding.message == (
        "Rank 1 has 9 batches an epoch, rank 0 10: after its last batch the others wait for it in the next collective,"
        " and the run hangs, unless the loop stops at the shortest."
    )
    assert "islice(loader, 9)" in finding.recommendations[1]


def test_uneven_input_on_its_limit(ranks):
    loaders = {"lengths": {0: 10, 1: 8}}
    assert one(ranks, RankUnevenInput(batches=2), loaders=loaders)
    assert one(ranks, RankUnevenInput(batches=3), loaders=loaders) is None


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"loaders": {"lengths": {0: 10, 1: 10}}},
        {"loaders": {"lengths": {0: 10}}},
        {"loaders": {"lengths": {0: 10, 1: None}}},
        {"loaders": {"lengths": {0: 10, 1: 9}, "join": True}},
        {"loaders": {"lengths": {0: 10, 1: 9}}, "kind": "alone"},
        {"loaders": {"lengths": {0: 10, 1: 0}}, "kind": "mixed"},
    ],
)
def test_uneven_input_is_silent(ranks, told):
    assert one(ranks, RankUnevenInput(), **told) is None


# -- the same data ---------------------------------------------------------------------------------------------------


def test_same_data(ranks):
    finding = one(ranks, RankSameData(), batches={"same": [[0, 1]], "steps": 5})
    assert (finding.severity, finding.rank) == (Severity.WARNING, 1)
    assert finding.message.startswith("Ranks 0 and 1 were given the very same batch at 5 steps in a row: they compute")


def test_same_data_of_groups(ranks):
    every = one(ranks, RankSameData(), batches={"same": [[0, 1, 2, 3]], "steps": 9}, world=4)
    assert every.message.startswith("All 4 ranks were given")
    pairs = one(ranks, RankSameData(), batches={"same": [[0, 2], [1, 3]], "steps": 9}, world=4)
    assert pairs.message.startswith("Ranks 0 and 2 were given")
    assert "1 other group of ranks likewise" in pairs.message
    assert pairs.rank == 2


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"batches": {"same": [[0, 1]], "steps": 4}},  # on its limit
        {"batches": {"same": [], "steps": 50}},
        {"batches": {"same": [[0]], "steps": 50}},
        {"batches": {"steps": 50}},
        {"batches": {"same": [[0, 1]], "steps": 50}, "kind": "mixed"},
        {"batches": {"same": [[0, 1]], "steps": 50}, "kind": "alone"},
    ],
)
def test_same_data_is_silent(ranks, told):
    assert one(ranks, RankSameData(), **told) is None


# -- samplers --------------------------------------------------------------------------------------------------------


def test_sampler_without_set_epoch(ranks):
    samplers = {"kind": "DistributedSampler", "shuffle": True, "epochs": {0: [0, 0, 0], 1: [0, 0, 0]}, "stuck": True}
    finding = one(ranks, RankSampler(), samplers=samplers)
    assert (finding.severity, finding.rank) == (Severity.WARNING, 0)
    assert "never told of a new epoch: 3 passes over the data were all shuffled as epoch 0" in finding.message
    assert "set_epoch(epoch)" in finding.recommendations[0]


def test_sampler_with_the_same_rank_twice(ranks):
    finding = one(ranks, RankSampler(), samplers={"ranks": {0: 0, 1: 0}})
    assert finding.rank == 1
    assert "The samplers of ranks 0 and 1 all say `rank=0`" in finding.message
    assert "those of rank 1 are never seen" in finding.message


def test_sampler_with_other_seeds(ranks):
    finding = one(ranks, RankSampler(), samplers={"seeds": {0: 0, 1: 0, 2: 7}, "shuffle": True}, world=3)
    assert finding.rank == 2
    assert "(7 on rank 2, 0 on rank 0)" in finding.message


def test_sampler_with_another_number_of_replicas(ranks):
    finding = one(ranks, RankSampler(), samplers={"replicas": {0: 2, 1: 2}}, world=4)
    assert "`num_replicas=2`, and there are 4 ranks" in finding.message


def test_sampler_with_several_faults_tells_them_all(ranks):
    samplers = {"ranks": {0: 0, 1: 0}, "stuck": True, "shuffle": True, "epochs": {0: [0, 0]}}
    finding = one(ranks, RankSampler(), samplers=samplers)
    assert finding.evidence["wrong"] == "rank, epoch"
    assert len(finding.recommendations) == 2


STUCK = {"stuck": True, "shuffle": True, "epochs": {0: [0, 0], 1: [0, 0]}}


def test_sampler_on_its_limit(ranks):
    assert one(ranks, RankSampler(), samplers=STUCK)
    assert one(ranks, RankSampler(passes=3), samplers=STUCK) is None


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"samplers": {}},
        {"samplers": {"kind": "DistributedSampler", "shuffle": True}},
        {"samplers": STUCK | {"shuffle": False}},
        {"samplers": STUCK | {"stuck": False}},
        {"samplers": {"seeds": {0: 0, 1: 0}, "ranks": {0: 0, 1: 1}, "replicas": {0: 2, 1: 2}}},
        {"samplers": {"seeds": {0: 0, 1: 7}, "shuffle": False}},
        {"samplers": {"ranks": {0: 0, 1: 0}, "replicas": {0: 1, 1: 1}}, "kind": "mixed"},
        {"samplers": {"ranks": {0: 0, 1: 0}}, "kind": "alone"},
    ],
)
def test_sampler_is_silent(ranks, told):
    assert one(ranks, RankSampler(), **told) is None


def test_the_same_data_follows_from_its_sampler(ranks):
    reading = ranks.reading(8, samplers={"ranks": {0: 0, 1: 0}}, batches={"same": [[0, 1]], "steps": 5})
    findings = judge_all([reading], DEFAULT)
    assert [finding.id for finding in findings] == ["rank-sampler", "rank-same-data"]
    assert findings[1].evidence["because"] == "rank-sampler"


# -- the same randomness ---------------------------------------------------------------------------------------------

SAME = {"same": [[0, 1]], "steps": 5, "dropout": True}


def test_same_randomness(ranks):
    finding = one(ranks, RankSameRandomness(), random=SAME)
    assert (finding.severity, finding.rank) == (Severity.INFO, 1)
    assert finding.message.startswith("Ranks 0 and 1 drew the same random numbers at 5 steps in a row")


def test_the_same_noise(ranks):
    finding = one(ranks, RankSameRandomness(), random=SAME | {"dropout": False, "noise": True})
    assert "noise" in finding.message
    assert "dropout" not in finding.message


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"random": SAME | {"steps": 4}},  # on its limit
        {"random": SAME | {"dropout": False}},
        {"random": SAME | {"same": []}},
        {"random": SAME, "kind": "mixed"},
        {"random": SAME, "kind": "alone"},
    ],
)
def test_same_randomness_is_silent(ranks, told):
    assert one(ranks, RankSameRandomness(), **told) is None
