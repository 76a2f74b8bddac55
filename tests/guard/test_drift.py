"""`InputGuard`: what it learns, what it finds, and what it leaves alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.records import Severity

Batch = dict[str, Any]


@pytest.fixture
def draw() -> Callable[..., Batch]:
    generator = torch.Generator().manual_seed(0)

    def draw(size: int = 16) -> Batch:
        return {
            "image": torch.rand(size, 3, 8, 8, generator=generator),
            "label": torch.randint(0, 10, (size,), generator=generator),
        }

    return draw


@pytest.fixture
def guard(draw: Callable[..., Batch]) -> sg.InputGuard:
    guard = sg.InputGuard(batches=16)
    for _ in range(20):
        assert guard.check(draw()) == []
    assert guard.learned
    return guard


def changed(batch: Batch, **parts: Any) -> Batch:
    return {**batch, **parts}


def test_nothing_is_said_while_it_learns_and_of_batches_like_the_first(draw: Callable[..., Batch]) -> None:
    guard = sg.InputGuard()
    for _ in range(200):
        assert guard.check(draw()) == []
    assert guard.findings == []
    assert guard.check(draw(5)) == [], "the last one of an epoch is smaller"


def test_pictures_that_were_not_scaled(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    batch = draw()
    for _ in range(4):
        found = guard.check(changed(batch, image=batch["image"] * 255))
    assert [finding.id for finding in found] == ["input-drift"], "said once, not for each channel"
    (warning,) = guard.findings
    assert warning.severity is Severity.WARNING
    assert warning.step == 20
    assert warning.last_step == 23
    assert "batch['image']" in warning.message


def test_one_strange_batch_is_only_mentioned(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    batch = draw()
    found = guard.check(changed(batch, image=batch["image"] * 255))
    assert found
    assert {finding.severity for finding in found} == {Severity.INFO}


def test_one_channel_that_went_blank(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    for _ in range(4):
        batch = draw()
        batch["image"][:, 1] = 0.5
        guard.check(batch)
    assert [f.where.module for f in guard.findings if f.severity is Severity.WARNING] == ["batch['image'][:, 1]"]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda b: changed(b, image=b["image"].double()), "dtype", "is float64, and was float32 before"),
        (lambda b: changed(b, image=b["image"][:, :1]), "shape", "has the shape 16x1x8x8, and had ?x3x8x8 before"),
        (lambda b: changed(b, image=b["image"][0]), "shape", "has the shape 3x8x8, and had ?x3x8x8 before"),
        (lambda b: changed(b, image=b["image"] * math.nan), "nan", "holds 3,072 NaN values of 3,072"),
        (lambda b: changed(b, label=b["label"] - 100), "range", "has labels from -100 to"),
        (lambda b: changed(b, label=b["label"] + 245), "range", "to 254, and had 0 to 9 before"),
        (lambda b: changed(b, mask=b["label"]), "new", "was in no batch before"),
        (lambda b: {"label": b["label"]}, "missing", "was in every batch, and is not in this one"),
    ],
)
def test_what_is_different_at_once(
    guard: sg.InputGuard, draw: Callable[..., Batch], change: Callable[[Batch], Batch], kind: str, words: str
) -> None:
    (finding,) = guard.check(change(draw()))
    assert finding.severity is Severity.WARNING
    assert finding.evidence["kind"] == kind
    assert words in finding.message
    assert finding.recommendations


def test_zeros_and_a_wild_value(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    batch = draw()
    kinds = {f.evidence.get("kind") for f in guard.check(changed(batch, image=batch["image"] * (batch["image"] > 0.7)))}
    assert "zeros" in kinds
    wild = draw()
    wild["image"][0, 0, 0, 0] = 50.0
    assert "range" in {f.evidence.get("kind") for f in guard.check(wild)}


def test_new_labels_close_by_and_slow_change_are_left_alone(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    for step in range(300):
        batch = draw()
        found = guard.check(changed(batch, image=batch["image"] * (1 + step / 100), label=batch["label"] + step % 3))
        assert found == []


def test_sequences_of_any_length_and_lists_of_any_number() -> None:
    guard = sg.InputGuard(batches=8)
    generator = torch.Generator().manual_seed(0)
    for step in range(64):
        length = 5 + step * 7 % 40
        items = [torch.rand(4, 6, generator=generator) for _ in range(1 + step * 5 % 9)]
        tokens = torch.randint(0, 30_000, (4, length), generator=generator)
        assert guard.check((tokens, items)) == []


def test_numbers_of_samples_and_times_go_on() -> None:
    guard = sg.InputGuard(batches=16)
    for step in range(400):
        times = torch.arange(8) + 8.0 * step
        assert guard.check({"index": torch.arange(8) + 8 * step, "time": times}) == []


@pytest.mark.parametrize("size", [1, 2, 300])
def test_requests_of_another_size(size: int) -> None:
    guard = sg.InputGuard(batches=16)
    generator = torch.Generator().manual_seed(0)
    for _ in range(16):
        guard.check(torch.randn(64, 8, generator=generator))
    for _ in range(200):
        found = guard.check(torch.randn(size, 8, generator=generator))
        assert all(finding.severity is Severity.INFO for finding in found)
    assert all(finding.severity is Severity.INFO for finding in guard.findings)


def test_around_a_loader() -> None:
    data = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    data[160:] *= 1000
    loader = DataLoader(TensorDataset(data), batch_size=4)
    with sg.InputGuard(batches=16) as guard:
        batches = list(guard(loader))
    assert len(batches) == 50 == guard.seen
    assert torch.equal(torch.cat([batch[0] for batch in batches]), data)
    assert guard.findings[0].severity is Severity.WARNING
    assert guard.findings[0].step == 40


def test_what_was_learned_goes_with_the_model(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    state = json.loads(json.dumps(guard.state_dict(), allow_nan=False))
    service = sg.InputGuard()
    service.load_state_dict(state)
    assert service.learned
    assert service.findings == []
    assert service.check(draw()) == []
    (finding,) = service.check(changed(draw(), image=draw()["image"].half()))
    assert "float16" in finding.message
    batch = draw()
    for _ in range(4):
        service.check(changed(batch, image=batch["image"] * 255))
    assert any("standard deviation" in finding.message for finding in service.findings)
    assert service.state_dict()["usual"] == guard.state_dict()["usual"]


def test_findings_are_told_once_and_bounded(draw: Callable[..., Batch]) -> None:
    told: list[sg.Finding] = []
    guard = sg.InputGuard(batches=2, on_drift=told.append)
    for _ in range(2):
        guard.check(draw())
    for _ in range(3):
        guard.check(changed(draw(), image=torch.zeros(1)))
    assert len(told) == len(guard.findings) == 1
    assert guard.findings[0].count == 3
    for number in range(1000):
        guard.check({f"key {number}": torch.ones(2)})
    assert len(guard.findings) <= 64
    assert len(guard.state_dict()["usual"]) <= 256
    guard.reset()
    assert guard.findings == []
    assert guard.seen == 0


def odd() -> Iterator[Tensor]:
    yield torch.empty(0, 3)
    yield torch.tensor(2.0)
    yield torch.ones(3, dtype=torch.bool)
    yield torch.ones(3, dtype=torch.complex64)
    yield torch.ones(32).half()
    yield torch.ones(32).to(torch.float8_e4m3fn)
    yield torch.eye(4).to_sparse()
    yield torch.ones(3, device="meta")
    yield torch.ones(3).to(torch.uint16)


def test_odd_tensors() -> None:
    for tensor in odd():
        guard = sg.InputGuard(batches=2)
        for _ in range(4):
            assert guard.check(tensor) == []
        json.dumps(guard.state_dict(), allow_nan=False)


def test_wrong_arguments() -> None:
    for wrong in (0, 1, 2.5, True):
        with pytest.raises(ValueError, match="batches is"):
            sg.InputGuard(batches=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="factor is"):
        sg.InputGuard(factor=1.0)
    with pytest.raises(ValueError, match="stays is"):
        sg.InputGuard(stays=0)
    with pytest.raises(ValueError, match="is not one of InputGuard"):
        sg.InputGuard().load_state_dict({"weights": 1})


def test_no_random_number_is_drawn(guard: sg.InputGuard, draw: Callable[..., Batch]) -> None:
    batch, state = draw(), torch.get_rng_state()
    guard.check(batch)
    assert torch.equal(torch.get_rng_state(), state)
