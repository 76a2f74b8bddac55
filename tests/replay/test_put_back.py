"""A run in which a replay took place goes on as if it had not: everything of torch's and Python's is put back."""

from __future__ import annotations

import contextlib
import copy
import logging
import random
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.fx.traceback
from torch import nn
from torch.optim import SGD, AdamW
from torch.utils.checkpoint import checkpoint

import seismograd as sg
from seismograd.sinks import Memory

STEPS, SICK = 8, (3, 5)


class Everything(nn.Module):
    """Changes about everything that a forward pass may change, and is bad where its input is 0."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.inner = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.3)
        self.scale = nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, 1)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("replaced", torch.zeros(4))
        self.calls, self.last, self.log = 0, None, {"calls": 0}
        self.free = torch.zeros(4)

    def forward(self, x):
        self.calls += 1
        self.log["calls"] += 1
        self.last = x.detach()
        self.free.add_(1.0)
        self.seen.add_(x.detach().sum(0).nan_to_num())
        self.replaced = self.replaced + 1.0
        noise = random.random() + float(np.random.rand()) + torch.rand(())
        h = self.norm(self.inner(x)) + self.frozen(x) * noise
        y = self.fault(x * self.scale)
        return self.head(self.drop(h) + checkpoint(self.drop, y, use_reentrant=False))


def state_of(model, optimizer):
    """Everything that a run leaves behind, in plain values."""
    hooks = [
        (name, key, len(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key.endswith("_hooks")
    ]
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "versions": {name: p._version for name, p in [*model.named_parameters(), *model.named_buffers()]},
        "gradient versions": {n: None if p.grad is None else p.grad._version for n, p in model.named_parameters()},
        "free": (model.free.clone(), model.free._version) if hasattr(model, "free") else None,
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "training": {name: module.training for name, module in model.named_modules()},
        "hooks": hooks,
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "counted": (getattr(model, "calls", 0), dict(getattr(model, "log", {}))),
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "process": process(),
    }


def process():
    return {
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "cache": torch.is_autocast_cache_enabled(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "format_stack": torch.fx.traceback.format_stack,
        "call": nn.Module.__call__,
        "engine": torch.autograd._engine_run_backward,
        "grad": torch.is_grad_enabled(),
        "streams": (sys.stdout, sys.stderr),
        "warnings": (warnings.showwarning, list(warnings.filters)),
        "logging": logging.root.manager.disable,
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "saved tensors hooks": torch._C._autograd._top_saved_tensors_default_hooks(False),
    }


def assert_same(one, other, path=""):
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for name in one:
            assert_same(one[name], other[name], f"{path}[{name!r}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for at, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_same(first, second, f"{path}[{at}]")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, path
        assert one.detach().numpy().tobytes() == other.detach().numpy().tobytes(), path
    elif isinstance(one, np.ndarray):
        assert one.tobytes() == other.tobytes(), path
    else:
        assert one is other or one == other, path


FAULTS = {"forward": torch.log, "backward": torch.sqrt}


def train(fault, watched, steps=STEPS, model=None, after=None):
    """Skips the updates of bad steps, as careful loops do, and so goes on after them."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = model or Everything(FAULTS[fault])
    optimizer = AdamW(model.parameters(), lr=1e-3)
    memory = Memory(limit=100)
    run = sg.watch(model, optimizer, sinks=[memory], strict=True) if watched else None
    states = []
    for at in range(steps):
        x = torch.rand(6, 4) + 0.5
        if at in SICK:
            x[2, 1] = 0.0
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        bad = not all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
        assert bad == (at in SICK)
        if watched:
            run.flush()
        if not bad:
            optimizer.step()
        elif watched:
            run.observe(loss)  # the moment at which it is read, and so replayed
            run.flush()
        if after is not None:
            after(at)
        states.append(state_of(model, optimizer))
    if run is not None:
        run.close()
    return states, state_of(model, optimizer), memory


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_with_replays_is_bit_identical(fault):
    plain, plain_end, _ = train(fault, False)
    before = process()
    watched, watched_end, memory = train(fault, True)
    assert [finding.where.op for finding in memory.findings if "origin" in finding.evidence]  # it did take place
    for one, other in zip(plain, watched, strict=True):
        for state in (one, other):
            state.pop("process")  # while watched, patches are set
        assert_same(one, other)
    assert_same(plain_end, watched_end)
    assert_same(before, process())


@pytest.mark.parametrize("fault", FAULTS)
def test_steps_that_are_taken_in_spite_of_it_are_identical_too(fault):
    def run(watched):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = Everything(FAULTS[fault])
        optimizer = SGD(model.parameters(), lr=1e-3, momentum=0.9)
        with sg.watch(model, optimizer, sinks=[], strict=True) if watched else contextlib.nullcontext() as watch:
            for at in range(4):
                x = torch.rand(6, 4) + 0.5
                x[2, 1] *= at != 2
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            if watched:
                assert any("origin" in finding.evidence for finding in watch.findings)
        return state_of(model, optimizer)

    assert_same(run(False), run(True))


class Moody(Everything):
    """Its second run ends in an exception of the test's choice."""

    def __init__(self, fault, error, late):
        super().__init__(fault)
        self.error, self.late = error, late
        self.quiet = True

    def forward(self, x):
        again = not self.quiet and sys.stdout is not TRUE_STDOUT[0]  # only a second run has its output held back
        if again and not self.late:
            raise self.error
        self.free.add_(1.0)
        out = super().forward(x)
        if again:
            self.train(False)
            self.scale.requires_grad_(False)
            self.extra = 1
            torch.manual_seed(123)
            with torch.no_grad():
                self.scale.add_(1.0)
                self.head.weight.zero_()
            self.head.weight.grad = None
            self.register_forward_hook(lambda *_: None)
            raise self.error
        return out


TRUE_STDOUT = [None]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("fault", FAULTS)
def test_all_is_put_back_when_the_second_run_raises(fault, late):
    def run(watched):
        torch.manual_seed(0)
        model = Moody(FAULTS[fault], RuntimeError("again?"), late)
        model.quiet = not watched
        TRUE_STDOUT[0] = sys.stdout
        return train(fault, watched, model=model)

    (plain, plain_end, _), (watched, watched_end, memory) = run(False), run(True)
    assert any("again?" in str(finding.evidence.get("note")) for finding in memory.findings)
    for one, other in zip([*plain, plain_end], [*watched, watched_end], strict=True):
        for state in (one, other):
            state.pop("process")
            state.pop("gradient versions")  # the next steps are traced: autograd copies what others hold
        assert_same(one, other)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_all_is_put_back_when_the_second_run_is_interrupted(late):
    error = KeyboardInterrupt()
    torch.manual_seed(0)
    TRUE_STDOUT[0] = sys.stdout
    model = Moody(torch.log, error, late)
    model.quiet = False
    optimizer = SGD(model.parameters(), lr=0.1)
    before = process()
    with sg.watch(model, optimizer, sinks=[], strict=True):
        x = torch.ones(6, 4)
        x[2, 1] = 0.0
        model(x).square().mean().backward()
        expected = state_of(model, optimizer)
        with pytest.raises(type(error)):
            optimizer.step()
        now = state_of(model, optimizer)
        for state in (expected, now):
            for name in ("anomaly", "format_stack"):  # lines may be noted again, or not
                state["process"].pop(name)
        assert_same(expected, now)
        optimizer.zero_grad()  # whoever catches it may go on
        model.quiet = True
        model(x + 1).square().mean().backward()
        optimizer.step()
    assert_same(before, process())


def test_a_warning_that_was_shown_is_not_shown_again(capsys):
    """`catch_warnings` around the second run would reset the registries of all modules."""

    def warns(x):
        warnings.warn("said once", stacklevel=1)
        return torch.log(x)

    def run(watched):
        model = nn.Sequential(nn.Linear(4, 4))
        optimizer = SGD(model.parameters(), lr=0.0)
        globals().pop("__warningregistry__", None)
        with sg.watch(model, optimizer, sinks=[], strict=True) if watched else contextlib.nullcontext():
            for _ in range(4):
                optimizer.zero_grad()
                warns(model(torch.ones(2, 4)) * 0).square().mean().backward()
                optimizer.step()
        return capsys.readouterr().err.count("said once")

    filters = list(warnings.filters)
    warnings.resetwarnings()
    warnings.simplefilter("default")
    show = warnings.showwarning
    try:
        warnings.showwarning = lambda message, *_, **__: print(message, file=sys.stderr)
        assert run(False) == run(True) == 1
    finally:
        warnings.showwarning = show
        warnings.filters[:] = filters
        warnings._filters_mutated()


def test_the_users_anomaly_mode_stays_as_it_is(watching):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    with pytest.warns(UserWarning, match="Anomaly"):
        mode = torch.autograd.detect_anomaly(check_nan=False)
    with mode:
        for x in (torch.ones(2, 4), torch.zeros(2, 4) / 0):
            optimizer.zero_grad()
            model(x).mean().backward()
            assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, False)
            optimizer.step()
            assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, False)
    assert run.origin.id == "nonfinite-input"
    run.watch.close()
    assert not torch.is_anomaly_enabled()


def test_anomaly_mode_that_the_user_turns_on_midway_stays_on(watching):
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    torch.autograd.set_detect_anomaly(True)
    try:
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, True)
        run.watch.close()
        assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, True)
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_inputs_are_left_as_they_are(watching):
    """Gradients of the inputs, hooks on them, their versions."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    seen = []
    x = torch.zeros(2, 4, requires_grad=True)
    x.register_hook(seen.append)
    y = torch.log(model[0](x) * 0)
    out = model[1](y)
    out.mean().backward()
    gradient, version = x.grad, x._version
    optimizer.step()
    assert run.origin.where.op == "aten.log"
    assert x.grad is gradient
    assert x._version == version
    assert len(seen) == 1


def test_lists_that_a_model_keeps_are_the_users_own_affair_but_dicts_and_attributes_come_back(watching):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.cache, self.state = nn.Linear(4, 1), {}, None

        def forward(self, x):
            assert "x" not in self.cache, "only once a step"
            self.cache["x"] = x
            self.state = x * 2
            return self.head(torch.log(x))

    model = Model()
    optimizer = SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    x = torch.zeros(2, 4)
    model(x).mean().backward()
    state = model.state
    model.cache.clear()
    optimizer.step()
    assert run.origin.where.op == "aten.log"
    assert model.cache == {}
    assert model.state is state


def test_a_second_run_holds_nothing_that_it_made(watching):
    """Whatever the second run stored in the model is gone with it."""
    import gc
    import weakref

    kept = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.last = nn.Linear(4, 1), None

        def forward(self, x):
            self.last = torch.log(x)
            kept.append(weakref.ref(self.last))
            return self.head(self.last)

    model = Model()
    optimizer = SGD(model.parameters(), lr=0.1)
    run = watching(model, optimizer)
    model(torch.zeros(2, 4)).mean().backward()
    optimizer.step()
    assert run.origin
    gc.collect()
    assert len(kept) > 1
    assert [one() is not None for one in kept] == [True] + [False] * (len(kept) - 1)
