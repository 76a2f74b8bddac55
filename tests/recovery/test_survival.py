"""Trainings that would be lost: recovered, next to a clean run, and next to doing nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

Batch = tuple[torch.Tensor, torch.Tensor]
Train = Callable[..., Any]
Spoil = Callable[[int, Batch, torch.optim.Optimizer], Batch]


def poisoned(step: int, batch: Batch, _optimizer: torch.optim.Optimizer) -> Batch:
    if step % 50 == 30:
        batch[0][0, 0] = math.nan
    return batch


def often_bad(step: int, batch: Batch, _optimizer: torch.optim.Optimizer) -> Batch:
    generator = torch.Generator().manual_seed(step)
    return (batch[0] * math.inf, batch[1]) if torch.rand((), generator=generator) < 0.2 else batch


def spiking(step: int, batch: Batch, _optimizer: torch.optim.Optimizer) -> Batch:
    return (batch[0] * 1e3, batch[1] * 1e3) if step in (150, 220) else batch


def diverging(step: int, batch: Batch, optimizer: torch.optim.Optimizer) -> Batch:
    if step == 150:
        for group in optimizer.param_groups:
            group["lr"] *= 300
    return batch


NEAR = {poisoned: 1.1, often_bad: 2.0, spiking: 1.1, diverging: 4.0}
"""How many times the clean run's loss is still near: what is skipped or gone back over is not learned."""


@pytest.fixture(scope="module", params=["SGD", "Adam"])
def optimizer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def clean(optimizer: str, train: Train) -> Any:
    return train(optimizer=optimizer)


@pytest.mark.parametrize(
    ("spoil", "recovery"),
    [
        (poisoned, {"nonfinite-gradient": "skip"}),
        (poisoned, {"numerics": "rollback"}),
        (poisoned, {"critical": "clip"}),
        (often_bad, {"nonfinite-*": "skip"}),
        (spiking, {"loss-spike": "skip", "gradient-explosion": "skip"}),
        (spiking, {"loss-spike": "clip", "gradient-explosion": "clip"}),
        (spiking, {"critical": "rollback", "loss-spike": "rollback"}),
        (diverging, {"critical": "rollback"}),
        (diverging, {"learning": ["rollback", "stop"], "numerics": "rollback"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_a_recovered_run_ends_near_a_clean_one(
    train: Train, clean: Any, optimizer: str, spoil: Spoil, recovery: dict[str, object]
) -> None:
    lost = train(spoil, optimizer=optimizer)
    recovered = train(spoil, recovery, optimizer=optimizer)
    assert recovered.stopped is None
    assert recovered.final < NEAR[spoil] * clean.final
    assert not lost.final < 1.2 * recovered.final, "doing nothing is worse"
    assert recovered.events
    assert all(event["before"] and "after" in event for event in recovered.events)


def test_the_bad_batches_are_skipped_and_no_others(train: Train) -> None:
    outcome = train(poisoned, {"nonfinite-loss": "skip"})
    assert [event["step"] for event in outcome.events] == [30, 80, 130, 180, 230, 280]
    assert outcome.summary["skipped_steps"] == 6
    assert {event["findings"][0] for event in outcome.events} == {"nonfinite-input"}, "the chain has its beginning"
    assert "repeated-recovery" not in outcome.found
    assert outcome.found["nonfinite-input"] == "critical"


@pytest.mark.parametrize("name", ["nonfinite-input", "nonfinite-loss", "nonfinite-gradient", "nonfinite-*", "numerics"])
def test_a_policy_matches_any_id_of_the_chain(train: Train, name: str) -> None:
    assert train(poisoned, {name: "skip"}, steps=100).summary["skipped_steps"] == 2


def test_what_began_it_has_the_first_word(train: Train) -> None:
    outcome = train(poisoned, {"nonfinite-gradient": "stop", "nonfinite-input": "skip"}, steps=100)
    assert outcome.stopped is None
    assert outcome.summary["skipped_steps"] == 2


def test_a_run_that_keeps_recovering_is_critical(train: Train) -> None:
    outcome = train(often_bad, {"nonfinite-*": "skip"})
    assert outcome.watch.status == "critical"
    assert outcome.found["repeated-recovery"] == "critical"
    finding = next(finding for finding in outcome.watch.findings if finding.id == "repeated-recovery")
    assert finding.evidence["skip"] >= 10
    assert "nonfinite-input" in finding.message
    assert set(outcome.found) <= {"nonfinite-input", "nonfinite-loss", "nonfinite-gradient", "repeated-recovery"}, (
        "what is done about a fault is no other fault"
    )


def test_a_healthy_run_is_left_alone_to_the_last_bit(train: Train) -> None:
    everything = {"info": ["clip", "skip", "lower-lr", "rollback"]}
    plain, watched = train(), train(recovery=everything)
    assert watched.events == []
    assert watched.found.keys() <= {"slow-step"}, "a remark on the machine, which others use too"
    assert watched.losses == plain.losses
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_other_data_are_learned_and_not_skipped_for_ever(train: Train) -> None:
    def changing(step: int, batch: Batch, _optimizer: torch.optim.Optimizer) -> Batch:
        return (batch[0], batch[1] + 8.0) if step >= 150 else batch

    outcome = train(changing, {"loss-spike": "skip", "gradient-explosion": "skip"})
    assert outcome.stopped is None
    assert outcome.summary["skipped_steps"] <= 6
    assert outcome.losses[-1] < 1.0, "it has learned the new level"
