"""A watch among others: other models, threads, optimizers that come and go. Only what is ours counts."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import seismograd as sg
from seismograd import governor


def net(width=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 1))


X = torch.ones(8, 4)


def square(model, plus=0.0):
    return (model(X) ** 2).mean() + plus


def test_another_threads_training_is_not_ours_and_does_not_crash(watching):
    models = [net(), net()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.0) for model in models]
    run = watching(models[0], optimizers[0])
    done = []

    def train(number):
        for _ in range(300):
            optimizers[number].zero_grad()
            square(models[number], 1000 * number).backward()
            optimizers[number].step()
        done.append(number)

    threads = [threading.Thread(target=train, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1]
    assert max(run.series("loss")) < 10
    assert len(run.readings) == 300


def test_another_models_backward_is_not_ours(watching):
    ours, other = net(), net()
    optimizer, others = torch.optim.SGD(ours.parameters(), lr=0.01), torch.optim.SGD(other.parameters(), lr=0.01)
    run, second = watching(ours, optimizer), watching(other, others)
    losses = []
    for _ in range(4):
        others.zero_grad()
        square(other, math.nan).backward()
        others.step()
        optimizer.zero_grad()
        loss = square(ours)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert run.series("loss") == pytest.approx(losses)
    assert run.watch.status == "healthy"
    assert second.watch.status == "critical"


def test_a_gradient_for_the_input_alone_is_no_step(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run, losses = watching(model, optimizer), []
    for _ in range(3):
        x = X.clone().requires_grad_()
        ((model(x) ** 2).mean() + 100).backward(inputs=[x])
        optimizer.zero_grad()
        loss = square(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert run.series("loss") == pytest.approx(losses)


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_that_is_made_anew_each_epoch(watching, given):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer if given else None)
    for epoch in range(4):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * (epoch + 1))
        for _ in range(5):
            optimizer.zero_grad()
            square(model).backward()
            optimizer.step()
    assert [r.step for r in run.readings] == list(range(20))
    assert run.series("lr/0")[-1] == pytest.approx(0.04)


def test_a_new_optimizer_wakes_a_watch_that_sleeps(watching, monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    model = net()
    run = watching(model, budget=1e-9)
    for epoch in range(3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            square(model, math.nan if epoch else 0.0).backward()
            optimizer.step()
    run.watch.close()
    assert run.watch.report()["run"]["steps"] == 300
    assert run.watch.status == "critical"


def test_optimizers_one_after_the_other_go_on_counting(watching):
    model = net()
    first, second = (torch.optim.SGD(model[at].parameters(), lr=0.01) for at in (0, 2))
    run = watching(model, [first, second])
    for optimizer in (first, second):
        for _ in range(5):
            model.zero_grad()
            square(model).backward()
            optimizer.step()
    assert [r.step for r in run.readings] == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8]


def test_gradients_written_in_place_by_hand(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(5):
        gradients = torch.autograd.grad(square(model), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad.copy_(gradient)
        optimizer.step()
    assert len(run.readings) == 5


def test_a_second_step_on_the_same_gradients_is_no_reading(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        square(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        optimizer.step()
    assert len(run.readings) == 3


def test_a_checkpoint_is_not_computed_again_because_of_us(watching):
    def train(watch):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if watch:
            watching(model, optimizer)
        for _ in range(5):
            for _ in range(2):
                x = torch.randn(8, 4, requires_grad=True)
                checkpoint(lambda x: (model(x) ** 2).mean() * torch.tensor(0.5), x, use_reentrant=False).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.state_dict()

    plain, watched = train(False), train(True)
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_a_nan_inside_a_line_search_or_after_the_last_step_is_found(watching):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=20)
    run, calls = watching(model, optimizer), []

    def closure():
        optimizer.zero_grad()
        calls.append(1)
        loss = square(model) * (math.nan if len(calls) >= 5 else 1.0)
        loss.backward()
        return loss

    optimizer.step(closure)
    run.watch.close()
    assert run.watch.status == "critical"

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=math.inf)
    run = watching(model, optimizer)
    square(model).backward()
    optimizer.step()
    run.watch.close()
    assert [f.id for f in run.watch.findings] == ["nonfinite-parameter"]


def test_two_optimizers_over_the_same_parameters(watching):
    model = net()
    adam, sgd = torch.optim.Adam(model.parameters(), lr=1e-3), torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, [adam, sgd])
    for number in range(6):
        model.zero_grad()
        square(model).backward()
        (adam if number % 2 else sgd).step()
    assert len(run.series("grad/norm/0")) == len(run.series("grad/norm/1")) == 3


def test_updates_stand_with_their_own_optimizer(watching):
    gen, disc = net(), net()
    opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.01), torch.optim.SGD(disc.parameters(), lr=5.0)
    run = watching({"g": gen, "d": disc}, [opt_g, opt_d], level="extreme")
    for _ in range(4):
        for model, optimizer in ((gen, opt_g), (disc, opt_d)):
            optimizer.zero_grad()
            square(model).backward()
            optimizer.step()
    for reading in run.readings[2:]:
        prefix = "g." if reading.series == 0 else "d."
        assert all(name.startswith(prefix) for name in reading.tensors["update"].names)


def test_closures_have_updates_too(watching):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run = watching(model, optimizer, level="extreme")

    def closure():
        optimizer.zero_grad()
        loss = square(model)
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)
    assert all("update" in r.tensors for r in run.readings[1:])
    assert [r.scalars["update/step"] for r in run.readings[1:]] == [0, 1, 2, 3, 4]


def test_two_losses_of_one_forward_are_added(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    out = model(X).mean()
    (out + 5).backward(retain_graph=True)
    (out + 7).backward()
    optimizer.step()
    assert run.series("loss") == pytest.approx([2 * out.item() + 12], rel=1e-5)


def test_clipping_each_micro_batch_is_still_one_step(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for _ in range(4):
        for _ in range(3):
            square(model, 1.0).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert [r.step for r in run.readings] == [0, 1, 2, 3]
    assert all(1.0 < loss < 2.0 for loss in run.series("loss"))


def test_long_accumulation_before_the_first_step(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for _ in range(2):
        for _ in range(100):
            square(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [r.step for r in run.readings] == [0, 1]


def test_batches_that_are_skipped_leave_no_trace(watching):
    model = net()
    head = torch.optim.SGD(model[2].parameters(), lr=0.0)  # the backbone needs gradients, and nobody clears them
    run = watching(model, head)
    for number in range(8):
        head.zero_grad()
        square(model, 100.0 * (number % 2)).backward()
        if number % 2 == 0:
            head.step()
    assert max(run.series("loss")) < 10


def test_scaled_losses_that_are_added_or_never_used(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = watching(model, optimizer)
    x = X.clone().requires_grad_()
    torch.autograd.grad(scaler.scale((model(x) ** 2).mean()), x)
    loss = square(model)
    loss.backward()  # not scaled
    plain = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in model.parameters()))
    optimizer.step()
    assert run.series("grad/norm") == pytest.approx([plain], rel=1e-4)
    optimizer.zero_grad()
    (scaler.scale(square(model)) + scaler.scale(square(model, 3.0))).backward()
    scaler.step(optimizer)
    assert run.series("loss")[1] == pytest.approx(2 * loss.item() + 3.0, rel=1e-4)


def test_a_failed_scaled_backward_does_not_keep_the_graph(watching):
    import gc
    import weakref

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu")
    watching(model, optimizer)
    hidden = model(X)
    alive = weakref.ref(hidden)
    loss = hidden.sum()
    loss.register_hook(lambda _: (_ for _ in ()).throw(MemoryError("out of memory")))
    with pytest.raises(MemoryError):
        scaler.scale(loss).backward()
    del hidden, loss
    gc.collect()
    assert alive() is None


def test_validations_while_the_watch_sleeps_are_told_apart(watching, monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    model, loss_fn = net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    run = watching(model, optimizer, loss_fn=loss_fn, budget=1e-9)
    for epoch in range(20):
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            loss_fn(model(X), torch.zeros(8, 1)).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss_fn(torch.full((4, 1), math.sqrt(epoch)), torch.zeros(4, 1))
    run.watch.close()
    assert run.series("val_loss") == pytest.approx(list(range(20)), abs=1e-5)
    assert [r.step for r in run.readings if "val_loss" in r.scalars] == list(range(4, 104, 5))


def test_what_is_monitored_by_hand_is_always_read(watching, monkeypatch):
    monkeypatch.setattr(governor, "GRACE", 0.0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    run = watching(model, optimizer, budget=1e-9)
    for step in range(60):
        optimizer.zero_grad()
        loss = square(model, step)
        loss.backward()
        assert run.watch.monitor_training_step(model, loss, step)["loss"] == pytest.approx(loss.item())
        optimizer.step()


def test_a_roster_that_changes(watching):
    model = net()
    model.extra = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(2)])
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], lr=0.01)

    def step():
        optimizer.zero_grad()
        out = model[2](model[1](model[0](X)))
        (out**2).mean().backward()
        optimizer.step()

    run = watching(model, optimizer)
    step()
    model[0].requires_grad_(False)
    step()
    optimizer.add_param_group({"params": list(model.extra)})
    step()
    assert [len(r.tensors["gradient"]) for r in run.readings] == [4, 2, 2]


def test_finite_gradients_stay_finite_at_lag_one(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    run = watching(model, optimizer, lag=1)
    for _ in range(3):
        optimizer.zero_grad()
        (square(model) * 1e22).backward()
        optimizer.step()
    run.watch.close()
    assert not any(f.id.startswith("nonfinite") for f in run.watch.findings)


def test_a_gan_whose_optimizers_are_found_is_two_series_from_the_start(watching):
    gen, disc = net(), net()
    opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.01), torch.optim.SGD(disc.parameters(), lr=0.01)
    run = watching({"g": gen, "d": disc})
    for _ in range(3):
        for model, optimizer in ((gen, opt_g), (disc, opt_d)):
            optimizer.zero_grad()
            square(model).backward()
            optimizer.step()
    assert run.series("loss") == []
    assert {r.series for r in run.readings} == {0, 1}


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_what_has_odd_shapes_and_dtypes(watching):
    model = net()
    run = watching(nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 1)))
    assert run.readings == []
    frozen = net()
    frozen.register_parameter("eight", nn.Parameter(torch.zeros(4, dtype=torch.float8_e4m3fn), requires_grad=False))
    optimizer = torch.optim.SGD([p for p in frozen.parameters() if p.requires_grad], lr=0.01)
    run = watching(frozen, optimizer)
    optimizer.zero_grad()
    square(frozen).backward()
    optimizer.step()
    assert "parameter" in run.readings[0].tensors
    with sg.watch(model, sinks=[]) as watch, pytest.raises(ValueError, match="gradient/norm"):
        watch.log("gradient/norm", 3.0)


def test_sparse_gradients_that_are_cleared_in_place(watching):
    model = nn.Embedding(10, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for number in range(4):
        model(torch.tensor([1, 2])).sum().backward()
        if number % 2:
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert len([r for r in run.readings if "not-stepped" not in r.marks]) == 2
