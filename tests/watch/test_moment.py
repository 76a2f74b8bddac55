"""Readings are those of the moment: gradients complete, not clipped, not stepped, not zeroed."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import seismograd as sg


def norm_of(parameters):
    return math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in parameters if p.grad is not None))


def test_the_gradient_norm_is_that_before_clipping(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, true = watching(model, optimizer), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        true.append((loss.item(), norm_of(model.parameters())))
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
    assert run.series("loss") == pytest.approx([loss for loss, _ in true])
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)
    assert [r.step for r in run.readings] == [0, 1, 2, 3, 4]
    assert run.series("lr/0") == [0.1] * 5
    table = run.readings[0].tensors["gradient"]
    assert table.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert math.hypot(*table.columns["norm"]) == pytest.approx(true[0][1], rel=1e-5)


def test_the_optimizer_may_be_left_out_and_made_later(watching, model, data):
    x, y = data
    run = watching(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [r.step for r in run.readings] == [0, 1, 2, 3]
    assert run.series("lr/0") == [0.01] * 4


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("divides", [True, False])
def test_accumulation_is_one_reading_for_each_step(watching, model, data, given, divides):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, true = watching(model, optimizer if given else None), []
    for _ in range(8):
        losses = []
        for part in range(4):
            loss = F.cross_entropy(model(x[part * 16 : part * 16 + 16]), y[part * 16 : part * 16 + 16])
            losses.append(loss.item())
            (loss / 4 if divides else loss).backward()
        true.append((sum(losses) / 4, norm_of(model.parameters())))
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        optimizer.zero_grad()
    assert [r.step for r in run.readings] == list(range(8))
    assert run.series("loss") == pytest.approx([loss for loss, _ in true]), "as it was before it was divided"
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)
    assert not any(r.marks for r in run.readings)


def test_a_shorter_accumulation_at_the_end_of_an_epoch_is_undivided_too(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, true = watching(model, optimizer), []
    for length in (3, 3, 2, 3, 3, 2):
        losses = []
        for _ in range(length):
            loss = F.cross_entropy(model(x), y)
            losses.append(loss.item())
            (loss * (1 / 3)).backward()
        true.append(sum(losses) / length)
        optimizer.step()
        optimizer.zero_grad()
    assert run.series("loss") == pytest.approx(true)


def test_a_loss_that_is_divided_for_another_reason_stays_as_it_is(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, true = watching(model, optimizer), []
    for _ in range(6):
        for _ in range(2):
            loss = F.cross_entropy(model(x), y) / 10
            loss.backward()
        true.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    assert run.series("loss") == pytest.approx(true)


def test_accumulation_that_changes_its_length_is_still_read(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for length in (3, 3, 3, 3, 3, 3, 1, 5):
        for _ in range(length):
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(run.readings) == 8
    assert all("grad/norm" in r.scalars for r in run.readings)
    assert run.readings[6].marks == {"pre-step"}, "a step earlier than expected is read late, and says so"


def test_a_gan_is_two_series(watching, data):
    torch.manual_seed(0)
    real, _ = data
    gen, disc = nn.Linear(4, 8), nn.Linear(8, 1)
    opt_d, opt_g = torch.optim.SGD(disc.parameters(), lr=0.1), torch.optim.SGD(gen.parameters(), lr=0.2)
    run = watching({"D": disc, "G": gen}, [opt_d, opt_g])
    d_losses, g_losses, d_norms, g_norms = [], [], [], []
    for _ in range(6):
        z = torch.randn(64, 4)
        opt_d.zero_grad()
        loss_d = F.softplus(-disc(real)).mean() + F.softplus(disc(gen(z).detach())).mean()
        loss_d.backward()
        d_norms.append(norm_of(disc.parameters()))
        opt_d.step()
        opt_g.zero_grad()
        loss_g = F.softplus(-disc(gen(z))).mean()
        loss_g.backward()
        g_norms.append(norm_of(gen.parameters()))
        opt_g.step()
        d_losses.append(loss_d.item())
        g_losses.append(loss_g.item())
    assert run.series("loss/0") == pytest.approx(d_losses)
    assert run.series("loss/1") == pytest.approx(g_losses)
    assert run.series("grad/norm/0") == pytest.approx(d_norms, rel=1e-5)
    assert run.series("grad/norm/1") == pytest.approx(g_norms, rel=1e-5), "only the generator's own gradients"
    assert set(run.readings[1].tensors["gradient"].names) == {"G.weight", "G.bias"}
    assert run.series("lr/0") == [0.1] * 6
    assert run.series("lr/1") == [0.2] * 6
    assert [r.step for r in run.readings] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.parametrize("lag", [0, 1])
def test_two_optimizers_on_one_backward(watching, model, data, lag):
    x, y = data
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam(model[2].parameters(), lr=0.01)
    run, norms = watching(model, [first, second], lag=lag), []
    for _ in range(3):
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        norms.append((norm_of(model[0].parameters()), norm_of(model[2].parameters())))
        first.step()
        second.step()
    run.watch.flush()
    assert [r.step for r in run.readings] == [0, 0, 1, 1, 2, 2]
    assert len(run.series("loss/0")) == 3
    assert run.series("loss/1") == []
    assert run.series("grad/norm/0") == pytest.approx([a for a, _ in norms], rel=1e-5)
    assert run.series("grad/norm/1") == pytest.approx([b for _, b in norms], rel=1e-5)


def test_an_lbfgs_step_is_one_reading(watching, model, data):
    x, y = data
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
    run, first_losses = watching(model, optimizer), []
    for _ in range(4):
        losses = []

        def closure(losses=losses):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
        first_losses.append(losses[0])
        assert len(losses) > 1
    assert run.series("loss") == pytest.approx(first_losses)


def test_accumulation_then_a_closure_is_one_reading(watching, model, data):
    """What Lightning does: all but the last micro-batch outside the step, the last one in its closure."""
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)

    def closure():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        closure()
        optimizer.step(closure)
        optimizer.zero_grad()
    assert [r.step for r in run.readings] == [0, 1, 2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_ends_no_reading_early(watching, data, reentrant):
    from torch.utils.checkpoint import checkpoint

    x, y = data
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
    head = nn.Linear(8, 2)
    model = nn.ModuleDict({"layers": layers, "head": head})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, norms = watching(model, optimizer), []
    for _ in range(3):
        h = x.clone().requires_grad_()
        for layer in layers:
            h = checkpoint(layer, torch.tanh(h), use_reentrant=reentrant)
        F.cross_entropy(head(h), y).backward()
        norms.append(norm_of(model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    assert run.series("grad/norm") == pytest.approx(norms, rel=1e-5)
    assert not any(r.marks for r in run.readings)


def test_gradients_from_autograd_grad_are_read_before_the_step_and_say_so(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, true = watching(model, optimizer), []
    for _ in range(3):
        loss = F.cross_entropy(model(x), y)
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter.grad = gradient
        true.append((loss.item(), norm_of(model.parameters())))
        optimizer.step()
    assert all(r.marks == {"pre-step"} for r in run.readings)
    assert run.series("loss") == pytest.approx([loss for loss, _ in true])
    assert run.series("grad/norm") == pytest.approx([norm for _, norm in true], rel=1e-5)


def test_gradients_from_torch_func_are_read_before_the_step(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, norms = watching(model, optimizer), []

    def loss_of(parameters):
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    for _ in range(3):
        gradients = torch.func.grad(loss_of)({name: p.detach() for name, p in model.named_parameters()})
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
        norms.append(norm_of(model.parameters()))
        optimizer.step()
    assert run.series("grad/norm") == pytest.approx(norms, rel=1e-5)
    assert run.series("loss") == [], "a value that was not measured is absent"


def test_an_optimizer_that_steps_inside_backward(watching, model, data):
    x, y = data
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    run, norms = watching(model), []
    for _ in range(3):
        loss = F.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        norms.append(math.sqrt(sum(float(g.pow(2).sum()) for g in gradients)))
        loss.backward()
    assert run.series("grad/norm") == pytest.approx(norms, rel=1e-5)
    assert len(run.series("loss")) == 3
    assert [r.step for r in run.readings] == [0, 1, 2]


def test_an_optimizer_that_is_not_torchs_closes_when_its_gradients_are_there(watching, model, data):
    x, y = data
    run, norms = watching(model), []
    for _ in range(5):
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        norms.append(norm_of(model.parameters()))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
        if len(norms) == 1:
            assert run.readings == [], "an optimizer of torch's may still step"
    assert len(run.readings) == 5, "before the weights move on"
    run.watch.close()
    assert run.series("grad/norm") == pytest.approx(norms, rel=1e-5)
    assert [r.step for r in run.readings] == [0, 1, 2, 3, 4]


def test_a_bad_loss_is_told_before_an_optimizer_that_is_not_torchs_spreads_it(watching, model, data):
    x, y = data
    run = watching(model)
    for step in range(6):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (loss if step < 4 else loss * math.nan).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
    first, *others = run.watch.findings
    assert (first.id, first.step, first.where.op) == ("nonfinite-loss", 4, "aten.mul")
    assert "loss * math.nan" in first.where.code
    assert {finding.id: finding.step for finding in others} == {"nonfinite-gradient": 4, "nonfinite-parameter": 5}


def test_a_given_optimizer_that_never_steps_is_read_all_the_same(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
    run.watch.close()
    assert len(run.readings) == 5
    assert all("not-stepped" in r.marks for r in run.readings)


def test_an_attack_before_the_step_is_no_step(watching, model, data):
    """FGSM: a first backward for the input's gradient, thrown away, then the one that counts."""
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, losses = watching(model, optimizer), []
    for _ in range(4):
        attacked = x.clone().requires_grad_()
        F.cross_entropy(model(attacked), y).backward()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x + 0.1 * attacked.grad.sign()), y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    counted = [r for r in run.readings if "not-stepped" not in r.marks]
    assert [r.scalars["loss"] for r in counted] == pytest.approx(losses)
    assert len(run.readings) <= 5, "only the very first attack, before any step was known, may be taken for a step"


def test_sam_is_one_reading_a_step(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for _ in range(4):
        F.cross_entropy(model(x), y).backward()
        moves = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in model.parameters()]
        with torch.no_grad():
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.sub_(move)
        optimizer.step()
        optimizer.zero_grad()
    assert len([r for r in run.readings if "not-stepped" not in r.marks]) == 4


def test_a_backward_that_fails_leaves_nothing_behind(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    assert [r.step for r in run.readings if "not-stepped" not in r.marks][-1:] != []
    assert run.watch.findings == []


def test_observe_gives_the_loss_by_hand(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for number in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        run.watch.observe(10.0 + number)
        optimizer.step()
        run.watch.observe(loss)  # after the step it tells nothing new
    assert run.series("loss") == [10.0, 11.0, 12.0]


def test_monitor_training_step_inside_a_watch_closes_the_reading(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for step in (100, 101, 102):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        info = run.watch.monitor_training_step(model, loss, step)
        assert info["step"] == step
        assert info["loss"] == pytest.approx(loss.item())
        assert info["gradient_norm"] == pytest.approx(norm_of(model.parameters()), rel=1e-5)
        optimizer.step()
    assert [r.step for r in run.readings] == [100, 101, 102]


def test_monitor_training_step_needs_no_watch(model, data):
    x, y = data
    debugger = sg.TrainingDebugger("basic", strict=True)
    F.cross_entropy(model(x), y).backward()
    info = debugger.monitor_training_step(model, 0.5, 7)
    assert (info["step"], info["loss"], info["anomalies"]) == (7, 0.5, [])
    assert debugger.get_training_summary()["total_steps"] == 1


def test_users_own_series_stand_in_the_next_reading(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for number in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        run.watch.log("accuracy", number / 10)
        run.watch.log("entropy", torch.tensor(float(number)))
        optimizer.step()
    assert run.series("accuracy") == pytest.approx([0.0, 0.1, 0.2])
    assert run.series("entropy") == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="'loss' cannot be logged"):
        run.watch.log("loss", 1.0)
    with pytest.raises(ValueError, match="2 elements"):
        run.watch.log("pair", torch.zeros(2))


def test_validation_by_hand_and_by_itself(watching, model, data):
    x, y = data
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, true = watching(model, optimizer, loss_fn=loss_fn), []
    for _ in range(3):
        model.train()
        for _ in range(2):
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            loss_fn(model(x), y)  # still in training mode: not certainly an evaluation
        model.eval()
        with torch.no_grad():
            parts = [loss_fn(model(x[:32]), y[:32]), loss_fn(model(x[32:]), y[32:])]
        true.append(float(sum(parts) / 2))
    run.watch.flush()
    assert run.series("val_loss") == pytest.approx(true)
    run.watch.validate(torch.tensor(0.25))
    assert run.series("val_loss")[-1] == 0.25


def test_lag_judges_one_step_later_and_loses_nothing(watching, model, data):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, losses = watching(model, optimizer, lag=1), []
    for number in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert len(run.readings) == number
    run.watch.close()
    assert run.series("loss") == pytest.approx(losses)


def test_the_time_of_a_step_is_split(watching, model, data):
    from torch.utils.data import DataLoader, TensorDataset

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    for x, y in DataLoader(TensorDataset(*data), batch_size=16):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    scalars = run.readings[-1].scalars
    parts = [scalars[f"time/{part}"] for part in ("data", "forward", "backward", "optimizer", "rest")]
    assert all(part >= 0 for part in parts)
    assert sum(parts) <= scalars["time/step"] * 1.001


@pytest.mark.parametrize("fails_in", ["forward", "update"])
def test_a_step_whose_closure_fails_is_not_counted(watching, model, data, fails_in):
    x, y = data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, steps = watching(model, optimizer), 0

    def closure():
        optimizer.zero_grad()
        if steps == 3 and fails_in == "forward":
            raise KeyError("batch")
        F.cross_entropy(model(x), y).backward()
        if steps == 3:
            raise KeyError("batch")

    def train():
        nonlocal steps
        with run.watch:
            while True:
                optimizer.step(closure)
                steps += 1

    with pytest.raises(KeyError):
        train()
    assert run.watch.report()["run"]["steps"] == steps == 3
