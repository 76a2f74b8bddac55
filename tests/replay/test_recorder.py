"""Healthy steps: what is kept of them, for how long, and that nobody notices."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
import torch.fx.traceback
from torch import nn
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

import seismograd as sg
from seismograd.replay import recorder


def net():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def batch():
    return torch.randn(6, 4)


@pytest.fixture
def model():
    return net()


@pytest.fixture
def optimizer(model):
    return SGD(model.parameters(), lr=0.01)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


# -- memory ----------------------------------------------------------------------------------------------------------


def test_inputs_outputs_and_losses_die_with_the_next_step(watching, model, optimizer):
    watching(model, optimizer)
    alive = []
    for at in range(4):
        x = batch()
        optimizer.zero_grad()
        out = model(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        alive.append([weakref.ref(one) for one in (x, out, loss)])
        del x, out, loss
        if at:
            gc.collect()
            assert [ref() for ref in alive[at - 1]] == [None] * 3


def test_nothing_is_held_after_close(model, optimizer):
    run = sg.watch(model, optimizer, sinks=[], strict=True)
    x = batch()
    loss = step(model, optimizer, x)
    refs = [weakref.ref(x), weakref.ref(loss), weakref.ref(model), weakref.ref(optimizer)]
    run.close()
    del x, loss
    gc.collect()
    assert [ref() is None for ref in refs[:2]] == [True, True]
    assert not torch.is_anomaly_enabled()


def test_a_bad_step_is_not_held_after_the_next_one(watching, model, optimizer):
    run = watching(model, optimizer)
    x = batch() / 0
    refs = [weakref.ref(x), weakref.ref(step(model, optimizer, x))]
    del x
    assert run.origin
    for p in model.parameters():
        p.grad = None
    step(model, optimizer, batch())
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


@pytest.mark.parametrize("backward", [True, False], ids=["accumulates", "only calls"])
def test_a_long_accumulation_is_bounded(watching, model, optimizer, backward):
    run = watching(model, optimizer)
    refs = []
    for _ in range(300):
        x = batch()
        out = model(x)
        if backward:
            out.square().mean().backward()
        refs.append(weakref.ref(x))
        del x, out
    gc.collect()
    alive = sum(ref() is not None for ref in refs)
    assert alive <= recorder._MOST_CALLS + 1
    assert len(run.calls) <= recorder._MOST_CALLS
    assert len(run.glues) <= recorder._MOST_CALLS


def test_bytes_are_bounded(watching, model, optimizer, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_BYTES", 100)
    run = watching(model, optimizer)
    for _ in range(6):
        (model(batch()).square().mean() / 6).backward()
    kept = [output.tensor for call in run.calls for output in call.outputs if output.tensor is not None]
    assert sum(one.numel() * one.element_size() for one in kept) <= 100
    optimizer.step()


def test_an_output_too_large_to_be_kept_is_still_traced(watching, optimizer, model, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_BYTES", 0)

    class Log(nn.Module):
        def forward(self, x):
            return torch.log(x * 0)

    model[1] = Log()
    run = watching(model, optimizer)
    step(model, optimizer, batch())
    assert run.origin.where.op == "aten.log"


def test_evaluation_is_not_recorded(watching, model, optimizer):
    run = watching(model, optimizer)
    step(model, optimizer, batch())
    model.eval()
    x = batch()
    with torch.no_grad():
        model(x)
    with torch.inference_mode():
        model(x)
    assert all(call.args[0] is not x for call in run.calls)
    model.train()
    step(model, optimizer, batch())


def test_nothing_is_recorded_on_steps_that_are_not_read(watching, model, optimizer, monkeypatch):
    run = watching(model, optimizer)
    for _ in range(5):
        step(model, optimizer, batch())
    governor = run.watch._loop.governor
    monkeypatch.setattr(governor, "stepped", lambda *_: None)
    governor.reads = False
    step(model, optimizer, batch())  # with it the step before is over
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(batch()).square().mean()
        assert not torch.is_anomaly_enabled()
        assert loss.grad_fn.metadata == {}
        loss.backward()
        optimizer.step()
    assert run.calls == []
    assert run.glues == []


# -- what else people do with a model --------------------------------------------------------------------------------


def test_a_watched_model_pickles_copies_and_saves(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer, batch())
    x = batch()
    expected = model(x)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert torch.equal(twin(x), expected)
    file = io.BytesIO()
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)["model"]
    assert torch.equal(loaded(x), expected)
    assert not any(vars(each).get("_forward_hooks") for each in model.modules())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_watched_model_can_be_scripted_and_traced(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer, batch())
    x = batch()
    expected = model(x)
    assert torch.equal(torch.jit.script(model)(x), expected)
    assert torch.equal(torch.jit.trace(model, (x,))(x), expected)


def test_a_watched_model_can_be_exported_and_traced_by_fx(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer, batch())
    x = batch()
    expected = model(x)
    assert torch.equal(torch.export.export(model, (x,)).module()(x), expected)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), expected)


def test_a_watched_model_compiles_into_one_graph(watching, model, optimizer):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    run = watching(model, optimizer)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(4):
        step(compiled, optimizer, torch.ones(6, 4))
    assert len(graphs) == 1
    assert run.watch.findings == []


def test_functional_transforms_work_on_a_watched_model(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer, batch())
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).square().mean()

    x = batch()
    gradients = torch.func.grad(loss)(parameters, x)
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x.unsqueeze(1))
    assert torch.allclose(gradients["0.weight"], each["0.weight"].mean(0), atol=1e-6)


def test_hooks_of_others_that_replace_the_call_are_left_alone(model, optimizer):
    original = nn.Module.__call__
    run = sg.watch(model, optimizer, sinks=[], strict=True)
    ours = nn.Module.__call__

    def theirs(self, *args, **kwargs):
        return ours(self, *args, **kwargs)

    nn.Module.__call__ = theirs
    try:
        step(model, optimizer, batch())
        run.close()
        assert nn.Module.__call__ is theirs
        step(model, optimizer, batch())
    finally:
        nn.Module.__call__ = original


# -- lines -----------------------------------------------------------------------------------------------------------


def test_tracebacks_that_torch_asks_for_itself_stay_lists_of_text(watching, model, optimizer):
    run = watching(model, optimizer)
    step(model, optimizer, batch())
    loss = model(batch()).square().mean()
    assert "traceback_" in loss.grad_fn.metadata, "lines are noted"
    assert not torch.is_anomaly_enabled(), "which is none of the user's business"
    "".join(loss.grad_fn.metadata["traceback_"])  # as torch does, if backward raises
    loss.backward()
    optimizer.step()
    run.watch.close()
    loss = model(batch()).square().mean()
    assert "traceback_" not in loss.grad_fn.metadata


def test_an_error_in_backward_is_the_users_own(watching, model, optimizer):
    run = watching(model, optimizer)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("mine")

    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            Fails.apply(model(batch())).mean().backward()
    step(model, optimizer, batch())
    assert run.watch.findings == []


def test_an_error_in_forward_is_the_users_own(watching, model, optimizer):
    run = watching(model, optimizer)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shape"):
            model(torch.ones(3, 5))
    model(batch()).square().mean().backward()
    assert len(run.calls) == 1
    optimizer.step()
    assert run.calls == [], "nothing is kept beyond the step"
    assert run.watch.findings == []


# -- cost ------------------------------------------------------------------------------------------------------------


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for a device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name in {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("replay", [True, False])
def test_a_healthy_step_waits_no_more_often_for_being_recorded(model, optimizer, monkeypatch, replay):
    """The loop hides its own ops from modes: here they are to be seen."""
    from seismograd import loop

    monkeypatch.setattr(loop, "_modes", lambda: False)
    run = sg.watch(model, optimizer, sinks=[], strict=True, replay=replay, level="basic")
    for _ in range(3):
        step(model, optimizer, batch())
    with Waits() as waits:
        for _ in range(4):
            optimizer.zero_grad()
            model(batch()).square().mean().backward()
        recorded = waits.count
        optimizer.step()
    run.close()
    assert recorded == 0


def test_a_step_is_recorded_by_reference(watching, model, optimizer):
    run = watching(model, optimizer)
    x = batch()
    out = model(x)
    (call,) = run.calls
    assert call.args[0] is x
    assert call.outputs[0].tensor.data_ptr() == out.data_ptr()
    out.mean().backward()
    optimizer.step()


def test_a_loss_that_is_kept_does_not_hold_its_model() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=(), strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 2)).square().mean()
            loss.backward()
            optimizer.step()
    held = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert loss.grad_fn is not None
    assert held() is None
