"""Two stored runs: bit-equal, equal within the noise of floats, or parted at a step, in a quantity, in a layer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import seismograd as sg
from seismograd.records import Reading, TensorStats
from seismograd.store import Recorder, Run, open_store
from seismograd.store.comparing import Comparison
from seismograd.store.partings import Parting
from seismograd.store.schema import url_of

LAYERS = ("first.weight", "first.bias", "last.weight", "last.bias")


@contextmanager
def both(where: Path, one: str, other: str) -> Iterator[tuple[Run, Run]]:
    with open_store(where) as store:
        yield store.run(one), store.run(other)


def compared(where: Path, one: str, other: str, **more: Any) -> Comparison:
    with both(where, one, other) as (mine, theirs):
        return mine.compare(theirs, **more)


def record(where: Path, name: str, readings: Sequence[Reading], **about: Any) -> None:
    limit = about.pop("limit", 200 << 20)
    for rank in sorted({reading.rank for reading in readings}):
        own = [reading for reading in readings if reading.rank == rank]
        state = {"status": "healthy", "level": "advanced", "steps": max(reading.step for reading in own) + 1}
        recorder = Recorder(
            url_of(where), name, name, rank=rank, limit=limit, state=lambda state=state: state, about=lambda: about
        )
        for at, reading in enumerate(own):
            recorder.write_reading(reading)
            if at % 2000 == 1999:
                assert recorder.flush(60)
        assert recorder.flush(60)
        recorder.close({"schema": 1, "run": {"id": name}, "findings": []})


def made(steps: int, **more: Any) -> list[Reading]:
    """Readings with a table at every tenth step."""
    noise = np.random.default_rng(0).random((steps, 8))
    return [
        Reading(
            step,
            {"loss": 1.0 + noise[step, 0], "grad/norm": 2.0 + noise[step, 1], "lr/0": 0.1, "time/step": noise[step, 2]},
            {
                "parameter": TensorStats(LAYERS, {"norm": 1.0 + noise[step, 3:7]}),
                "gradient": TensorStats(LAYERS, {"norm": 2.0 + noise[step, 3:7], "mean": noise[step, 3:7]}),
            }
            if step % 10 == 0
            else {},
            **more,
        )
        for step in range(steps)
    ]


def changed(reading: Reading, **scalars: float) -> Reading:
    return replace(reading, scalars={**reading.scalars, **scalars})


def test_steps_that_begin_again_are_compared_in_their_turn(tmp_path: Path) -> None:
    losses = np.random.default_rng(0).random((100, 30)).tolist()
    epochs = [Reading(step, {"loss": loss}) for epoch in losses for step, loss in enumerate(epoch)]
    record(tmp_path, "one", epochs)
    record(tmp_path, "same", epochs)
    epochs[70 * 30 + 12] = Reading(12, {"loss": 7.0})
    record(tmp_path, "other", epochs)
    assert compared(tmp_path, "one", "same").verdict == "bit-equal"
    found = compared(tmp_path, "one", "other").parted
    assert found is not None
    assert (found.step, found.values) == (12, (losses[70][12], 7.0))


# -- real runs ---------------------------------------------------------------------------------------------------------


def train(where: Path, name: str, *, seed: int = 0, lr: float = 0.1, poison: int = -1) -> None:
    """A small classifier, the same for the same arguments."""
    torch.manual_seed(seed)
    x, target = torch.randn(256, 10), torch.randn(10, 3)
    y = (x @ target).argmax(1)
    model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with sg.watch(model, optimizer, store=where, name=name, sinks=[], strict=True):
        for step in range(60):
            rows = torch.randint(0, 256, (32,))
            batch = x[rows] * 30.0 if step == poison else x[rows]
            loss = F.cross_entropy(model(batch), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("trained")
    train(where, "base")
    train(where, "twin")
    train(where, "faster", lr=0.2)
    train(where, "poisoned", poison=37)
    train(where, "other-seed", seed=1)
    return where


def test_runs_with_the_same_seed_are_bit_equal(trained: Path) -> None:
    found = compared(trained, "base", "twin")
    assert found.verdict == "bit-equal"
    assert found.same
    assert (found.parted, found.layer, found.drifted, found.growth) == (None, None, None, ())
    assert found.compared > 60 * 3
    assert str(found).startswith("The runs are bit-equal: ")
    assert [(span.start, span.stop, span.width) for span in found.spans] == [(0, 59, 1)]


def test_another_learning_rate_is_named_with_the_layer_that_feels_it(trained: Path) -> None:
    found = compared(trained, "base", "faster")
    assert found.verdict == "parted"
    assert found.parted == Parting(0, "lr/0", (0.1, 0.2))
    assert found.quantities["lr/0"] == 0
    assert found.quantities["loss"] == found.quantities["grad/norm"] == 1  # the first update was another one
    assert found.layer is not None
    assert (found.layer.step, found.layer.quantity, found.layer.layer) == (1, "parameter/norm", "0.weight")
    assert found.layers == (6, 6)
    assert "It is a setting: the learning rate" in found.why
    assert [step for step, _ in found.growth] == [0, 1, 10, 59]
    assert found.growth[0][1] == 0.0 < found.growth[1][1] < found.growth[2][1]


def test_a_poisoned_batch_is_found_at_its_step(trained: Path) -> None:
    found = compared(trained, "base", "poisoned")
    assert found.parted is not None
    assert (found.parted.step, found.parted.quantity, found.parted.since) == (37, "loss", 36)
    assert found.drifted == found.parted
    assert found.layer is not None
    assert (found.layer.step, found.layer.quantity, found.layer.layer) == (37, "gradient/norm", "4.bias")
    assert "the batch, its order or random numbers" in found.why
    assert "The runs part at step 37: loss is " in str(found)


def test_another_seed_differs_from_the_weights_on(trained: Path) -> None:
    found = compared(trained, "base", "other-seed")
    assert found.parted is not None
    assert found.parted.step == 0
    assert found.layer is not None
    assert (found.layer.step, found.layer.quantity) == (0, "parameter/norm")
    assert found.why.startswith("The weights differ from the start")


def test_time_and_memory_never_count(trained: Path) -> None:
    with both(trained, "base", "twin") as (one, _):
        assert any(name.startswith("time/") for name in one.names())
    found = compared(trained, "base", "faster")
    assert not any(name.startswith(("time/", "memory/")) for name in found.quantities)


# -- tolerance ---------------------------------------------------------------------------------------------------------


def drifting(steps: int, rate: float) -> list[Reading]:
    """From step 20 on the loss is off by 1e-12, and `rate` times more with every step."""
    return [
        changed(each, loss=each.scalars["loss"] * (1 + 1e-12 * rate ** (each.step - 20))) if each.step >= 20 else each
        for each in made(steps)
    ]


def test_noise_of_floats_is_no_difference_but_told(tmp_path: Path) -> None:
    record(tmp_path, "one", made(100))
    record(tmp_path, "other", drifting(100, 1.0))
    found = compared(tmp_path, "one", "other")
    assert found.verdict == "equal"
    assert found.same
    assert found.parted is None
    assert found.drifted is not None
    assert (found.drifted.step, found.drifted.quantity) == (20, "loss")
    assert "equal within 1e-05" in str(found)
    assert compared(tmp_path, "one", "other", rtol=0.0).verdict == "parted"
    assert compared(tmp_path, "one", "other", rtol=0.0, atol=1e-9).verdict == "equal"


def test_rounding_that_grew_is_told_from_a_sudden_change(tmp_path: Path) -> None:
    record(tmp_path, "one", made(100))
    record(tmp_path, "other", drifting(100, 2.0))
    found = compared(tmp_path, "one", "other")
    assert found.parted is not None
    assert found.parted.step == 20 + math.ceil(math.log2(1e-5 / 1e-12))
    assert found.drifted is not None
    assert found.drifted.step == 20
    assert found.why.startswith("They differ by rounding from step 20 on")
    growth = [relative for _, relative in found.growth]
    assert growth == sorted(growth)
    assert growth[-1] > 0.1


@pytest.mark.parametrize("wrong", [-1e-9, math.nan, math.inf])
def test_what_is_no_tolerance_is_refused(tmp_path: Path, wrong: float) -> None:
    record(tmp_path, "one", made(5))
    with pytest.raises(ValueError, match="is no tolerance"):
        compared(tmp_path, "one", "one", rtol=wrong)


def test_nan_is_equal_to_nan_and_to_nothing_else(tmp_path: Path) -> None:
    broken = [changed(each, loss=math.nan) if each.step >= 30 else each for each in made(50)]
    infinite = [changed(each, loss=math.inf) if each.step >= 30 else each for each in made(50)]
    for name, readings in (("sound", made(50)), ("nan", broken), ("nan2", broken), ("inf", infinite)):
        record(tmp_path, name, readings)
    assert compared(tmp_path, "nan", "nan2").verdict == "bit-equal"
    for other in ("sound", "inf"):
        found = compared(tmp_path, "nan", other)
        assert found.parted is not None
        assert (found.parted.step, found.parted.quantity) == (30, "loss")
        assert math.isnan(found.parted.values[0])
        assert found.parted.relative == math.inf
    assert "NaN against Inf" in str(compared(tmp_path, "nan", "inf"))


# -- what is there of both ---------------------------------------------------------------------------------------------


def test_a_layer_that_parts_before_the_scalars_is_the_first(tmp_path: Path) -> None:
    readings = made(60)
    table = readings[20].tensors["gradient"]
    off = TensorStats(LAYERS, {**table.columns, "norm": table.columns["norm"] * np.array([1.0, 1.5, 1.5, 1.0])})
    readings[20] = replace(readings[20], tensors={**readings[20].tensors, "gradient": off})
    readings[40] = changed(readings[40], loss=9.0)
    record(tmp_path, "one", made(60))
    record(tmp_path, "other", readings)
    found = compared(tmp_path, "one", "other")
    assert found.parted == found.layer
    assert found.parted is not None
    # What goes back from the loss comes to the last layer first.
    assert (found.parted.step, found.parted.quantity, found.parted.layer) == (20, "gradient/norm", "last.weight")
    assert found.layers == (2, 4)
    assert found.quantities == {"loss": 40}


def test_a_mean_near_zero_is_nothing_but_rounding(tmp_path: Path) -> None:
    readings = made(30)
    table = readings[10].tensors["gradient"]
    off = TensorStats(LAYERS, {**table.columns, "mean": table.columns["mean"] + 1.0})
    readings[10] = replace(readings[10], tensors={**readings[10].tensors, "gradient": off})
    record(tmp_path, "one", made(30))
    record(tmp_path, "other", readings)
    found = compared(tmp_path, "one", "other")
    assert found.verdict == "equal"
    assert found.drifted is not None
    assert (found.drifted.step, found.drifted.quantity) == (10, "gradient/mean")


def test_what_a_user_logs_counts_only_where_nothing_else_differs(tmp_path: Path) -> None:
    own = [changed(each, accuracy=0.5) for each in made(40)]
    other = [changed(each, accuracy=0.6) for each in made(40)]
    late = [changed(each, loss=5.0) if each.step == 30 else each for each in other]
    fast = [changed(each, tokens_per_second=float(each.step)) for each in made(40)]
    faster = [changed(each, tokens_per_second=2.0 * each.step) for each in made(40)]
    for name, readings in (("own", own), ("other", other), ("late", late), ("fast", fast), ("faster", faster)):
        record(tmp_path, name, readings)
    found = compared(tmp_path, "own", "other")
    assert found.parted == Parting(0, "accuracy", (0.5, 0.6))
    found = compared(tmp_path, "own", "late")
    assert found.parted is not None
    assert (found.parted.step, found.parted.quantity) == (30, "loss")
    assert found.quantities == {"accuracy": 0, "loss": 30}
    assert compared(tmp_path, "fast", "faster").verdict == "bit-equal"  # wall-clock, by its name


def test_runs_read_at_different_rates_are_compared_where_both_were_read(tmp_path: Path) -> None:
    record(tmp_path, "all", made(100))
    record(tmp_path, "some", [each for each in made(100) if each.step % 4 == 0])
    record(tmp_path, "none", [replace(each, step=each.step + 1000) for each in made(10)])
    found = compared(tmp_path, "all", "some")
    assert found.verdict == "bit-equal"
    assert [(span.start, span.stop, span.width) for span in found.spans] == [(0, 96, 4)]
    assert "steps 0 to 96 at one reading in 4 steps was compared: what lies between is not known of both" in found.notes
    nothing = compared(tmp_path, "all", "none")
    assert nothing.verdict == "incomparable"
    assert not nothing.same
    assert "no step at which both" in str(nothing)


def test_other_lengths_ranks_settings_and_layers_are_told(tmp_path: Path) -> None:
    fewer = [
        replace(
            each,
            tensors={
                kind: TensorStats(LAYERS[:2], {"norm": table.columns["norm"][:2]})
                for kind, table in each.tensors.items()
            },
        )
        for each in made(30)
    ]
    record(tmp_path, "one", made(50), torch="2.4", pid=1, command="python a.py")
    record(tmp_path, "other", [*fewer, *made(30, rank=1)], torch="2.5", pid=2, command="python a.py", parameters=7)
    found = compared(tmp_path, "one", "other")
    assert found.verdict == "bit-equal"
    assert found.steps == (50, 30)
    assert found.settings == {
        "ranks": (1, 2),
        "torch": ("2.4", "2.5"),
        "parameters": (None, 7),
        "layers of only one": (["last.weight", "last.bias"], []),
    }
    assert "one has 50 steps, the other 30: what only one has is not compared" in found.notes
    assert "only one of them has rank 1" in found.notes


def test_the_rank_that_parts_is_named(tmp_path: Path) -> None:
    other = [changed(each, loss=9.0) if each.step == 12 else each for each in made(30, rank=1)]
    record(tmp_path, "one", [*made(30), *made(30, rank=1)])
    record(tmp_path, "other", [*made(30), *other])
    found = compared(tmp_path, "one", "other")
    assert found.parted is not None
    assert (found.parted.step, found.parted.quantity, found.parted.rank) == (12, "loss", 1)
    assert "loss (rank 1) is" in str(found)


def test_a_gan_parts_in_one_of_its_losses(tmp_path: Path) -> None:
    def gan(bad: float) -> list[Reading]:
        return [
            Reading(
                step,
                {f"loss/{number}": bad if step >= 5 and number else 1.0, f"grad/norm/{number}": 1.0},
                series=number,
            )
            for step in range(20)
            for number in (0, 1)
        ]

    record(tmp_path, "one", gan(1.0))
    record(tmp_path, "other", gan(1.1))
    assert compared(tmp_path, "one", "other").parted == Parting(5, "loss/1", (1.0, 1.1), since=4)


def test_a_run_is_equal_to_itself(tmp_path: Path) -> None:
    record(tmp_path, "one", made(20))
    found = compared(tmp_path, "one", "one")
    assert found.verdict == "bit-equal"
    assert "it is the same run" in found.notes


# -- thinned -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of 20,000 steps of which a little is kept whole."""
    where = tmp_path_factory.mktemp("aged")
    readings = made(20_000)
    record(where, "one", readings, limit=600_000)
    record(where, "twin", readings, limit=600_000)
    record(where, "whole", readings)
    nan = [changed(each, loss=math.nan) if each.step == 9_000 else each for each in readings]
    record(where, "nan", nan, limit=600_000)
    spike = [changed(each, loss=50.0) if each.step == 9_000 else each for each in readings]
    record(where, "spike", spike, limit=600_000)
    scaled = [
        replace(
            each,
            scalars={**each.scalars, "loss": each.scalars["loss"] * 1.01},
            tensors={
                kind: TensorStats(LAYERS, {"norm": table.columns["norm"] * np.array([1.0, 1.0, 1.2, 1.0])})
                for kind, table in each.tensors.items()
            },
        )
        if each.step >= 9_000
        else each
        for each in readings
    ]
    record(where, "scaled", scaled, limit=600_000)
    return where


def test_thinned_runs_that_are_the_same_are_bit_equal(aged: Path) -> None:
    for other in ("twin", "whole"):
        found = compared(aged, "one", other)
        assert found.verdict == "bit-equal", str(found)
        assert any(span.width > 1 for span in found.spans)
        assert any("one reading in" in note for note in found.notes)


@pytest.mark.parametrize(("name", "value"), [("nan", math.nan), ("spike", 50.0)])
def test_one_bad_value_between_what_is_left_is_not_overlooked(aged: Path, name: str, value: float) -> None:
    found = compared(aged, "one", name)
    assert found.parted is not None
    assert found.parted.quantity == "loss"
    assert found.parted.since is not None
    assert found.parted.since < 9_000 <= found.parted.step
    assert found.parted.step - found.parted.since in (8, 64, 512)
    assert found.parted.values[1] == pytest.approx(value, nan_ok=True)
    assert f"between steps {found.parted.since:,} and {found.parted.step:,}" in str(found)


def test_the_layer_is_named_from_what_is_left_of_the_tables(aged: Path) -> None:
    found = compared(aged, "one", "scaled")
    assert found.parted is not None
    assert found.parted.since is not None
    assert found.parted.since < 9_000 <= found.parted.step
    assert found.layer is not None
    assert (found.layer.layer, found.layers) == ("last.weight", (1, 4))


# -- told --------------------------------------------------------------------------------------------------------------


def test_a_comparison_is_strict_json(tmp_path: Path) -> None:
    record(tmp_path, "one", made(30))
    record(tmp_path, "other", [changed(each, loss=math.nan) if each.step == 7 else each for each in made(30)])
    found = compared(tmp_path, "one", "other")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["verdict"] == "parted"
    assert data["same"] is False
    assert data["parted"]["step"] == 7
    assert data["parted"]["values"][1] == "NaN"
    assert data["parted"]["relative"] == "Infinity"
    assert data["sentence"] == str(found)
    assert data["growth"][0] == {"step": 7, "relative": "Infinity"}
    assert data["runs"] == ["one", "other"]
