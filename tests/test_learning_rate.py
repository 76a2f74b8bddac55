"""The range test: its suggestion, where it stops, and that it leaves a model as it was."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seismograd.learning_rate import LearningRateFinder


def valley(lr, at=-2.0):
    """Falls fastest at 10 ** (at - 0.7), explodes a decade above `at`."""
    x = math.log10(lr)
    return 1 - 0.9 * math.exp(-((x - at) ** 2)) if x < at + 1 else 1e6


@settings(deadline=None)
@given(st.floats(-4, 0), st.floats(-100, 100), st.floats(1e-3, 1e3))
def test_the_suggestion_does_not_depend_on_where_the_loss_lies_or_how_large_it_is(at, shift, scale):
    result = LearningRateFinder(1e-6, 100.0).range_test(lambda lr: scale * valley(lr, at) + shift)
    assert at - 2 < math.log10(result["suggested_lr"]) < at
    if abs(shift) < 1e2 * scale:
        assert result["clear"]


@pytest.mark.parametrize("seed", range(10))
def test_noise_does_not_lead_it_astray(seed):
    rng = np.random.default_rng(seed)
    result = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: valley(lr) + rng.normal(0, 0.1))
    assert result["clear"]
    assert -3.8 < math.log10(result["suggested_lr"]) < -2.5


def test_one_odd_batch_does_not_lead_it_astray():
    lrs = np.geomspace(1e-6, 10.0, 100).tolist()
    odd = {lrs[20]: 3.0, lrs[40]: -1.0}
    result = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: odd.get(lr, valley(lr)))
    assert -3.8 < math.log10(result["suggested_lr"]) < -2.5


def test_a_curve_without_descent_says_so():
    rng = np.random.default_rng(0)
    clear = [LearningRateFinder().range_test(lambda lr: rng.normal(2.3, 0.1))["clear"] for _ in range(50)]
    assert sum(clear) <= 2
    result = LearningRateFinder().range_test(lambda lr: 2.3)
    assert not result["clear"]
    assert "no clear descent" in result["message"]
    assert isinstance(result["suggested_lr"], float)


def test_where_the_loss_only_rises_the_guess_stays_below_the_rise():
    result = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: 1.0 + max(0.0, math.log10(lr) + 3))
    assert not result["clear"]
    assert result["suggested_lr"] < 1e-3


@pytest.mark.parametrize("base", [-50.0, 0.0, 50.0])
def test_it_stops_where_the_loss_leaves_all_bounds(base):
    noise = np.random.default_rng(0)
    result = LearningRateFinder(1e-6, 10.0).range_test(
        lambda lr: base + noise.normal(0, 0.1) - min(lr * 1e3, 1) + (1e4 if lr > 1 else 0)
    )
    assert max(result["lrs"]) < 1.0
    assert max(result["lrs"]) > 0.5
    assert max(result["losses"]) < base + 1


def test_growth_without_a_jump_is_an_explosion_too():
    result = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: -1.0 + math.exp(min(700, lr * 100)))
    assert max(result["losses"]) < 10


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_it_stops_at_what_is_not_finite(bad):
    result = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: bad if lr > 1e-3 else 1.0)
    assert max(result["lrs"]) < 1e-3
    at_once = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: bad)
    assert at_once["lrs"] == []
    assert not at_once["clear"]
    assert at_once["suggested_lr"] == pytest.approx(1e-5)


def test_a_second_test_starts_afresh():
    finder = LearningRateFinder(1e-6, 10.0)
    first = finder.range_test(valley)
    kept = list(first["losses"])
    second = finder.range_test(lambda lr: valley(lr, -3.0))
    assert len(second["lrs"]) < len(first["lrs"])
    assert first["losses"] == kept
    assert second["suggested_lr"] < first["suggested_lr"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [((1.0, 0.1), "min_lr"), ((0.0, 1.0), "min_lr"), ((1e-3, math.inf), "max_lr"), ((1e-3, 1.0, 1), "num_steps")],
)
def test_ranges_that_are_none(arguments, word):
    with pytest.raises(ValueError, match=word):
        LearningRateFinder(*arguments)


def test_plot():
    finder = LearningRateFinder()
    with pytest.raises(ValueError, match="range_test"):
        finder.plot()
    result = finder.range_test(valley)
    assert list(finder.plot().data[0].y) == result["losses"]


class Counter(nn.Module):
    """A model with everything that a step changes: parameters, batch statistics, dropout, a buffer set anew."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls = self.calls + 1
        return self.body(x) + random.random() * 0 + np.random.rand() * 0


def snapshot(model, optimizer):
    return copy.deepcopy(
        {
            "parameters": [p.detach() for p in model.parameters()],
            "buffers": list(model.buffers()),
            "gradients": [p.grad for p in model.parameters()],
            "flags": [m.training for m in model.modules()],
            "optimizer": optimizer.state_dict(),
            "random": [random.getstate(), str(np.random.get_state()), torch.get_rng_state()],
        }
    )


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.fixture
def trained():
    torch.manual_seed(0)
    model = Counter()
    optimizer = torch.optim.AdamW(
        [{"params": model.body[0].parameters(), "lr": torch.tensor(1e-2)}, {"params": model.body[1:].parameters()}],
        lr=1e-3,
    )
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    model.body[1].eval()
    return model, optimizer


def batches(count=3, size=16):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 4, generator=generator), torch.randn(size, 1, generator=generator)) for _ in range(count)
    ]


@pytest.mark.parametrize("mode", [True, False])
def test_everything_is_put_back(trained, mode):
    model, optimizer = trained
    model.training = mode
    held = [id(tensor) for tensor in (*model.parameters(), *(p.grad for p in model.parameters()))]
    before, data = snapshot(model, optimizer), batches()
    result = LearningRateFinder(num_steps=20).range_test_model(model, optimizer, nn.functional.mse_loss, data)
    assert len(set(result["losses"])) > 5
    assert same(before, snapshot(model, optimizer))
    assert held == [id(tensor) for tensor in (*model.parameters(), *(p.grad for p in model.parameters()))]


def test_everything_is_put_back_after_an_error(trained):
    model, optimizer = trained
    before, calls = snapshot(model, optimizer), []

    def loss_fn(output, target):
        calls.append(1)
        if len(calls) > 5:
            raise RuntimeError("out of memory")
        return nn.functional.mse_loss(output, target)

    with pytest.raises(RuntimeError, match="out of memory"):
        LearningRateFinder().range_test_model(model, optimizer, loss_fn, batches())
    assert same(before, snapshot(model, optimizer))


def test_training_goes_on_as_if_there_had_been_no_test(trained):
    model, optimizer = trained
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    state = torch.get_rng_state()
    LearningRateFinder(num_steps=15).range_test_model(model, optimizer, nn.functional.mse_loss, batches())

    def train(model, optimizer):
        torch.set_rng_state(state)
        for x, y in batches():
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    assert same(train(model, optimizer), train(twin, twin_optimizer))


def test_groups_keep_their_ratio(trained):
    model, optimizer = trained
    seen = []
    optimizer.register_step_pre_hook(lambda o, *_: seen.append([float(g["lr"]) for g in o.param_groups]))
    result = LearningRateFinder(num_steps=10).range_test_model(model, optimizer, nn.functional.mse_loss, batches())
    fast, slow = np.array(seen).T
    assert fast[: len(result["lrs"])] == pytest.approx(result["lrs"], rel=1e-6)
    assert fast / slow == pytest.approx(10, rel=1e-6)


@pytest.mark.parametrize("kind", [list, iter])
def test_batches_are_used_again_when_they_run_out(kind):
    model = nn.Linear(4, 1)
    data = batches(3)
    used = []

    def loss_fn(output, target):
        used.append(next(at for at, (_, y) in enumerate(data) if y is target))
        return nn.functional.mse_loss(output, target)

    LearningRateFinder(1e-6, 1e-3, 7).range_test_model(
        model, torch.optim.SGD(model.parameters(), lr=1), loss_fn, kind(data)
    )
    assert used == [0, 1, 2, 0, 1, 2, 0]


def test_other_batches_go_to_the_loss_function_with_the_model():
    model = nn.Linear(4, 1)
    data = [{"x": x, "y": y} for x, y in batches()]
    result = LearningRateFinder(1e-5, 1.0, 20).range_test_model(
        model,
        torch.optim.SGD(model.parameters(), lr=1),
        lambda model, batch: nn.functional.mse_loss(model(batch["x"]), batch["y"]),
        data,
    )
    assert len(set(result["losses"])) > 5


def test_an_optimizer_that_needs_a_closure_and_a_loop_without_gradients():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    with torch.no_grad():
        result = LearningRateFinder(1e-5, 0.1, 10).range_test_model(
            model, optimizer, nn.functional.mse_loss, batches(1)
        )
    assert result["losses"][-1] < result["losses"][0]
    assert optimizer.state_dict()["state"] == {}


def test_a_data_loader_draws_the_same_order_afterwards():
    model, generator = nn.Linear(4, 1), torch.Generator().manual_seed(3)
    data = [(x[0], y[0]) for x, y in batches(40)]
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, generator=generator)
    before = generator.get_state()
    LearningRateFinder(num_steps=12).range_test_model(
        model, torch.optim.SGD(model.parameters(), lr=1), nn.functional.mse_loss, loader
    )
    assert torch.equal(before, generator.get_state())


def test_what_cannot_be_tested():
    model, other = nn.Linear(4, 1), nn.Linear(4, 1)
    finder, loss_fn = LearningRateFinder(), nn.functional.mse_loss
    with pytest.raises(ValueError, match="none of the model's parameters"):
        finder.range_test_model(model, torch.optim.SGD(other.parameters(), lr=1), loss_fn, batches())
    with pytest.raises(ValueError, match="batches is empty"):
        finder.range_test_model(model, torch.optim.SGD(model.parameters(), lr=1), loss_fn, [])


def test_an_interval_and_a_confidence():
    finder = LearningRateFinder(1e-6, 10.0)
    result = finder.range_test(valley)
    low, high = result["interval"]
    assert low <= result["suggested_lr"] < high
    assert -4.5 < math.log10(low) < math.log10(high) < -1.5
    assert result["confidence"] > 0.9
    assert finder.plot().layout.shapes[0].x1 == high
    rng = np.random.default_rng(0)
    noisy = LearningRateFinder(1e-6, 10.0).range_test(lambda lr: valley(lr) + rng.normal(0, 0.25))
    assert noisy["confidence"] <= result["confidence"]
    flat = LearningRateFinder().range_test(lambda lr: rng.normal(2.3, 0.1))
    assert flat["interval"] is None
    assert flat["confidence"] == 0.0


def test_the_confidence_draws_from_no_generator_of_the_users():
    before = np.random.get_state()[1].tolist()
    LearningRateFinder(1e-6, 10.0).range_test(valley)
    assert np.random.get_state()[1].tolist() == before


def test_a_rate_for_each_layer(trained):
    model, _ = trained
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with torch.no_grad():
        model.body[3].weight.mul_(0.01)
        model.body[3].bias.mul_(0.01)
    before = snapshot(model, optimizer)
    result = LearningRateFinder(num_steps=30).range_test_model(
        model, optimizer, nn.functional.mse_loss, batches(), per_layer=True
    )
    assert set(result["per_layer"]) == {"body.0", "body.1", "body.3"}
    assert result["per_layer"]["body.3"] < result["per_layer"]["body.0"]
    assert all(0.09 < rate / result["suggested_lr"] < 11 for rate in result["per_layer"].values())
    assert same(before, snapshot(model, optimizer))


class Both(nn.Module):
    """Takes its inputs by name or one by one, and may say its loss itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x, scale=1.0, labels=None):
        output = self.layer(x) * scale
        return {"loss": nn.functional.mse_loss(output, labels), "logits": output} if labels is not None else output


@pytest.mark.parametrize(
    ("batch", "loss_fn"),
    [
        (lambda x, y: {"x": x, "labels": y}, None),
        (lambda x, y: {"x": x, "labels": y}, nn.MSELoss()),
        (lambda x, y: {"x": x, "y": y}, lambda model, b: nn.functional.mse_loss(model(b["x"]), b["y"])),
        (lambda x, y: ((x, 2.0), y), nn.functional.mse_loss),
        (lambda x, y: ({"x": x}, y), nn.functional.mse_loss),
        (lambda x, y: (x, torch.ones(()), y), nn.MSELoss()),
        (lambda x, y: (x, y), lambda model, b: nn.functional.mse_loss(model(b[0]), b[1])),
        (lambda x, y: (x, y, None), lambda m, b: nn.functional.mse_loss(m(b[0]), b[1])),
        (lambda x, y: x, lambda output: output.square().mean()),
    ],
)
def test_batches_of_any_structure(batch, loss_fn):
    model = Both()
    result = LearningRateFinder(1e-5, 1.0, 20).range_test_model(
        model, torch.optim.SGD(model.parameters(), lr=1), loss_fn, [batch(x, y) for x, y in batches()]
    )
    assert len(set(result["losses"])) > 5


def test_a_model_that_says_no_loss():
    model = Both()
    with pytest.raises(TypeError, match="pass a loss_fn"):
        LearningRateFinder().range_test_model(
            model, torch.optim.SGD(model.parameters(), lr=1), None, [{"x": torch.randn(8, 4)}]
        )
