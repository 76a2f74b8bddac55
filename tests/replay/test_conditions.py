"""Origins are right under the conditions people train in."""

from __future__ import annotations

import dataclasses
import logging
import math
import random
import warnings
from collections import namedtuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import LBFGS, SGD, Adam
from torch.utils.checkpoint import checkpoint

GOOD, BAD = torch.linspace(0.5, 2.0, 24).reshape(6, 4), torch.linspace(0.5, 2.0, 24).reshape(6, 4)
BAD[3, 1] = 0.0


class Log(nn.Module):
    """Bad wherever the input is 0."""

    def forward(self, x):
        return torch.log(x)  # <- log


class Root(nn.Module):
    """Bad in backward wherever the input is 0."""

    def forward(self, x):
        return torch.sqrt(x)  # <- sqrt


class Scale(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight


class Mask(nn.Module):
    """Exact zeros, as dropout makes them; without ReLU, which discards gradients."""

    def forward(self, x):
        return x.abs() * torch.tensor([1.0, 0.0, 1.0, 1.0])


def net(faulty):
    return nn.Sequential(Scale(), faulty, nn.Linear(4, 1))


FAULTS = [(Log, "forward", "aten.log", "log"), (Root, "backward", "aten.sqrt", "sqrt")]
faults = pytest.mark.parametrize("fault", FAULTS, ids=["forward", "backward"])


def agrees(found, fault, line, module="1"):
    _, phase, op, mark = fault
    assert (found.where.phase, found.where.module, found.where.op) == (phase, module, op)
    assert found.where.line == line(mark)
    assert found.evidence.get("sure", True), found.evidence.get("note")
    return True


def loss_of(model):
    return lambda x: model(x).square().mean()


# -- several backwards, several calls --------------------------------------------------------------------------------


@faults
def test_the_micro_batch_that_went_bad(watching, line, fault):
    model = net(fault[0]())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for batches in ([GOOD] * 3, [GOOD, BAD, GOOD]):
        optimizer.zero_grad()
        for x in batches:
            (model(x).square().mean() / 3).backward()
        optimizer.step()
    found = run.origin
    assert agrees(found, fault, line)
    assert (found.step, found.evidence["micro_batch"], found.evidence["micro_batches"]) == (1, 2, 3)
    assert found.evidence["index"][0] == [3, 1]


@faults
def test_micro_batches_summed_before_one_backward(watching, line, fault):
    model = net(fault[0]())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    sum(model(x).square().mean() for x in (GOOD, BAD, GOOD)).backward()
    optimizer.step()
    assert agrees(run.origin, fault, line)
    assert (run.origin.evidence["call"], run.origin.evidence["calls"]) == (2, 3)


@faults
def test_one_module_called_several_times_inside_the_model(diagnose, line, fault):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.shared, self.head = Scale(), fault[0](), nn.Linear(4, 1)

        def forward(self, x):
            h = self.shared(self.scale(x) + 2.0)
            return self.head(self.shared(h * 0 + self.scale(x)))

    model = Model()
    found = diagnose(model, loss_of(model), [GOOD, BAD])
    assert agrees(found, fault, line, "shared")
    assert found.evidence["time_step"] == 1


@faults
def test_the_time_step_of_a_recurrent_net(diagnose, line, fault):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.faulty = nn.RNNCell(4, 4), fault[0]()

        def forward(self, x):
            h = torch.zeros(len(x), 4)
            for at in range(6):
                factor = 0.0 if at == 4 else 1.0
                h = self.cell(x, self.faulty(h.abs() * factor + (1 - factor) * (x == -1) + 0.5 * factor))
            return h

    model = Model()
    found = diagnose(model, loss_of(model), [GOOD])
    assert agrees(found, fault, line, "faulty")
    assert found.evidence["time_step"] == 4


@faults
def test_a_cell_that_the_loop_itself_calls_over_and_over(watching, line, fault):
    cell, faulty = nn.RNNCell(4, 4), fault[0]()
    optimizer = SGD(cell.parameters(), lr=0.01)
    run = watching(cell, optimizer)
    h = torch.zeros(6, 4)
    for at in range(6):
        h = cell(GOOD, faulty(h.abs() * (at != 4) + 0.5 * (at != 4)))
    h.square().mean().backward()
    optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == (fault[2], line(fault[3]))


@faults
def test_two_backwards_through_one_forward(watching, line, fault):
    model = net(fault[0]())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        out = model(x)
        out.square().mean().backward(retain_graph=True)
        out.abs().mean().backward()
        optimizer.step()
    assert agrees(run.origin, fault, line)


# -- several models and optimizers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sick", ["generator", "discriminator"])
@faults
def test_a_gan(watching, line, fault, sick):
    def half(name, width):
        body = fault[0]() if name == sick else nn.Identity()
        return nn.Sequential(Scale(), body, nn.Linear(4, width))

    models = {"generator": half("generator", 4), "discriminator": half("discriminator", 1)}
    generator, discriminator = models.values()
    first, second = (Adam(each.parameters(), lr=1e-3) for each in models.values())
    run = watching(models, [first, second])
    for x in (GOOD, BAD):
        noise = x if sick == "generator" else GOOD
        first.zero_grad()
        discriminator(generator(noise).abs() + 0.1).mean().backward()
        first.step()
        second.zero_grad()
        fake = generator(GOOD).abs() + 0.1
        (discriminator(x if sick == "discriminator" else GOOD).mean() - discriminator(fake.detach()).mean()).backward()
        second.step()
    found = run.origins[0]
    assert agrees(found, fault, line, f"{sick}.1")


def test_a_teacher_that_is_not_trained(watching, line):
    student, teacher = nn.Linear(4, 1), net(Log())
    optimizer = SGD(student.parameters(), lr=0.01)
    run = watching(student, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        with torch.no_grad():
            target = teacher(x)
        F.mse_loss(student(x), target).backward()
        optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("log"))


@faults
def test_several_optimizers_of_one_model(watching, line, fault):
    model = net(fault[0]())
    optimizers = [SGD(model[0].parameters(), lr=0.01), Adam(model[2].parameters(), lr=0.01)]
    run = watching(model, optimizers)
    for x in (GOOD, BAD):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert agrees(run.origins[0], fault, line)


@faults
def test_submodules_that_the_loop_calls_one_by_one(watching, line, fault):
    model = nn.ModuleDict({"encoder": Scale(), "middle": net(fault[0]()), "decoder": nn.Linear(1, 1)})
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        h = model["encoder"](x)
        h = model["middle"](h)
        model["decoder"](h).square().mean().backward()
        optimizer.step()
    assert agrees(run.origin, fault, line, "middle.1")


# -- kinds of training -----------------------------------------------------------------------------------------------


@faults
def test_lbfgs(watching, line, fault):
    model = net(fault[0]())
    optimizer = LBFGS(model.parameters(), lr=0.1, max_iter=2)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):

        def closure(x=x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    assert agrees(run.origin, fault, line)


def test_a_loop_of_functions_of_bare_parameters(watching, line):
    weight = nn.Parameter(torch.ones(4))
    optimizer = SGD([weight], lr=0.01)
    run = watching(nn.ParameterList([weight]), optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        h = x * weight
        h = h.log()  # <- functions
        loss = h.square().mean()
        loss.backward()
        optimizer.step()
    found = run.origin
    assert (found.where.phase, found.where.op, found.where.line) == ("loss", "aten.log", line("functions"))


def test_a_loop_of_functions_of_bare_parameters_in_backward(watching, line):
    weight = nn.Parameter(torch.ones(4))
    optimizer = SGD([weight], lr=0.01)
    run = watching(nn.ParameterList([weight]), optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        h = x * weight
        h = h.sqrt()  # <- functions backward
        h.mean().backward()
        optimizer.step()
    found = run.origin
    assert (found.where.phase, found.where.op, found.where.line) == (
        "backward",
        "aten.sqrt",
        line("functions backward"),
    )


# -- mixed precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@faults
def test_autocast(watching, line, fault, dtype):
    model = nn.Sequential(nn.Linear(4, 4), Mask(), fault[0](), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.001)
    run = watching(model, optimizer)
    with torch.autocast("cpu", dtype):
        loss = model(GOOD).square().mean()
    loss.backward()
    optimizer.step()
    found = run.origin
    assert agrees(found, fault, line, "2")
    assert str(dtype).removeprefix("torch.") in found.evidence["autocast"]


def test_autocast_that_overflows_half(watching):
    model = nn.Linear(4, 4)
    optimizer = SGD(model.parameters(), lr=0.001)
    run = watching(model, optimizer)
    with torch.no_grad():
        model.weight.fill_(1.0)
    for x in (GOOD, GOOD * 20000):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().abs().mean()
        loss.backward()
        optimizer.step()
    found = run.origin
    assert found.where.phase == "forward"
    assert found.evidence["dtype"] == "float16"
    assert found.where.op == "aten.addmm"


@faults
def test_a_fault_under_a_grad_scaler(watching, line, fault):
    model = net(fault[0]())
    optimizer = SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert agrees(run.origin, fault, line)


def test_what_only_the_scale_made_infinite_is_no_fault(watching):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    run = watching(model, optimizer)
    for _ in range(10):
        optimizer.zero_grad()
        scaler.scale(100 * model(GOOD).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() < 2.0**127
    assert run.origins == []
    assert run.watch.findings == []


def test_a_fault_is_found_after_the_scale_has_settled(watching, line):
    model = net(Root())
    optimizer = SGD(model.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    run = watching(model, optimizer)
    for at in range(12):
        optimizer.zero_grad()
        scaler.scale(100 * model(BAD if at == 11 else GOOD).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert agrees(run.origin, FAULTS[1], line)


# -- kinds of model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
@faults
def test_checkpointed_segments(diagnose, line, fault, reentrant):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(Scale(), fault[0]()), nn.Linear(4, 1)

        def forward(self, x):
            return self.head(checkpoint(self.body, x.requires_grad_(), use_reentrant=reentrant))

    model = Model()
    found = diagnose(model, loss_of(model), [GOOD.clone(), BAD.clone()])
    assert agrees(found, fault, line, "body.1")


@faults
def test_tied_weights(diagnose, line, fault):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.faulty = nn.Embedding(6, 4), fault[0]()
            self.decode = nn.Linear(4, 6, bias=False)
            self.decode.weight = self.embed.weight

        def forward(self, x):
            return self.decode(self.faulty(self.embed(x).abs() * (x != 5).unsqueeze(-1)))

    model = Model()
    found = diagnose(model, loss_of(model), [torch.arange(5), torch.arange(6)])
    assert agrees(found, fault, line, "faulty")


@faults
def test_sparse_gradients_of_an_embedding(diagnose, line, fault):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.faulty = nn.Embedding(6, 4, sparse=True), fault[0]()

        def forward(self, x):
            return self.faulty(self.embed(x).abs() * (x != 5).unsqueeze(-1))

    model = Model()
    found = diagnose(model, loss_of(model), [torch.arange(5), torch.arange(6)])
    assert agrees(found, fault, line, "faulty")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_complex_tensors(diagnose, line, where):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, x):
            h = torch.fft.fft(x * self.weight)
            if where == "forward":
                return h / h.abs()  # <- complex
            return torch.sqrt(h)  # <- complex backward

    model = Model()
    found = diagnose(model, lambda x: model(x).abs().mean(), [GOOD, BAD * torch.tensor([[0.0]])])
    assert found.where.phase == where
    assert found.where.line == line("complex" if where == "forward" else "complex backward")


Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Output:
    first: torch.Tensor
    second: torch.Tensor
    note: str = "of a dataclass"


class Mapping(dict):
    def __getattr__(self, name):
        return self[name]


@pytest.mark.parametrize(
    "shape",
    [
        Pair,
        Output,
        lambda a, b: {"first": a, "second": b},
        lambda a, b: Mapping(first=a, second=b),
        lambda a, b: [[a], {"b": (b, None, 3)}],
    ],
    ids=["namedtuple", "dataclass", "dict", "dict's child", "nested"],
)
@faults
def test_any_kind_of_output(diagnose, line, fault, shape):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.faulty = Scale(), fault[0]()

        def forward(self, x):
            h = self.scale(x)
            return shape(h + 1, self.faulty(h))

    def loss(x):
        out = model(x)
        if isinstance(out, list):
            first, second = out[0][0], out[1]["b"][0]
        elif isinstance(out, dict):
            first, second = out["first"], out["second"]
        elif isinstance(out, Output):
            first, second = out.first, out.second
        else:
            first, second = out
        return first.mean() + second.square().mean()

    model = Model()
    assert agrees(diagnose(model, loss, [GOOD, BAD]), fault, line, "faulty")


@pytest.mark.parametrize(
    "given",
    [
        lambda x: ((), {"x": x}),
        lambda x: (({"x": x},), {}),
        lambda x: ((Pair(x, None),), {}),
        lambda x: ((Output(x, x),), {}),
        lambda x: (([[x]],), {}),
        lambda x: ((), {"x": {"inner": (x, 3)}}),
    ],
    ids=["keyword", "dict", "namedtuple", "dataclass", "list", "nested"],
)
@faults
def test_any_kind_of_input(diagnose, line, fault, given):
    def tensor_in(x):
        while not isinstance(x, torch.Tensor):
            x = x.first if hasattr(x, "first") else next(iter(x.values())) if isinstance(x, dict) else x[0]
        return x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(fault[0]())

        def forward(self, x):
            return self.net(tensor_in(x))

    model = Model()

    def loss(x):
        args, kwargs = given(x)
        return model(*args, **kwargs).square().mean()

    assert agrees(diagnose(model, loss, [GOOD, BAD]), fault, line, "net.1")


@faults
def test_batch_norm_in_training(diagnose, line, fault):
    model = nn.Sequential(nn.BatchNorm1d(4), Mask(), fault[0](), nn.Linear(4, 1))
    before = None

    def loss(x):
        nonlocal before
        out = model(x)
        before = model[0].running_mean.clone(), int(model[0].num_batches_tracked)
        return out.square().mean()

    assert agrees(diagnose(model, loss, [GOOD]), fault, line, "2")
    assert torch.equal(before[0], model[0].running_mean)
    assert before[1] == model[0].num_batches_tracked == 1


class Dropping(nn.Module):
    """Drops by the numbers of one generator: bad only where it dropped."""

    def __init__(self, source):
        super().__init__()
        self.source = source

    def forward(self, x):
        if self.source == "python":
            return x * torch.tensor([float(random.random() > 0.5) for _ in range(x.numel())]).reshape(x.shape)
        if self.source == "numpy":
            return x * torch.from_numpy((np.random.rand(*x.shape) > 0.5).astype(np.float32))
        return F.dropout(x, 0.5)


@pytest.mark.parametrize("source", ["torch", "python", "numpy"])
@faults
def test_random_numbers_are_drawn_as_in_the_first_run(watching, line, fault, source):
    random.seed(0)
    np.random.seed(0)
    model = nn.Sequential(Scale(), Dropping(source), nn.Identity(), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.001)
    run = watching(model, optimizer)
    seen = []
    model[1].register_forward_hook(lambda module, args, output: seen.append(output.detach().clone()))
    for at in range(12):
        if at == 11:
            model[2] = fault[0]()
        optimizer.zero_grad()
        model(GOOD).square().mean().backward()
        optimizer.step()
    assert agrees(run.origin, fault, line, "2")
    assert len(seen) > 12  # it was run again
    assert all(torch.equal(seen[11], other) for other in seen[12:])


@pytest.mark.parametrize("name", ["spectral_norm", "weight_norm"])
@faults
def test_parametrizations(diagnose, line, fault, name):
    model = nn.Sequential(getattr(nn.utils.parametrizations, name)(nn.Linear(4, 4)), Mask(), fault[0]())
    assert agrees(diagnose(model, loss_of(model), [GOOD]), fault, line, "2")


def test_a_parametrization_that_is_at_fault(diagnose, line):
    class Positive(nn.Module):
        def forward(self, weight):
            return torch.log(weight * 0)  # <- parametrization

    model = nn.Sequential(nn.Linear(4, 4))
    nn.utils.parametrize.register_parametrization(model[0], "weight", Positive(), unsafe=True)
    found = diagnose(model, loss_of(model), [GOOD])
    assert (found.where.op, found.where.line) == ("aten.log", line("parametrization"))
    assert found.where.module == "0.parametrizations.weight.0"


@faults
def test_frozen_layers(diagnose, line, fault):
    model = nn.Sequential(Scale(), Mask(), fault[0](), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    if fault[1] == "backward":
        model[1] = Scale()
    found = diagnose(model, loss_of(model), [BAD])
    assert agrees(found, fault, line, "2")


# -- custom functions and in-place ops -------------------------------------------------------------------------------


class BadForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.log(x)  # <- function forward

    @staticmethod
    def backward(ctx, grad):
        return grad


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / x  # <- function backward


@pytest.mark.parametrize(("function", "op"), [(BadForward, "aten.log"), (BadBackward, "aten.div")])
@pytest.mark.parametrize("inside", [True, False])
def test_a_function_of_the_users_own(diagnose, line, function, op, inside):
    where = "forward" if function is BadForward else "backward"

    class Apply(nn.Module):
        def forward(self, x):
            return function.apply(x)

    model = net(Apply() if inside else nn.Identity())
    if inside:
        found = diagnose(model, loss_of(model), [GOOD, BAD])
        assert (found.where.op, found.where.module) == (op, "1")
        assert found.where.line == line(f"function {where}")
        return
    model = Scale()
    found = diagnose(model, lambda x: function.apply(model(x)).mean(), [GOOD, BAD])
    assert found.where.phase == {"forward": "loss", "backward": "backward"}[where]


def test_in_place_ops(diagnose, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.head = Scale(), nn.Linear(4, 1)

        def forward(self, x):
            h = self.scale(x)
            h.add_(0.0)
            h[:, 1].log_()  # <- in place
            h.mul_(2.0)
            return self.head(h)

    model = Model()
    found = diagnose(model, loss_of(model), [GOOD, BAD])
    assert (found.where.op.rstrip("_"), found.where.line) == ("aten.log", line("in place"))


def test_an_in_place_mask_is_not_accused(diagnose, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.log = Scale(), Log()

        def forward(self, x):
            h = self.scale(x)
            scores = h @ h.T
            scores.masked_fill_(torch.ones(6, 6, dtype=torch.bool).triu(1), -math.inf)
            return self.log(scores.softmax(-1) @ h * (x != 0))

    model = Model()
    assert agrees(diagnose(model, loss_of(model), [BAD]), FAULTS[0], line, "log")


def test_a_model_that_changes_its_input_is_refused_with_a_note(watching):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(Log())

        def forward(self, x):
            x.mul_(0.5)
            return self.net(x)

    model = Model()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    x = BAD.clone()
    model(x).square().mean().backward()
    optimizer.step()
    assert run.origins == []
    assert any("in place" in note for note in run.notes)
    assert torch.equal(x, BAD * 0.5)


def test_a_batch_that_is_reused_for_the_next_step_is_refused_with_a_note(watching):
    model = nn.Sequential(Log(), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    x = BAD.clone()
    loss = model(x).square().mean()
    x.copy_(GOOD)
    loss.backward()
    optimizer.step()
    assert run.origins == []
    assert any("in place" in note for note in run.notes)


# -- wrappers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["torch.compile", "model.compile"])
@faults
def test_compiled(watching, line, fault, how):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(fault[0]())

        def forward(self, x):
            return self.net(x)

    model = Model()
    optimizer = SGD(model.parameters(), lr=0.01)
    if how == "torch.compile":
        run, called = watching(model, optimizer), torch.compile(model, backend="eager")
    else:
        model.compile(backend="eager")
        run, called = watching(model, optimizer), model
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        called(x).square().mean().backward()
        optimizer.step()
    assert agrees(run.origin, fault, line, "net.1")
    assert run.origin.evidence["compiled"] is True


@pytest.fixture
def one_rank(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@faults
def test_ddp(watching, line, fault):
    model = net(fault[0]())
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = SGD(wrapped.parameters(), lr=0.01)
    run = watching(wrapped, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        wrapped(x).square().mean().backward()
        optimizer.step()
    assert run.origin.where.module in {"1", "module.1"}
    assert agrees(run.origin, fault, line, run.origin.where.module)


@faults
def test_hooks_of_the_users_own(watching, line, fault):
    model = net(fault[0]())
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append("forward") or output + 0)
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 1.0,))
    model[2].register_full_backward_hook(lambda module, grads, outs: seen.append("backward"))
    model[0].weight.register_hook(lambda grad: grad * 1.0)
    model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    assert agrees(run.origin, fault, line)
    assert seen.count("accumulated") == 2  # nothing is accumulated in the second run


def test_a_hook_that_makes_the_gradient_bad(diagnose, line):
    model = net(nn.Identity())

    def spoil(grad):
        return grad / (grad * 0)  # <- hook

    def forward_hook(module, args, output):
        output.register_hook(spoil)

    model[1].register_forward_hook(forward_hook)
    found = diagnose(model, loss_of(model), [GOOD])
    assert (found.where.phase, found.where.op, found.where.line) == ("backward", "aten.div", line("hook"))


@faults
def test_forward_called_directly(watching, line, fault):
    model = net(fault[0]())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model.forward(x).square().mean().backward()
        optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == (fault[2], line(fault[3]))


def test_a_model_of_an_installed_package_is_told_at_the_users_line(diagnose, line):
    model = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)

    def loss(x):
        return model(x, x).mean()  # <- transformer

    x = GOOD.reshape(2, 3, 4)
    found = diagnose(model, loss, [x, x * 1e30])
    assert (found.where.phase, found.where.line) == ("forward", line("transformer"))
    assert found.where.module.startswith("encoder.layers.0")


# -- output and errors of the second run -----------------------------------------------------------------------------


def test_nothing_comes_out_twice(watching, capfd, caplog):
    class Talks(nn.Module):
        def forward(self, x):
            print("said")
            logging.getLogger("talks").warning("logged")
            warnings.warn("warned", stacklevel=1)
            return torch.log(x)

    model = net(Talks())
    optimizer = SGD(model.parameters(), lr=0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = watching(model, optimizer)
        model(BAD).square().mean().backward()
        optimizer.step()
        assert run.origin.where.op == "aten.log"
    assert capfd.readouterr().out == "said\n"
    assert [record.message for record in caplog.records] == ["logged"]
    assert [str(one.message) for one in caught] == ["warned"]


def test_a_model_that_raises_only_in_the_second_run(watching):
    class Once(nn.Module):
        calls = 0

        def forward(self, x):
            Once.calls += 1
            if Once.calls > 1:
                raise ValueError("only once")
            return torch.log(x)

    model = net(Once())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    model(BAD).square().mean().backward()
    optimizer.step()
    assert run.origins == []
    assert any("ValueError: only once" in note for note in run.notes)


def test_a_model_that_is_not_deterministic_is_told_as_unsure(watching):
    class Counts(nn.Module):
        calls = 0

        def forward(self, x):
            Counts.calls += 1
            return torch.log(x) + Counts.calls

    model = net(Counts())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    model(BAD).square().mean().backward()
    optimizer.step()
    assert run.origin.evidence["sure"] is False
    assert "deterministic" in run.origin.evidence["note"]


@faults
def test_without_replay_nothing_is_recorded(watching, fault):
    calls = []
    model = net(fault[0]())
    model.register_forward_hook(lambda *_: calls.append(1))
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer, replay=False)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        assert not torch.is_anomaly_enabled()
        loss.backward()
        optimizer.step()
    assert run.recorder is None
    assert run.origins == []
    assert len(calls) == 2
    assert run.watch.findings


# -- what cannot be kept, or not be run again ------------------------------------------------------------------------


def test_a_gradient_too_large_to_be_kept_is_computed_anew_by_the_loss(watching, line, monkeypatch):
    """Room for inputs and outputs (in fours of bytes), and for no gradient."""
    monkeypatch.setattr("seismograd.replay.recorder.MOST_BYTES", 4 * (24 + 6 + 6 + 6 + 1))
    model, criterion = net(Root()), nn.MSELoss()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        criterion(model(x), torch.zeros(6, 1)).backward()
        kept = [len(output.arrived) for call in run.calls for output in call.outputs]
        optimizer.step()
    assert kept == [0, 1], "of the model none, of the loss its own, which is one number"
    assert (run.origin.where.op, run.origin.where.line) == ("aten.sqrt", line("sqrt"))


def test_the_second_optimizer_of_one_backward_is_told_too(watching, line):
    """The fault lies behind what the first one trains: its own reading is sound, and comes first."""
    first, second = net(Root()), nn.Linear(4, 1)
    optimizers = [SGD(second.parameters(), lr=0.01), SGD(first.parameters(), lr=0.01)]
    run = watching({"first": first, "second": second}, optimizers)
    for x in (GOOD, BAD):
        for optimizer in optimizers:
            optimizer.zero_grad()
        (first(x).square().mean() + second(x).square().mean()).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.sqrt", line("sqrt"))


@pytest.mark.usefixtures("one_rank")
def test_a_sharded_model_is_not_run_again(watching):
    from torch.distributed.fsdp import fully_shard

    model = net(Log())
    fully_shard(model)
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    notes = [str(finding.evidence.get("note")) for finding in run.watch.findings]
    assert any("sharded" in note for note in notes), notes
    assert not any(finding.id == "blind-probe" for finding in run.watch.findings)


@pytest.mark.usefixtures("one_rank")
def test_a_model_that_is_split_over_ranks_is_not_run_again(watching):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model = nn.Sequential(Scale(), Log(), nn.Linear(4, 4), nn.Linear(4, 1))
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"2": ColwiseParallel()})
    optimizer = SGD(model.parameters(), lr=0.01, foreach=False)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    notes = [str(finding.evidence.get("note")) for finding in run.watch.findings]
    assert any("split over ranks" in note for note in notes), notes
    assert not any(finding.id == "blind-probe" for finding in run.watch.findings)


def test_too_little_memory_for_a_second_run(watching):
    class Hungry(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(Log())

        def forward(self, x):
            seen.append(1)
            if len(seen) > 2:
                raise torch.OutOfMemoryError("no more")
            return self.net(x)

    seen: list[int] = []
    model = Hungry()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    notes = [str(finding.evidence.get("note")) for finding in run.watch.findings]
    assert any("not enough memory" in note for note in notes), notes
