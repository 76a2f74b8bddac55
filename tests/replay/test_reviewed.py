"""What a hostile review tried: iterators, anomaly mode, threads, lazy modules, guarded loops, late readings."""

from __future__ import annotations

import contextlib
import gc
import io
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD

import seismograd as sg
from seismograd.replay import recorder

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


class Safe(SGD):
    """Takes a bad gradient for 0."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.nan_to_num(0.0, 0.0, 0.0), alpha=group["lr"])


class Bouncing(nn.Module):
    def forward(self, x):
        raise ValueError("not this batch")


def net(faulty):
    return nn.Sequential(Scale(), faulty, nn.Linear(4, 1))


def train(model, optimizer, batches):
    for x in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


faults = pytest.mark.parametrize(
    "fault",
    [(Log, "forward", "aten.log", "log"), (Root, "backward", "aten.sqrt", "sqrt")],
    ids=["forward", "backward"],
)


def agrees(found, fault, line):
    _, phase, op, mark = fault
    assert (found.where.phase, found.where.op, found.where.line) == (phase, op, line(mark))
    return True


# -- effects of a second run -----------------------------------------------------------------------------------------


def test_an_iterator_that_goes_into_the_model_loses_no_batch(watching):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.seen = net(Log()), []

        def forward(self, batches):
            at, x = next(batches)
            self.seen.append(at)
            return self.net(x)

    model = Model()
    optimizer = Safe(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    batches = enumerate([GOOD, BAD, GOOD, BAD, GOOD])
    for _ in range(5):
        optimizer.zero_grad()
        model(batches).square().mean().backward()
        optimizer.step()
    assert model.seen == [0, 1, 2, 3, 4]
    assert any("iterator" in note for note in run.notes)


class Stop(BaseException):
    """Of the user's own kind."""


def test_a_base_exception_in_the_second_run_stays_there(watching):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(Log())

        def forward(self, x):
            calls.append(len(x))
            if len(calls) > 1:
                raise Stop("no more")
            return self.net(x)

    calls = []
    model = Model()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    train(model, optimizer, [BAD])
    assert len(calls) > 1  # it was run again
    assert run.origins == []
    assert any("Stop: no more" in note for note in run.notes)


def test_other_threads_go_on_printing(watching, monkeypatch):
    """The second run waits until another thread has printed: that comes out, its own word does not."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(Log())

        def forward(self, x):
            if calls:
                ask.set()
                assert answered.wait(60.0)
            calls.append(len(x))
            print("model", flush=True)
            return self.net(x)

    def talk():
        if ask.wait(60.0):
            print("thread", flush=True)
            answered.set()

    calls, ask, answered, out = [], threading.Event(), threading.Event(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    thread = threading.Thread(target=talk)
    thread.start()
    model = Model()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    train(model, optimizer, [BAD])
    ask.set()
    thread.join()
    assert len(calls) > 1
    assert run.origin.where.op == "aten.log"
    assert out.getvalue() == "model\nthread\n"


# -- anomaly mode ----------------------------------------------------------------------------------------------------


def anomaly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.autograd.detect_anomaly()


@pytest.mark.parametrize("around", ["backward", "all"])
def test_the_users_anomaly_mode_in_the_loop(watching, around):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        with anomaly() if around == "all" else contextlib.nullcontext():
            loss = model(GOOD).square().mean()
            with anomaly():
                assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, True)
                loss.backward()
            assert torch.is_anomaly_enabled() == (around == "all")
        assert not torch.is_anomaly_enabled()
        optimizer.step()
        assert not torch.is_anomaly_enabled()
    run.watch.close()
    assert not torch.is_anomaly_enabled()


def test_anomaly_mode_still_finds_what_it_finds(watching):
    model = net(Root())
    optimizer = SGD(model.parameters(), lr=0.01)
    watching(model, optimizer)
    train(model, optimizer, [GOOD])
    loss = (model(BAD) * 0.0).sqrt().mean()
    with (
        anomaly(),
        pytest.warns(UserWarning, match="Error detected"),
        pytest.raises(RuntimeError, match="returned nan"),
    ):
        loss.backward()
    assert not torch.is_anomaly_enabled()


def test_anomaly_mode_seems_off_wherever_the_user_looks(watching):
    seen = []

    class Looks(nn.Module):
        def forward(self, x):
            seen.append(torch.is_anomaly_enabled())
            return x

    model = net(Looks())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(GOOD).square().mean()
        seen.append(torch.is_anomaly_enabled())
        loss.backward()
        seen.append(torch.is_anomaly_enabled())
        optimizer.step()
        seen.append(torch.is_anomaly_enabled())
    run.watch.close()
    assert seen == [False] * 8
    assert not torch.is_anomaly_enabled()


# -- models and arguments at which recording could fail --------------------------------------------------------------


def test_lazy_modules(watching, line):
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), Scale(), nn.Sigmoid(), nn.Identity())
    optimizer = SGD(model.parameters(), lr=0.0)
    run = watching(model, optimizer)
    train(model, optimizer, [torch.randn(6, 4)])
    model(torch.randn(6, 4))
    assert run.calls[-1].buffers  # those that there were not at first
    model[3], model[4] = nn.ReLU(), Log()
    train(model, optimizer, [torch.randn(6, 4)])
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("log"))


def test_buffers_made_in_inference_mode_are_no_trouble_to_record(watching):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 1)
            with torch.inference_mode():
                self.register_buffer("shift", torch.zeros(4))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return self.head(x + self.shift)

    model = Model()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    train(model, optimizer, [GOOD] * 2)
    model(GOOD)
    assert [(buffer is model.count, float(copy)) for buffer, copy in run.calls[-1].buffers] == [(True, 2.0)]
    run.watch.flush()
    assert run.watch.findings == []


def test_another_generator_behind_numpys_functions(watching, line):
    class Drops(nn.Module):
        def forward(self, x):
            drawn.append(np.random.rand())
            return torch.log(x * float(drawn[-1] > 2.0))  # <- drops

    drawn = []
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        model = net(Drops())
        optimizer = SGD(model.parameters(), lr=0.01)
        run = watching(model, optimizer)
        model(GOOD).square().mean().backward()
        state = np.random.get_bit_generator().state
        optimizer.step()
        assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("drops"))
        assert np.random.get_bit_generator().state == state
    finally:
        np.random.set_bit_generator(usual)
    assert len(drawn) > 1
    assert set(drawn) == {drawn[0]}


class Extra(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net(Log())

    def forward(self, x, extra):
        return self.net(x)


def trained_with(watching, extra):
    model = Extra()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD):
        optimizer.zero_grad()
        model(x, extra).square().mean().backward()
        optimizer.step()
    return run


class Counted(list):
    """Counts the items that are read."""

    reads = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.reads += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        for item in super().__iter__():
            self.reads += 1
            yield item


class Loads(dict):
    """Loads what it is asked for."""

    reads = 0

    def __getitem__(self, key):
        self.reads += 1
        return super().__getitem__(key)

    def items(self):
        return [(key, self[key]) for key in self]

    def values(self):
        return [self[key] for key in self]


class Store:
    reads = 0

    def keys(self):
        return range(100)

    def __getitem__(self, key):
        self.reads += 1
        return torch.zeros(4)


def test_a_long_list_of_numbers_is_not_walked(watching):
    numbers = Counted(range(200_000))
    run = trained_with(watching, numbers)
    assert run.origin.where.op == "aten.log"
    assert numbers.reads < 10_000


@pytest.mark.parametrize("kind", [Loads, Store])
def test_nothing_is_loaded_from_what_loads_when_it_is_read(watching, kind, monkeypatch):
    monkeypatch.setenv("SEISMOGRAD_CAPTURE", "0")
    loads = Loads({at: at for at in range(10)}) if kind is Loads else Store()
    run = trained_with(watching, loads)
    assert run.origin.where.op == "aten.log"
    assert loads.reads == 0


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_a_temporary_module_is_not_kept_alive(watching):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.01)
    watching(model, optimizer)
    refs = []
    for _ in range(4):
        temporary = nn.Sequential(nn.Linear(1, 1), nn.Tanh())
        refs.append(weakref.ref(temporary))
        optimizer.zero_grad()
        temporary(model(GOOD)).square().mean().backward()
        optimizer.step()
        del temporary
    gc.collect()
    assert [ref() for ref in refs[:-1]] == [None] * 3


def test_of_100_micro_batches_the_first_are_not_kept_and_that_is_told(watching):
    model = net(Log())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for at in range(100):
        (model(BAD if at == 2 else GOOD).square().mean() / 100).backward()
    optimizer.step()
    assert run.origins == []
    assert any(
        f"Only the last {recorder._MOST_CALLS} micro-batches of the step were kept" in note for note in run.notes
    )


def test_of_100_micro_batches_a_late_one_is_numbered_from_the_first(watching, line):
    model = net(Log())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for at in range(100):
        (model(BAD if at == 90 else GOOD).square().mean() / 100).backward()
    optimizer.step()
    found = run.origin
    assert (found.where.op, found.where.line) == ("aten.log", line("log"))
    assert (found.evidence["micro_batch"], found.evidence["micro_batches"]) == (91, 100)


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [False, True])
def test_several_threads_call_the_model(watching, bad):
    def weights(watched):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        optimizer = Safe(model.parameters(), lr=0.01)
        run = watching(model, optimizer) if watched else None
        errors = []

        def call(at):
            try:
                outputs[at] = model(batches[at])
            except BaseException as error:
                errors.append(error)

        for step in range(8):
            batches, outputs = [torch.randn(4, 4) for _ in range(4)], [None] * 4
            if bad and step in (3, 5):
                batches[2][0] = float("nan")
            threads = [threading.Thread(target=call, args=(at,)) for at in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            optimizer.zero_grad()
            torch.cat(outputs).square().mean().backward()
            optimizer.step()
        if run is not None:
            run.watch.flush()
            assert bool(run.watch.findings) == bad
        return [parameter.detach().clone() for parameter in model.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(weights(False), weights(True), strict=True))


# -- loops that go on ------------------------------------------------------------------------------------------------


def test_a_guarded_loop(watching, line):
    model = net(Log())
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    skipped = 0
    for x in (GOOD, GOOD, BAD, GOOD, GOOD):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if not torch.isfinite(loss):
            skipped += 1
            continue
        loss.backward()
        optimizer.step()
    assert skipped == 1
    run.watch.flush()
    found = {one.id: one for one in run.watch.findings}
    assert set(found) == {"nonfinite-loss", "nonfinite-activation"}
    origin = found["nonfinite-activation"]
    assert (origin.where.op, origin.where.line) == ("aten.log", line("log"))


def test_a_model_that_computes_its_own_loss(watching, line):
    """As those of transformers do: what its loss made is a fault of the loss, not of an activation."""

    class Labelled(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x, labels):
            logits = self.head(x)
            return nn.functional.cross_entropy(logits, labels), logits  # <- own loss

    model = Labelled()
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for label in (0, -100):
        loss, _ = model(GOOD, torch.full((len(GOOD),), label))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run.watch.flush()
    found = {one.id: one for one in run.watch.findings}
    assert "nonfinite-activation" not in found
    assert found["nonfinite-loss"].where.line == line("own loss")
    assert found["nonfinite-loss"].evidence["pattern"] == "no-target-counts"


def test_a_guarded_loop_whose_own_op_is_at_fault(watching, line):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for factor in (1.0, 1.0, 0.0, 1.0):
        optimizer.zero_grad()
        out = model(GOOD).square() * factor
        loss = out.log().mean()  # <- guarded
        if not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
    found = run.origin
    assert (found.id, found.where.op, found.where.line) == ("nonfinite-loss", "aten.log", line("guarded"))


@pytest.mark.parametrize(("skips", "step"), [(False, 3), (True, 2)], ids=["steps", "skips"])
def test_a_step_that_could_not_be_run_again_is_traced_when_it_comes_again(watching, line, skips, step, monkeypatch):
    monkeypatch.setattr("seismograd.replay.replayer.can_trace", lambda: True)  # whatever other tests have compiled

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net(Log())

        def forward(self, x):
            x.mul_(0.5)
            return self.net(x)

    model = Model()
    optimizer = Safe(model.parameters(), lr=0.01)
    run = watching(model, optimizer)
    for x in (GOOD, BAD, GOOD, BAD, GOOD):
        optimizer.zero_grad()
        loss = model(x.clone()).square().mean()
        loss.backward()
        if skips and not torch.isfinite(loss):
            continue
        optimizer.step()
    assert any("in place" in note and "traced" in note for note in run.notes)
    assert (run.origin.where.op, run.origin.where.line) == ("aten.log", line("log"))
    assert run.origin.step == step


@faults
def test_a_reading_that_comes_a_step_late(watching, line, fault):
    model = net(fault[0]())
    optimizer = Safe(model.parameters(), lr=0.01)
    run = watching(model, optimizer, lag=1)
    train(model, optimizer, [GOOD, BAD, GOOD, GOOD])
    assert agrees(run.origin, fault, line)
    assert run.origin.step == 1


# -- finite trouble --------------------------------------------------------------------------------------------------


def found_by(name, *watched, steps, batch):
    """Trains with the squared error, and returns the finding of that name."""
    model, optimizer = watched
    with sg.watch(model, optimizer, sinks=[], strict=True) as watch:
        for at in range(steps):
            x, y = batch(at)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    found = [one for one in watch.findings if one.id == name]
    assert len(found) == 1, [one.message for one in watch.findings]
    return found[0]


def test_the_sample_that_carries_a_spike_of_the_loss():
    def batch(at):
        x = torch.randn(16, 4)
        y = x.sum(1, keepdim=True) + 0.1 * torch.randn(16, 1)
        if at == 80:
            y[11] = 100.0
        return x, y

    model = nn.Linear(4, 1)
    found = found_by("loss-spike", model, SGD(model.parameters(), lr=0.01), steps=100, batch=batch)
    assert found.evidence["samples"][0]["sample"] == 11
    assert found.evidence["samples"][0]["share"] > 0.9
    assert found.evidence["of_samples"] == 16


def test_the_module_in_which_an_exploding_gradient_grows():
    class Steep(nn.Module):
        def forward(self, x):
            return torch.where(x.abs() > 50.0, x * 1e5, x)

    def batch(at):
        x = torch.randn(16, 4)
        return x * (1000.0 if at == 60 else 1.0), torch.zeros(16, 1)

    model = nn.Sequential(nn.Linear(4, 4), Steep(), nn.Linear(4, 1))
    found = found_by("gradient-explosion", model, SGD(model.parameters(), lr=1e-9), steps=64, batch=batch)
    assert found.evidence["largest_gain"]["module"] == "1"
    assert found.evidence["largest_gain"]["gain"] > 100.0


def test_an_evaluation_and_a_failed_call_while_steps_are_traced():
    model, now = net(nn.Identity()), [0]
    optimizer = Safe(model.parameters(), lr=0.1)

    def averaged(parameter):  # as an all-reduce does it: no second run shows where the NaN is from
        if now[0] == 2:
            parameter.grad.fill_(float("nan"))
            now[0] += 1

    model[0].weight.register_post_accumulate_grad_hook(averaged)
    with sg.watch(model, optimizer, sinks=[], strict=True) as watch:
        for step in range(6):
            now[0] = step
            optimizer.zero_grad()
            model(GOOD).square().mean().backward()
            optimizer.step()
            assert (watch._loop._replayer._live is not None) == (step >= 2)
            with torch.no_grad():
                model(GOOD)
            with contextlib.suppress(ValueError):
                nn.Sequential(model, Bouncing())(GOOD)
    assert [finding.id for finding in watch.findings] == ["nonfinite-gradient"]
