"""Odd arguments, odd models and odd loops: the origin is named all the same, and nothing happens twice."""

from __future__ import annotations

import threading
from collections import Counter, deque

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD

GOOD, BAD = torch.ones(6, 4), torch.ones(6, 4)
BAD[3, 1] = 0.0


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)  # <- log


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)  # <- sqrt


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight


class Headed(nn.Module):
    """Takes the logarithm of what `find` finds in its arguments."""

    def __init__(self, find=lambda x: x):
        super().__init__()
        self.head, self.find = nn.Linear(4, 1), find

    def forward(self, *args):
        return self.head(torch.log(self.find(*args)))  # <- headed


def net(faulty):
    return nn.Sequential(Scale(), faulty, nn.Linear(4, 1))


faults = pytest.mark.parametrize(
    "fault",
    [(Log, "forward", "aten.log", "log"), (Root, "backward", "aten.sqrt", "sqrt")],
    ids=["forward", "backward"],
)


def agrees(found, fault, line):
    _, phase, op, mark = fault
    assert (found.where.phase, found.where.op, found.where.line) == (phase, op, line(mark))
    assert found.evidence.get("sure", True), found.evidence.get("note")
    return True


@pytest.fixture
def once(watching):
    """A watch over one bad step of a model, which gets these arguments."""

    def run(model, *args):
        optimizer = SGD(model.parameters(), lr=0.01)
        run = watching(model, optimizer)
        model(*args).square().mean().backward()
        optimizer.step()
        return run

    return run


# -- loops -----------------------------------------------------------------------------------------------------------


@faults
def test_a_model_that_returns_its_own_loss(diagnose, line, fault):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(fault[0]())

        def forward(self, x, y):
            out = self.net(x)
            return {"loss": F.mse_loss(out, y), "logits": out}

    model = Model()
    assert agrees(diagnose(model, lambda x: model(x, torch.ones(6, 1))["loss"], [GOOD, BAD]), fault, line)


@faults
def test_a_backward_that_is_given_its_gradient(watching, line, fault):
    model = net(fault[0]())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        out = model(x)
        out.backward(torch.ones_like(out))
        optimizer.step()
    assert agrees(run.origin, fault, line)


@faults
def test_gradients_that_the_loop_takes_and_sets_itself(watching, line, fault):
    model = net(fault[0]())
    parameters = list(model.parameters())
    optimizer = SGD(parameters, lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        gradients = torch.autograd.grad(model(x).square().mean(), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    assert agrees(run.origin, fault, line)


def test_a_gradient_penalty(watching, line):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for factor in (1.0, 0.0):
        optimizer.zero_grad()
        x = (GOOD * factor).requires_grad_()
        out = model(x).sum() * factor
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        norm = slope.square().sum(1).sqrt()  # <- penalty
        (out + (norm - 1).square().mean()).backward()
        optimizer.step()
    found = run.origin
    assert (found.where.phase, found.where.op, found.where.line) == ("backward", "aten.sqrt", line("penalty"))


def test_a_loop_in_another_thread(watching, line):
    found = []

    def train():
        model = net(Log())
        optimizer = SGD(model.parameters(), lr=0.01)
        run = watching(model, optimizer)
        for x in (GOOD, BAD):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        found.append(run.origin)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert (found[0].where.op, found[0].where.line) == ("aten.log", line("log"))


# -- arguments -------------------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Locked:
    def __init__(self, x):
        self.x, self.lock = x, threading.Lock()

    def __copy__(self):
        raise TypeError("no copies")


class Picky:
    @property
    def keys(self):
        raise RuntimeError("not before it is open")


def test_an_object_of_the_users_as_argument(once, line):
    run = once(Headed(lambda batch: batch.x), Slotted(BAD))
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("headed"))


def test_an_argument_that_cannot_be_copied_is_told_in_a_note(once):
    run = once(Headed(lambda batch: batch.x), Locked(BAD))
    assert run.origins == []
    assert any("TypeError: no copies" in note for note in run.notes)
    assert "nonfinite-loss" in {found.id for found in run.watch.findings}


def test_an_argument_that_does_not_want_to_be_looked_at(once, line):
    run = once(Headed(lambda x, picky: x), BAD, Picky())
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("headed"))


def test_a_dict_from_which_the_model_takes_out_what_it_uses(once, line):
    batch = {"x": BAD, "y": 1}
    run = once(Headed(lambda batch: batch.pop("x")), batch)
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("headed"))
    assert batch == {"y": 1}


def test_a_packed_sequence(once, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.log = nn.LSTM(4, 4, batch_first=True), Log()

        def forward(self, x):
            return self.log(self.rnn(x)[0].data * 0)

    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 4), [3, 2], batch_first=True)
    found = once(Model(), packed).origin
    assert (found.where.module, found.where.op, found.where.line) == ("log", "aten.log", line("log"))


def test_inputs_made_in_inference_mode(once, line):
    with torch.inference_mode():
        x = BAD * 1
    run = once(Headed(torch.clone), x)
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("headed"))


# -- models ----------------------------------------------------------------------------------------------------------


def test_a_model_that_returns_its_input_as_well(diagnose, line):
    class Model(Headed):
        def forward(self, x):
            return x, super().forward(x), x

    model = Model()
    found = diagnose(model, lambda x: model(x)[1].mean(), [GOOD, BAD])
    assert (found.where.op, found.where.line) == ("aten.log", line("headed"))


def test_parts_are_in_the_mode_in_which_they_were_called(watching, line):
    class Switch(nn.Module):
        def forward(self, x):
            return x if self.training else torch.log(x)  # <- switch

    model = net(Switch())
    model[1].eval()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    out = model(BAD)
    model.train()
    out.mean().backward()
    optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("switch"))
    assert all(each.training for each in model.modules())


def test_an_op_without_gradients_inside_the_model(once, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 1)

        def forward(self, x):
            with torch.no_grad():
                x = torch.log(x)  # <- no grad
            return self.head(x)

    found = once(Model(), BAD).origin
    assert (found.where.op, found.where.line) == ("aten.log", line("no grad"))


def test_a_logarithm_of_numpys_is_not_told_as_certain(once, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 1)

        def forward(self, x):
            with np.errstate(all="ignore"):
                x = torch.from_numpy(np.log(x.numpy()))
            return self.head(x)  # <- numpy

    found = once(Model(), BAD).origin
    assert found.where.line == line("numpy")
    assert found.evidence["sure"] is False


def test_a_bad_constant_is_found_behind_what_a_framework_does_to_the_loss(watching, line):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    loss = model(GOOD).square().mean()
    loss = loss + torch.log(torch.tensor(-1.0))  # <- constant
    loss = loss / 1  # as all of them do that accumulate
    loss.backward()
    optimizer.step()
    found = run.origin
    assert (found.where.op, found.where.line) == ("aten.add", line("constant"))
    assert found.evidence["sure"] is False


# -- what a second run may not leave behind --------------------------------------------------------------------------


def test_weights_that_forward_changes_through_data(watching):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 1)

        def forward(self, x):
            self.head.weight.data.mul_(0.5)
            return self.head(torch.log(x))

    class Still(SGD):
        def step(self, closure=None):
            return None

    model = Model()
    optimizer = Still(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    model(BAD).mean().backward()
    weight = model.head.weight
    values, place, version = weight.detach().clone(), weight.data_ptr(), weight._version
    optimizer.step()
    assert run.origin.where.op == "aten.log"
    assert torch.equal(values, weight)
    assert (place, version) == (weight.data_ptr(), weight._version)


def test_containers_that_a_model_holds(once):
    class Model(Headed):
        def __init__(self):
            super().__init__()
            self.stack, self.recent, self.counts, self.seen = [], deque(maxlen=2), Counter(), set()

        def forward(self, x):
            self.stack.append(x)
            self.recent.append(len(self.stack))
            self.counts["calls"] += 1
            self.seen.add(len(self.stack))
            return super().forward(x)

    model = Model()
    assert once(model, BAD).origin.where.op == "aten.log"
    assert [one is BAD for one in model.stack] == [True]
    assert (list(model.recent), dict(model.counts), model.seen) == ([1], {"calls": 1}, {1})


def test_containers_inside_a_dict_that_a_model_holds(once):
    class Model(Headed):
        def __init__(self):
            super().__init__()
            self.state = {"counts": {"calls": 0}, "sizes": []}

        def forward(self, x):
            self.state["counts"]["calls"] += 1
            self.state["sizes"].append(len(x))
            return super().forward(x)

    model = Model()
    assert once(model, BAD).origin.where.op == "aten.log"
    assert model.state == {"counts": {"calls": 1}, "sizes": [6]}


def test_a_generator_of_torchs_that_a_model_holds(watching, line):
    drawn = []

    def masked(x):
        drawn.append(torch.rand(x.shape, generator=model.generator))
        return x * (drawn[-1] > 0.3)

    model = Headed(masked)
    model.generator = torch.Generator().manual_seed(1)
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    model(GOOD).mean().backward()
    state = model.generator.get_state()
    optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("headed"))
    assert len(drawn) > 1  # it was run again
    assert all(torch.equal(drawn[0], again) for again in drawn[1:])
    assert torch.equal(state, model.generator.get_state())


def test_a_generator_of_numpys_that_a_model_holds(watching):
    drawn = []

    def masked(x):
        drawn.append(model.generator.random())
        return x * float(drawn[-1] > 2)

    model = Headed(masked)
    model.generator = np.random.default_rng(0)
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    model(GOOD).mean().backward()
    state = model.generator.bit_generator.state
    optimizer.step()
    assert run.origin.where.op == "aten.log"
    assert len(drawn) > 1
    assert set(drawn) == {drawn[0]}
    assert state == model.generator.bit_generator.state


def test_two_watches_at_once(watching, line):
    models = [net(Log()), net(Root())]
    optimizers = [SGD(model.parameters(), lr=0.01) for model in models]
    runs = [watching(*pair) for pair in zip(models, optimizers, strict=True)]
    for x in (GOOD, BAD):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    told = [(run.origin.where.op, run.origin.where.line) for run in runs]
    assert told == [("aten.log", line("log")), ("aten.sqrt", line("sqrt"))]


def test_buffers_made_in_inference_mode(watching, line):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(Log())
            with torch.inference_mode():
                self.register_buffer("shift", torch.zeros(4))

        def forward(self, x):
            return self.net(x + self.shift)

    model = Model()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("log"))
