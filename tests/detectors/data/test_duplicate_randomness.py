from seismograd.detectors.data.duplicate_randomness import DuplicateRandomness
from seismograd.records import Reading


def reading(**workers):
    return Reading(7, facts={"data": {"workers": workers}})


SAME = {"rounds": 3, "workers": 4, "dataset": "Lines", "iterable": True}
MADE = {"owner": "Noisy", "name": "self.rng", "kind": "Generator", "workers": 2, "again": True}
SEEDED = {"function": "seed", "file": "train.py", "line": 3, "workers": 2}


def test_the_same_batches(lab):
    (finding,) = lab.run(DuplicateRandomness(), [reading(same=SAME)])
    assert finding.severity == "warning"
    assert "All 4 workers" in finding.message
    assert "Lines" in finding.recommendations[0]


def test_a_generator_that_all_have(lab):
    (finding,) = lab.run(DuplicateRandomness(), [reading(generator=MADE)])
    assert "`self.rng` of `Noisy`" in finding.message
    assert "each epoch" in finding.message


def test_one_seed_for_all(lab):
    (finding,) = lab.run(DuplicateRandomness(), [reading(seeded=SEEDED)])
    assert (finding.where.file, finding.where.line) == ("train.py", 3)


def test_silent(lab):
    assert lab.run(DuplicateRandomness(), [reading(), Reading(1, facts={"data": {"inputs": []}})]) == []


def test_on_its_limit(lab):
    assert lab.run(DuplicateRandomness(rounds=4), [reading(same=SAME)]) == []
