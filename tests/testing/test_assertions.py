"""A training test fails with a diagnosis, and passes where nothing is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from seismograd.testing import assert_healthy, assert_trains


def made(seed: int = 0) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.randn(64, 4)
    return model, [(each, each.sum(1, keepdim=True)) for each in x.split(16)]


def square_root(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.sqrt((output - output.detach()) ** 2).mean() + ((output - target) ** 2).mean()


def test_a_model_that_trains_passes_and_is_trained() -> None:
    model, batches = made()
    before = [each.detach().clone() for each in model.parameters()]
    random = torch.get_rng_state()
    report = assert_trains(model, batches, nn.functional.mse_loss, steps=60)
    assert report["run"]["steps"] == 60
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert_trains(model, iter(batches), nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.01), steps=40)


def test_modes_are_left_as_they_were_meant() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    _, batches = made()
    model[1].eval()  # frozen on purpose
    assert_trains(model, batches, nn.functional.mse_loss, steps=20, fail_on="critical", must_improve=False)
    assert [module.training for module in model] == [True, False, True, True]
    assert int(model[1].num_batches_tracked) == 0
    model.eval()
    model[2].train()
    assert_trains(model, batches, nn.functional.mse_loss, steps=20, fail_on="critical", must_improve=False)
    assert int(model[1].num_batches_tracked) == 20  # a model that was in evaluation mode is trained in the other
    assert [module.training for module in model] == [False, False, True, False]
    assert not model.training


def test_the_failure_is_the_verdict(home: Path) -> None:
    model, batches = made()
    with pytest.raises(AssertionError) as failed:
        assert_trains(model, batches, square_root, steps=20)
    text = str(failed.value)
    assert "critical[nonfinite-gradient]" in text
    assert "test_assertions.py" in text  # the line
    assert "= evidence:" in text
    assert "= help:" in text
    assert not home.exists()  # nothing is saved
    hidden = [entry for entry in failed.traceback if "seismograd/testing" in str(entry.path)]
    assert hidden
    assert all(entry.ishidden(failed) for entry in hidden)


def test_severities_and_ignored_findings() -> None:
    model, batches = made()
    forgotten = torch.optim.SGD(model[0].parameters(), lr=0.01)
    with pytest.raises(AssertionError, match="unoptimized-parameter"):
        assert_trains(model, batches, nn.functional.mse_loss, forgotten, steps=30)
    model, batches = made()
    forgotten = torch.optim.SGD(model[0].parameters(), lr=0.01)
    report = assert_trains(
        model, batches, nn.functional.mse_loss, forgotten, steps=30, ignore="unoptimized-parameter", must_improve=False
    )
    assert report["run"]["status"] == "healthy"
    with pytest.raises(ValueError, match="fail_on is 'bad'"):
        assert_trains(model, batches, nn.functional.mse_loss, fail_on="bad")


def test_a_loss_that_does_not_fall_far_enough_fails() -> None:
    model, batches = made()
    with pytest.raises(AssertionError, match=r"the loss did not come down by 99% in 20 steps: [\d.]+ at first"):
        assert_trains(model, batches, nn.functional.mse_loss, steps=20, must_improve=0.99)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.raises(AssertionError, match="the loss did not come down in 8 steps"):
        assert_trains(model, batches, nn.functional.mse_loss, still, steps=8, fail_on="critical")
    for wrong in (2.0, "yes"):
        with pytest.raises(ValueError, match="must_improve is"):
            assert_trains(model, batches, nn.functional.mse_loss, must_improve=wrong)  # type: ignore[arg-type]


def test_a_loop_of_ones_own() -> None:
    model, batches = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with assert_healthy(model, optimizer, must_improve=True) as watch:
        for x, y in batches * 6:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        watch.log("accuracy", 0.5)
    assert watch.findings == []


def sick_loop(error: Exception | None = None) -> None:
    model, batches = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with assert_healthy(model, optimizer):
        for x, y in batches:
            optimizer.zero_grad()
            (nn.functional.mse_loss(model(x), y) * math.nan).backward()
            optimizer.step()
        if error is not None:
            raise error


def test_a_sick_loop_of_ones_own() -> None:
    with pytest.raises(AssertionError, match="nonfinite-loss"):
        sick_loop()


def test_an_error_of_the_loop_stays_and_says_what_was_found() -> None:
    with pytest.raises(RuntimeError, match="mine") as raised:
        sick_loop(RuntimeError("mine"))
    assert "nonfinite-loss" in raised.value.__notes__[0]


def test_empty_batches_and_no_steps_are_said() -> None:
    model, _ = made()
    with pytest.raises(ValueError, match="batches is empty"):
        assert_trains(model, [], nn.functional.mse_loss)
    with pytest.raises(ValueError, match="steps is 0"):
        assert_trains(model, [], nn.functional.mse_loss, steps=0)
