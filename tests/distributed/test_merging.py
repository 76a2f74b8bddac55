"""Notes of ranks become one record of a step, as large for many ranks as for two."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from seismograd.distributed.merging import ALIKE, LATE, LISTED, Merger
from seismograd.records import strict


def note(step: int, **more: Any) -> dict[str, Any]:
    told = {"step": step, "kind": "ddp", "group": "", "signature": 7, "loss": 1.0, "own": 0.01, "times": {"step": 0.02}}
    return {**told, "parameters": 11, "gradients": 5, **more}


def merged(world: int, *steps: dict[int, dict[str, Any]]) -> list[Any]:
    merger = Merger(world)
    readings = []
    for told in steps:
        for rank, each in told.items():
            merger.add(rank, each)
        readings += merger.take()
    return readings


def alike(world: int, step: int, **more: Any) -> dict[int, dict[str, Any]]:
    return {rank: note(step, **more) for rank in range(world)}


def test_a_step_is_merged_when_all_ranks_have_told_of_it():
    merger = Merger(3)
    merger.add(0, note(4, loss=1.0))
    merger.add(2, note(4, loss=3.0))
    assert merger.take() == []
    merger.add(1, note(4, loss=2.0))
    (reading,) = merger.take()
    assert reading.step == 4
    assert reading.rank == 0
    assert reading.scalars["ranks/loss"] == 2.0
    facts = reading.facts["ranks"]
    assert (facts["world"], facts["told"], facts["kind"]) == (3, 3, "ddp")
    assert "apart" not in facts
    assert "signs" not in facts
    assert merger.take() == []


def test_steps_that_not_all_tell_of_are_given_up():
    merger = Merger(2)
    merger.add(0, note(1))
    for step in range(2, LATE + 4):
        for rank in range(2):
            merger.add(rank, note(step))
    assert [reading.step for reading in merger.take()] == list(range(2, LATE + 4))
    assert merger._steps == {}


def test_a_broken_step_is_told_even_if_some_rank_is_missing():
    merger = Merger(3)
    merger.add(1, note(1, broken={"loss_bad": True}))
    for step in range(2, LATE + 4):
        for rank in range(3):
            merger.add(rank, note(step))
    first = merger.take()[0]
    assert first.step == 1
    assert first.facts["ranks"]["broken"] == {1: {"loss_bad": True}}
    assert first.facts["ranks"]["missing"] == [0, 2]


def test_the_norm_of_the_whole_counts_each_part_once():
    (reading,) = merged(2, {0: note(0, squares=9.0), 1: note(0, squares=16.0)})
    assert reading.scalars["ranks/grad/norm"] == 5.0
    (reading,) = merged(2, {0: note(0, squares=9.0), 1: note(0)})
    assert "ranks/grad/norm" not in reading.scalars, "half of it is not the norm"
    (reading,) = merged(2, {0: note(0, squares="NaN"), 1: note(0, squares=1.0)})
    assert math.isnan(reading.scalars["ranks/grad/norm"])


def test_who_parts_and_when_they_agreed_last():
    steps = [alike(4, step, parameters=step) for step in range(3)]
    steps += [{rank: note(step, parameters=99 if rank == 2 else step) for rank in range(4)} for step in (3, 4)]
    readings = merged(4, *steps)
    assert [("apart" in reading.facts["ranks"]) for reading in readings] == [False] * 3 + [True] * 2
    assert readings[-1].facts["ranks"]["apart"] == {
        "parameters": {
            "groups": [[0, 1, 3], [2]],
            "counts": [3, 1],
            "agreed": 2,
            "agreements": 3,
            "first": 3,
            "times": 2,
        }
    }


def test_ranks_that_agree_again_were_only_apart_for_a_while():
    steps = [alike(2, 0), {0: note(1), 1: note(1, parameters=12)}, alike(2, 2), {0: note(3), 1: note(3, parameters=12)}]
    last = merged(2, *steps)[-1].facts["ranks"]["apart"]["parameters"]
    assert (last["first"], last["times"], last["agreements"]) == (3, 1, 2)


def started(step: int, gradients: Any = None, weights: tuple[int, int] = (1, 2), calls: int = 4) -> dict[int, Any]:
    """Two plain ranks that are apart, and what their optimizers began to step with."""
    own = gradients if isinstance(gradients, tuple) else (gradients or step, gradients or step)
    told = {"kind": "replicas", "collectives": calls * step}
    return {r: note(step, parameters=weights[r] + step, applied=[own[r], weights[r]], **told) for r in range(2)}


def test_ranks_that_began_apart_and_step_with_one_gradient():
    def times(*steps):
        told = merged(2, *steps)[-1].facts["ranks"].get("apart", {}).get("parameters", {})
        return told.get("one_gradient", 0)

    assert times(*(started(step) for step in range(1, 7))) == 6
    some = [started(step) for step in range(1, 4)]
    assert times(*some, started(4, (8, 9)), started(5)) == 0, "an ensemble, whose gradients were alike by chance"
    assert times(*some, started(4, weights=(3, 3)), started(5)) == 0, "they were brought together before the step"
    assert times(*(started(step, gradients=7) for step in range(1, 7))) == 1, "such as zeros"
    assert times(*(started(step, calls=0) for step in range(1, 7))) == 1, "nobody averages anything"
    skipped = {rank: note(4, kind="replicas", parameters=rank) for rank in range(2)}
    assert times(*some, skipped, started(5)) == 4


def test_only_ranks_of_one_group_are_compared():
    told = {rank: note(0, parameters=rank // 2, group=f"{rank // 2}+2") for rank in range(4)}
    (reading,) = merged(4, told)
    assert "apart" not in reading.facts["ranks"]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "ddp"),
        ({"signature": 8}, "mixed"),
        ({"kind": "replicas"}, "mixed"),
    ],
)
def test_ranks_that_train_something_else_are_not_compared(changes, kind):
    (reading,) = merged(2, {0: note(0), 1: note(0, parameters=12, **changes)})
    facts = reading.facts["ranks"]
    assert facts["kind"] == kind
    assert ("apart" in facts) == (kind == "ddp")


def test_each_rank_for_itself_is_alone():
    (reading,) = merged(2, {0: note(0, kind="replicas"), 1: note(0, kind="replicas", signature=8, parameters=1)})
    assert reading.facts["ranks"]["kind"] == "alone"


def test_signs_are_told_only_where_ranks_differ():
    same = merged(2, alike(2, 0, clipped=1.0, rates=[0.1], collectives=4, graded=6))[0].facts["ranks"]
    assert "signs" not in same
    told = {
        0: note(0, inside=True, clipped=1.0, rates=[0.1], collectives=4, graded=6),
        1: note(0, unsynced=True, skipped=True, changed=["w"], rates=[0.2], collectives=3, graded=5, ungraded=["v"]),
    }
    assert merged(2, told)[0].facts["ranks"]["signs"] == {
        "called_inside": [0],
        "no_sync": [1],
        "unstepped": [1],
        "changed_outside": {1: ["w"]},
        "clipped": {0: 1.0},
        "rates": {0: [0.1], 1: [0.2]},
        "collectives": {0: 4, 1: 3},
        "graded_otherwise": [1],
        "ungraded": {1: ["v"]},
    }


def test_two_branches_of_as_many_parameters_are_told_apart():
    told = {
        0: note(0, graded=4, ungraded=["spare", "q.weight", "q.bias"]),
        1: note(0, graded=4, ungraded=["spare", "p.weight", "p.bias"]),
    }
    assert merged(2, told)[0].facts["ranks"]["signs"] == {
        "graded_otherwise": [1],
        "ungraded": {0: ["q.weight", "q.bias"], 1: ["p.weight", "p.bias"]},
    }


def detail(step: int, parameters: list[float], norms: list[float], **more: Any) -> dict[str, Any]:
    told = {
        "step": step,
        "names": ["a", "b"],
        "parameters": parameters,
        "norms": norms,
        "buffer_names": [],
        "buffers": [],
    }
    return {**told, "foreign": [], **more}


def test_one_of_each_side_is_asked_which_tensor_it_is():
    merger = Merger(3)
    for rank in range(3):
        merger.add(rank, note(5, parameters=1 if rank == 2 else 0))
    merger.take()
    assert merger.question == (5, "parameters", [0, 2])
    merger.asked()
    assert merger.question is None
    assert merger.waits
    merger.answered(0, detail(5, [1.0, 2.0], [3.0, 4.0]))
    merger.answered(2, detail(4, [1.0, 2.0], [3.0, 4.0]))
    assert merger.waits, "the answer to another question is none"
    merger.answered(2, detail(5, [1.0, 9.0], [3.0, 5.0], foreign=["c"]))
    for rank in range(3):
        merger.add(rank, note(6, parameters=1 if rank == 2 else 0))
    (reading,) = merger.take()
    facts = reading.facts["ranks"]
    assert facts["detail"] == {
        "what": "parameters",
        "step": 5,
        "names": [{"name": "b", "values": {0: 4.0, 2: 5.0}}],
        "differ": 1,
        "of": 2,
        "gap": 0.2,
    }
    assert facts["signs"]["foreign"] == {2: ["c"]}
    assert merger.question is None, "once is enough"


def test_the_last_answer_is_told_when_no_step_follows():
    merger = Merger(2)
    for rank in range(2):
        merger.add(rank, note(5, parameters=rank))
    merger.take()
    merger.asked()
    early = merger.last(5)
    assert early is not None
    assert early.facts["ranks"]["over"]
    assert "detail" not in early.facts["ranks"]
    merger.answered(0, detail(5, [1.0, 2.0], []))
    merger.answered(1, detail(5, [0.0, 2.0], []))
    reading = merger.last(7)
    assert reading is not None
    told = reading.facts["ranks"]["detail"]
    assert told["names"] == [{"name": "a"}]
    assert "gap" not in told, "what was not measured is absent"


def test_nothing_is_said_at_the_end_of_ranks_that_agree():
    merger = Merger(2)
    for step, other in ((1, 11), (2, 12), (3, 11)):
        merger.add(0, note(step))
        merger.add(1, note(step, parameters=other))
    merger.take()
    assert merger.last(3) is None


def test_the_same_batch_is_told_after_some_steps_in_a_row():
    steps = [
        {0: note(step, batch=step), 1: note(step, batch=step), 2: note(step, batch=-1 - step)} for step in range(ALIKE)
    ]
    readings = merged(3, *steps)
    assert all("batches" not in reading.facts["ranks"] for reading in readings[:-1])
    assert readings[-1].facts["ranks"]["batches"] == {"same": [[0, 1]], "steps": ALIKE}
    apart = [*steps[:-1], {rank: note(9, batch=rank) for rank in range(3)}, steps[-1]]
    assert all("batches" not in reading.facts["ranks"] for reading in merged(3, *apart))


def test_one_batch_again_and_again_is_meant():
    steps = [alike(2, step, batch=7) for step in range(20)]
    assert all("batches" not in reading.facts["ranks"] for reading in merged(2, *steps))


def test_ranks_that_train_each_its_own_may_be_fed_the_same():
    def sweep(step: int) -> dict[int, dict[str, Any]]:
        return {
            rank: note(step, kind="replicas", parameters=10 * step + rank, batch=step, **fed(9 + rank))
            for rank in range(2)
        }

    for reading in merged(2, *(sweep(step) for step in range(20))):
        assert not {"batches", "loaders", "samplers"} & reading.facts["ranks"].keys()


def test_ranks_that_stay_alike_by_hand_are_one_model():
    steps = [alike(2, step, kind="replicas", parameters=step, batch=step) for step in range(2 * ALIKE + 2)]
    steps[0][0] |= fed(9)
    steps[0][1] |= fed(10)
    readings = merged(2, *steps)
    assert any("loaders" in reading.facts["ranks"] for reading in readings), "told once it is known"
    assert "batches" in readings[-1].facts["ranks"]


def test_groups_of_ranks_are_fed_as_they_like():
    told = {rank: note(0, group=f"{rank % 2}", batch=1, **fed(9 + rank)) for rank in range(4)}
    assert not {"batches", "loaders"} & merged(4, told)[0].facts["ranks"].keys()


def test_of_many_broken_ranks_those_stand_first_that_went_bad_by_themselves():
    bad = {"loss_bad": False, "gradient_bad": True, "input_bad": False, "origin": None}
    told = {rank: note(0, broken={**bad, "loss_bad": rank == 50}) for rank in range(60)}
    facts = merged(60, told)[0].facts["ranks"]
    assert next(iter(facts["broken"])) == 50
    assert facts["broke"] == {"own": 1, "ranks": 60}


def test_what_ddp_searches_for():
    told = {0: note(0, unused={"at_times": [], "steps": 32}), 1: note(0, unused={"at_times": ["w"], "steps": 32})}
    assert merged(2, told)[0].facts["ranks"]["unused"] == {
        "find_unused": True,
        "never": [],
        "at_times": ["w"],
        "steps": 32,
    }


def fed(length: int | None, **sampler: Any) -> dict[str, Any]:
    told = {"seed": 0, "rank": 0, "replicas": 2, "shuffle": True, "epochs": [0]}
    return {"fed": {"length": length, **({"sampler": {**told, **sampler}} if sampler else {})}}


def test_loaders_of_other_lengths():
    assert "loaders" not in merged(2, {0: note(0, **fed(9)), 1: note(0, **fed(9))})[0].facts["ranks"]
    assert "loaders" not in merged(2, {0: note(0, **fed(9)), 1: note(0, **fed(None))})[0].facts["ranks"]
    told = merged(2, {0: note(0, **fed(9)), 1: note(0, **fed(10))})[0].facts["ranks"]
    assert told["loaders"] == {"lengths": {0: 9, 1: 10}, "join": False}


def test_ranks_that_may_leave_early_are_not_compared():
    """Inside `model.join()` the steps of those that left and came back have other numbers than the others'."""
    joins = {"joins": True}
    steps = [
        {
            0: note(step, parameters=step, **joins),
            1: note(step, parameters=step - (step > 8), collectives=step, **joins),
        }
        for step in range(20)
    ]
    steps[0] = {0: note(0, **joins, **fed(10)), 1: note(0, **joins, **fed(9))}
    told = [reading.facts["ranks"] for reading in merged(2, *steps)]
    assert len(told) == 20
    assert told[0]["loaders"]["join"]
    assert not any(each.keys() & {"apart", "signs"} for each in told)


@pytest.mark.parametrize(
    ("one", "other", "wrong"),
    [
        ({"rank": 0}, {"rank": 1}, None),
        ({"rank": 0, "seed": 1}, {"rank": 1, "seed": 2}, {"seeds": {0: 1, 1: 2}}),
        ({"rank": 0}, {"rank": 0}, {"ranks": {0: 0, 1: 0}}),
        ({"rank": 0, "replicas": 1}, {"rank": 1}, {"replicas": {0: 1, 1: 2}}),
        ({"rank": 0, "epochs": [0, 1]}, {"rank": 1, "epochs": [0, 1]}, None),
        (
            {"rank": 0, "epochs": [0, 0]},
            {"rank": 1, "epochs": [0, 0]},
            {"epochs": {0: [0, 0], 1: [0, 0]}, "stuck": True},
        ),
        ({"rank": 0, "epochs": [0, 0], "shuffle": False}, {"rank": 1, "epochs": [0, 0], "shuffle": False}, None),
    ],
)
def test_samplers(one, other, wrong):
    told = merged(2, {0: note(0, **fed(9, **one)), 1: note(0, **fed(9, **other))})[0].facts["ranks"].get("samplers")
    assert (told is None) == (wrong is None)
    if wrong is not None:
        assert {key: told[key] for key in wrong} == wrong


def test_times_name_the_slowest():
    told = {
        rank: note(0, own=0.01 + 0.05 * (rank == 2), times={"step": 0.1, "data": 0.06 * (rank == 2)})
        for rank in range(4)
    }
    (reading,) = merged(4, told)
    facts = reading.facts["ranks"]
    assert facts["own"]["who"] == 2
    assert facts["times"]["data"] == {"median": 0.0, "low": 0.0, "high": 0.06, "who": 2, "low_who": 0}
    assert reading.scalars["ranks/wait"] == pytest.approx(0.05)


def test_the_record_of_many_ranks_is_as_small_as_that_of_few():
    def size(world: int) -> int:
        told = {
            rank: note(
                0,
                parameters=rank,
                gradients=rank,
                batch=1,
                clipped=float(rank),
                rates=[rank],
                changed=["w"] * 8,
                collectives=rank,
                broken={"loss_bad": True},
                **fed(rank, rank=0, seed=rank),
            )
            for rank in range(world)
        }
        return len(json.dumps(strict(dict(merged(world, told)[0].facts))))

    assert size(2000) < 2 * size(2 * LISTED)


def test_loaders_of_different_passes_are_not_compared():
    """One rank is ahead, with the next loader: on all ranks that one is longer."""
    steps = [
        {rank: note(0, fed={"length": 9, "pass": 1}) for rank in range(2)},
        {0: note(9, fed={"length": 18, "pass": 2})},
        {rank: note(8) for rank in range(2)},
        {1: note(9, fed={"length": 18, "pass": 2})},
    ]
    assert not any("loaders" in reading.facts["ranks"] for reading in merged(2, *steps))


def test_parts_of_one_model_may_have_the_same_batch():
    """Tensor parallel within pairs, data parallel between them."""

    def told(step: int, groups: tuple[str, ...]) -> dict[int, dict[str, Any]]:
        return {
            rank: note(step, group=group, parameters=11 + rank % 2, batch=100 * step + rank // 2)
            for rank, group in enumerate(groups)
        }

    apart, one = ("0+2", "1+2", "0+2", "1+2"), ("",) * 4
    for groups, found in ((apart, False), (one, True)):
        readings = merged(4, *(told(step, groups) for step in range(2 * ALIKE)))
        assert any("batches" in reading.facts["ranks"] for reading in readings) is found


def test_models_that_never_were_alike_may_be_fed_as_they_like():
    def told(step: int, parts: int) -> dict[int, dict[str, Any]]:
        more = {"kind": "replicas", "batch": step}
        return {rank: note(step, parameters=11 + rank * parts, **more, **fed(9 + rank)) for rank in range(2)}

    for parts, found in ((1, False), (0, True)):
        readings = merged(2, *(told(step, parts) for step in range(3 * ALIKE)))
        assert any("batches" in reading.facts["ranks"] for reading in readings) is found
        assert any("loaders" in reading.facts["ranks"] for reading in readings) is found


def test_what_waits_for_a_rank_that_never_tells_is_bounded():
    world = 4096
    merger = Merger(world)
    for step in range(40):
        for rank in range(1, world):
            merger.add(rank, note(step))
        merger.take()
    assert len(merger._steps) <= 8
