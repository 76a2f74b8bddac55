"""Readings are right under the conditions people train in."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import seismograd as sg
from seismograd.stats.tensors import exact_norm, gradient_norm, norms


def norm_of(parameters):
    total = 0.0
    for p in parameters:
        if p.grad is not None:
            g = p.grad.to_dense() if p.grad.is_sparse else p.grad
            total += float((g.abs().double() ** 2).sum())
    return math.sqrt(total)


def train(model, optimizer, loss_of, steps=3):
    true = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        true.append((loss.item(), norm_of(p for g in optimizer.param_groups for p in g["params"])))
        optimizer.step()
    return true


# -- GradScaler ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unscales", [True, False])
@pytest.mark.parametrize("lag", [0, 1])
def test_readings_under_a_grad_scaler_are_unscaled(watching, model, data, unscales, lag):
    x, y = data
    twin = copy.deepcopy(model)
    plain = train(twin, torch.optim.SGD(twin.parameters(), lr=0.1), lambda: F.cross_entropy(twin(x), y), 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    run = watching(model, optimizer, lag=lag)
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        if unscales:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        scaler.step(optimizer)
        scaler.update()
    run.watch.flush()
    assert run.series("loss") == pytest.approx([loss for loss, _ in plain], rel=1e-4)
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in plain], rel=1e-4)
    assert run.series("amp/scale") == [2.0**10] * 5
    assert [r.step for r in run.readings] == [0, 1, 2, 3, 4]


def test_steps_that_the_scaler_skips_are_seen_and_the_first_few_not_alarmed(watching, data):
    x, y = data
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # overflows fp32 at first, then settles
    run, skipped = watching(model, optimizer), []
    for _ in range(40):
        optimizer.zero_grad()
        before = scaler.get_scale()
        scaler.scale(100 * F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
        skipped.append(scaler.get_scale() < before)
    assert 0 < sum(skipped) < 20
    assert ["amp-skipped" in r.marks for r in run.readings] == skipped
    assert all(math.isfinite(loss) for loss, was in zip(run.series("loss"), skipped, strict=True) if not was)
    assert run.watch.findings == []


def test_a_short_last_accumulation_under_a_scaler_is_unscaled_once(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    run = watching(model, optimizer)
    for length in (3, 3, 3, 3, 3, 1):  # the epoch ends early
        optimizer.zero_grad()
        for _ in range(length):
            scaler.scale(F.cross_entropy(model(x), y) / length).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    norms = run.series("grad/norm")
    assert norms == pytest.approx([norms[0]] * 6, rel=1e-4)


def test_a_scaler_that_is_not_torchs_may_be_given(watching, model, data):
    class Scaler:
        def get_scale(self):
            return 8.0

    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer, scaler=Scaler())
    loss = F.cross_entropy(model(x), y)
    (loss * 8).backward()
    true = norm_of(model.parameters()) / 8
    optimizer.step()
    assert run.series("loss") == pytest.approx([loss.item()])
    assert run.series("grad/norm") == pytest.approx([true], rel=1e-5)
    with pytest.raises(TypeError, match="get_scale"):
        sg.watch(model, optimizer, scaler=3)


def test_a_disabled_scaler_is_no_scaler(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    run = watching(model, optimizer, scaler=scaler)
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert run.series("loss") == pytest.approx([loss.item()])
    assert "amp/scale" not in run.readings[0].scalars


# -- dtypes, layouts, odd parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float16])
def test_models_of_other_dtypes(watching, model, data, dtype):
    x, y = data
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    true = train(model, optimizer, lambda: F.cross_entropy(model(x.to(dtype)).float(), y))
    assert run.series("loss") == pytest.approx([loss for loss, _ in true])
    assert run.series("grad/norm") == pytest.approx(
        [norm for _, norm in true], rel=1e-3 if dtype.itemsize == 2 else 1e-6
    )


def test_finite_gradients_that_overflow_a_naive_norm_are_finite(watching):
    for dtype, size in ((torch.float16, 6e4), (torch.float32, 3e38)):
        weight = nn.Parameter(torch.zeros(64, dtype=dtype))
        model = nn.ParameterList([weight])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        run = watching(model, optimizer)
        (weight * torch.full((64,), size, dtype=dtype)).sum(dtype=torch.float64).backward()
        optimizer.step()
        assert run.series("grad/norm") == pytest.approx([8 * float(torch.tensor(size, dtype=dtype))], rel=1e-3)
        assert "nonfinite" not in run.readings[0].tensors
        run.watch.close()


def test_mixed_dtypes_and_complex_parameters(watching):
    torch.manual_seed(0)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.randn(4))
            self.b = nn.Parameter(torch.randn(4, dtype=torch.complex64))
            self.c = nn.Parameter(torch.randn(4, dtype=torch.float64))
            self.d = nn.Parameter(torch.randn(4, dtype=torch.bfloat16))
            self.register_parameter("e", nn.Parameter(torch.arange(3), requires_grad=False))

    model = Mixed()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    run = watching(model, optimizer)
    true = train(
        model,
        optimizer,
        lambda: model.a.pow(2).sum() + model.b.abs().pow(2).sum() + model.c.pow(2).sum() + model.d.float().pow(2).sum(),
    )
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)
    assert run.readings[0].tensors["gradient"].names == ("a", "b", "c", "d")
    assert "update" in run.readings[1].tensors


def test_sparse_gradients_are_read_by_their_values(watching):
    torch.manual_seed(0)
    model = nn.Embedding(1000, 8, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    index = torch.tensor([1, 5, 5, 999])  # 5 twice: its rows add up
    true = train(model, optimizer, lambda: model(index).pow(2).sum())
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)
    zeros = run.readings[0].tensors["gradient"].columns["zeros"][0]
    assert zeros == pytest.approx(0.997, abs=1e-6)


def test_tied_weights_count_once(watching):
    torch.manual_seed(0)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    index = torch.arange(20)
    true = train(model, optimizer, lambda: F.cross_entropy(model(index), index))
    assert run.readings[0].tensors["gradient"].names == ("embed.weight",)
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)


def test_frozen_parameters_are_absent(watching, model, data):
    x, y = data
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    train(model, optimizer, lambda: F.cross_entropy(model(x), y))
    assert run.readings[0].tensors["gradient"].names == ("2.weight", "2.bias")
    assert run.readings[1].tensors["update"].names == ("2.weight", "2.bias")


def test_parameters_added_to_the_optimizer_later(watching, data):
    x, y = data
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    run = watching(model, optimizer)
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 2)
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
    true = train(model, optimizer, lambda: F.cross_entropy(model(x), y), 3)
    assert run.series("grad/norm")[-3:] == pytest.approx([norm for _, norm in true], rel=1e-5)
    assert run.series("lr/1") == [0.01] * 3


def test_parameters_that_no_model_has_are_read_too(watching, model, data):
    x, y = data
    extra = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    run = watching(model, optimizer)
    true = train(model, optimizer, lambda: F.cross_entropy(model(x) * extra, y))
    assert run.readings[0].tensors["gradient"].names[-1] == "optimizer0.0.4"
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)


def test_a_lazy_module_is_watched_from_its_first_forward(watching, data):
    x, y = data
    model = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(2))
    run = watching(model)
    model(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    true = train(model, optimizer, lambda: F.cross_entropy(model(x), y))
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)


def test_a_learning_rate_that_is_a_tensor(watching, model, data):
    x, y = data
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01), capturable=False, foreach=False)
    run = watching(model, optimizer)
    train(model, optimizer, lambda: F.cross_entropy(model(x), y))
    assert run.series("lr/0") == pytest.approx([0.01] * 3)


def test_what_cannot_be_watched_is_refused_with_a_reason(model):
    with pytest.raises(ValueError, match=r"meta device \(first: 'weight'\)"):
        sg.watch(nn.Linear(2, 2, device="meta"))
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        sg.watch(nn.ReLU())
    with pytest.raises(TypeError, match=r"nn\.Module"):
        sg.watch("model")
    with pytest.raises(TypeError, match=r"not an nn\.Module"):
        sg.watch({"a": nn.Linear})
    with pytest.raises(TypeError, match=r"step\(\)"):
        sg.watch(model, 3)
    with pytest.raises(ValueError, match="lag 2"):
        sg.watch(model, lag=2)
    with pytest.raises(ValueError, match=r"'absurd'.*'basic', 'advanced', 'extreme'"):
        sg.watch(model, level="absurd")
    with pytest.raises(ValueError, match="budget 5"):
        sg.watch(model, budget=5)
    with pytest.raises(ValueError, match="'mysql'"):
        sg.watch(model, store="mysql://somewhere/runs")


# -- non-finite values -----------------------------------------------------------------------------------------------


def test_a_nan_gradient_is_found_before_the_step_and_counted(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 2)
    found_before_step = []
    handle = model[0].weight.register_hook(lambda g: g.index_fill(0, torch.tensor([0]), math.nan))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    original = optimizer.step
    optimizer.register_step_pre_hook(lambda *_: found_before_step.extend(run.watch.findings))
    original()
    handle.remove()
    assert [f.id for f in found_before_step] == ["nonfinite-gradient"], "the judge spoke before the weights changed"
    table = run.readings[-1].tensors["nonfinite"]
    assert table.row("0.weight") == {"nan": 8.0, "inf": 0.0, "size": 128.0}
    finding = run.watch.findings[0]
    assert "index_fill" in finding.where.code, "the hook made it"
    assert finding.step == 2
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    ids = {f.id: f for f in run.watch.findings}
    assert {"nonfinite-gradient", "nonfinite-parameter", "nonfinite-loss"} <= set(ids)
    assert ids["nonfinite-parameter"].evidence["because"] == "nonfinite-gradient"
    assert run.watch.findings[0].id == "nonfinite-gradient", "the cause stands first"
    assert run.watch.status == "critical"


def test_an_infinite_mask_in_a_buffer_is_meant(watching, data):
    x, y = data

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 2)
            self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

        def forward(self, x):
            return self.layer(x)

    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    (F.cross_entropy(model(x), y) * math.nan).backward()
    optimizer.step()
    assert "nonfinite_parameter" not in run.readings[0].tensors


# -- torch.compile ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after", "inside"])
def test_compiled_models_get_no_graph_break(watching, data, when):
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    x, y = data

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, x):
            return self.layers(x)

    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, counter = Net(), CompileCounter()
    if when == "before":
        compiled = torch.compile(model, backend=counter, fullgraph=True)
        run = watching(compiled)
    elif when == "after":
        run = watching(model)
        compiled = torch.compile(model, backend=counter, fullgraph=True)
    else:
        model.compile(backend=counter, fullgraph=True)
        compiled = model
        run = watching(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    true = train(model, optimizer, lambda: F.cross_entropy(compiled(x), y), 12)
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)
    assert run.series("loss") == pytest.approx([loss for loss, _ in true])
    assert not counters["graph_break"]
    assert counter.frame_count == 1, "compiled once, and not again because of us"
    assert run.readings[0].tensors["gradient"].names[0] == "layers.0.weight"
    assert all(f.id == "blind-probe" for f in run.watch.findings)
    if when == "before":
        assert run.watch.findings == []
        assert "time/forward" in run.readings[-1].scalars


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_optimizer_step_is_still_read(watching, model, data):
    x, y = data
    torch._dynamo.reset()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        step()
    run.watch.close()
    assert len(run.series("loss")) == 4


# -- levels ----------------------------------------------------------------------------------------------------------


def test_levels_can_be_changed_while_running(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer, level="basic")
    assert run.watch.level is sg.DebugLevel.BASIC
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 30)
    assert not any("parameter" in r.tensors for r in run.readings[10:])
    run.watch.level = "extreme"
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 30)
    assert sum("parameter" in r.tensors for r in run.readings[30:]) >= 25
    run.watch.level = sg.DebugLevel.ADVANCED
    assert run.watch.report()["run"]["level"] == "advanced"
    with pytest.raises(ValueError, match="absurd"):
        run.watch.level = "absurd"


def test_updates_are_those_of_the_step_before(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    before = model[0].weight.detach().clone()
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 1)
    moved = float((model[0].weight.detach() - before).norm())
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 1)
    reading = run.readings[1]
    row = reading.tensors["update"].row("0.weight")
    assert reading.scalars["update/step"] == 0
    assert row["norm"] == pytest.approx(moved, rel=1e-4)
    assert row["ratio"] == pytest.approx(moved / float(before.norm()), rel=1e-4)
    assert row["changed"] == 1.0
    assert row["gradient"] == pytest.approx(run.readings[0].tensors["gradient"].row("0.weight")["norm"], rel=1e-5)


def test_only_so_many_bytes_of_parameters_are_copied(watching, model, data, monkeypatch):
    from seismograd.probes import parameters

    monkeypatch.setattr(parameters, "MOST_BYTES", 600)  # room for one weight at a time
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer, level="extreme")
    train(model, optimizer, lambda: F.cross_entropy(model(x), y), 20)
    tables = [r.tensors["update"].names for r in run.readings if "update" in r.tensors]
    assert all(len(names) < 4 for names in tables)
    assert {name for names in tables for name in names} == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_statistics_agree_with_a_slow_twin():
    torch.manual_seed(0)
    sparse = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, -4.0], (5,), check_invariants=True)
    tensors = [
        torch.randn(3, 4),
        torch.randn(7, dtype=torch.float64),
        torch.randn(5).bfloat16(),
        sparse,
        torch.zeros(0),
    ]
    tensors.append(torch.randn(3, dtype=torch.complex64))
    slow = [float(torch.linalg.vector_norm((t.to_dense() if t.is_sparse else t).to(torch.complex128))) for t in tensors]
    assert [float(n) for n in norms(tensors)] == pytest.approx(slow, rel=1e-6)
    parameters = [nn.Parameter(torch.randn(4)) for _ in range(3)]
    for p in parameters[:2]:
        p.grad = torch.full((4,), 3e38)
    assert gradient_norm(parameters) == pytest.approx(math.sqrt(8) * float(np.float32(3e38)))
    assert exact_norm(torch.zeros(3)) == 0.0


@pytest.mark.parametrize("how", ["by name", "all by name", "one tensor", "an iterator"])
def test_clipping_takes_its_arguments_in_every_way(watching, model, data, how):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if how == "by name":
            nn.utils.clip_grad_value_(model.parameters(), clip_value=1e-4)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1e-3)
        elif how == "all by name":
            nn.utils.clip_grad_value_(parameters=model.parameters(), clip_value=1e-4)
            nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=1e-3)
        else:
            each = list(model.parameters())
            nn.utils.clip_grad_value_(each[0] if how == "one tensor" else iter(each), 1e-4)
            nn.utils.clip_grad_norm_(each[0] if how == "one tensor" else iter(each), 1e-3)
        assert model[0].weight.grad.abs().max() <= 1e-4 * (1 + 1e-6)
        optimizer.step()
    assert len(run.readings) == 3
