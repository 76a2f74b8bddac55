"""Contexts nest, may be entered again, and put back what they changed, also on exceptions."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
import torch
from torch import nn
from torch.optim import optimizer as hooks

import seismograd as sg


@pytest.fixture
def debugger(tmp_path):
    return sg.PyTorchDebugger(log_dir=tmp_path)


def bad_backward():
    weight = torch.zeros(2, requires_grad=True)
    (torch.sqrt(weight) * 0).sum().backward()


def step_hooks():
    return len(hooks._global_optimizer_pre_hooks) + len(hooks._global_optimizer_post_hooks)


def test_one_context_object_may_be_entered_again_while_it_is_open(debugger):
    detection = debugger.anomaly_detection()
    with detection:
        with detection:
            with debugger.anomaly_detection(enabled=False):
                assert not torch.is_anomaly_enabled()
            assert torch.is_anomaly_enabled()
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()
    with detection:
        assert torch.is_anomaly_enabled()


def test_contexts_are_decorators_too(debugger):
    @debugger.anomaly_detection()
    def inside():
        return torch.is_anomaly_enabled()

    assert inside()
    assert not torch.is_anomaly_enabled()


def test_the_user_s_own_anomaly_mode_comes_back(debugger):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        with debugger.anomaly_detection(enabled=False):
            assert not torch.is_anomaly_enabled()
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()


@pytest.mark.filterwarnings("ignore:Error detected in SqrtBackward0")
def test_what_anomaly_detection_raises_is_an_event_once(debugger):
    with pytest.raises(RuntimeError, match="nan"), debugger.anomaly_detection(), debugger.anomaly_detection():
        bad_backward()
    assert [event["event_type"] for event in debugger.debug_events] == ["nonfinite_gradient"]
    assert debugger.findings[0].where.op == "aten.sqrt"
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize("name", ["anomaly_detection", "profiling", "memory_tracking", "debug_context"])
def test_everything_is_put_back_when_the_block_raises(tmp_path, name):
    debugger = sg.PyTorchDebugger(debug_mode=sg.DebugMode.FULL_DEBUG, log_dir=tmp_path)
    before = step_hooks()
    context = getattr(debugger, name)()
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), context, context:
            raise error
    assert not torch.is_anomaly_enabled()
    assert step_hooks() == before
    assert not torch.autograd._profiler_enabled()
    assert not debugger.get_debug_summary()["profiling_active"]
    with context:
        pass


def test_contexts_that_are_switched_off_do_nothing(tmp_path):
    debugger = sg.create_pytorch_debugger(
        enable_anomaly_detection=False, enable_profiling=False, enable_memory_tracking=False, log_dir=tmp_path
    )
    with debugger.anomaly_detection(), debugger.profiling(tmp_path / "p.json"), debugger.memory_tracking():
        assert not torch.is_anomaly_enabled()
        assert not torch.autograd._profiler_enabled()
    assert debugger.memory_snapshots == []
    with debugger.anomaly_detection(enabled=True):
        assert torch.is_anomaly_enabled()


def test_all_of_them_at_once(tmp_path):
    debugger = sg.PyTorchDebugger(debug_mode="full_debug", log_dir=tmp_path)
    model = nn.Linear(4, 2)
    trace = tmp_path / "p.json"
    with debugger.anomaly_detection(), debugger.profiling(output_file=trace), debugger.memory_tracking():
        model(torch.ones(2, 4)).sum().backward()
        with debugger.debug_context("inner"):
            model(torch.ones(2, 4)).sum().backward()
    assert json.loads(trace.read_text())["traceEvents"]
    assert debugger.debug_metrics[-1].name == "inner"
    assert debugger.profiles[0].verdict


def test_memory_is_followed_from_step_to_step(debugger, monkeypatch):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times = iter(range(100))
    monkeypatch.setattr("seismograd.debugger.contexts.perf_counter", lambda: next(times))
    with debugger.memory_tracking():
        for _ in range(3):
            optimizer.step()
    assert [snapshot["label"] for snapshot in debugger.memory_snapshots] == ["begin", "step", "step", "step", "end"]


def leaky(model, steps, each):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        history.append(each(loss))
    return history


def test_a_leak_inside_of_memory_tracking_is_named(debugger):
    with debugger.memory_tracking():
        leaky(nn.Linear(4, 2), 80, lambda loss: loss)
    finding = next(finding for finding in debugger.findings if finding.id == "memory-leak")
    assert "history" in finding.message
    assert finding.where.code == "history.append(each(loss))"
    assert [event["event_type"] for event in debugger.debug_events].count("memory_leak") == 1


def test_numbers_that_are_kept_are_no_leak(debugger):
    with debugger.memory_tracking():
        leaky(nn.Linear(4, 2), 80, lambda loss: loss.item())
    assert debugger.findings == []


def test_a_leak_from_call_to_call_of_profile_memory_is_named(debugger):
    model, kept = nn.Linear(4, 2), []
    for at in range(80):
        kept.append(model(torch.randn(8, 4)).mean())
        told = debugger.profile_memory(f"batch {at}")
    assert any("kept" in leak for leak in told["memory_leaks"])


def test_an_operation_tells_of_bad_gradients_that_a_step_used(tmp_path):
    debugger = sg.PyTorchDebugger(debug_mode=sg.DebugMode.GRADIENT_CHECKING, log_dir=tmp_path)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    with debugger.debug_context("step"):
        (model(torch.ones(2, 4)).sum() * math.inf).backward()
        optimizer.step()
    assert any("weight" in line and "Inf" in line for line in debugger.debug_metrics[-1].gradient_anomalies)
    with debugger.debug_context("checked"):
        debugger.check_gradients(model)
    assert debugger.debug_metrics[-1].gradient_anomalies


def test_what_an_operation_raises_is_tracked_and_raised_on(debugger):
    with pytest.raises(ValueError, match="boom"), debugger.debug_context("step"):
        raise ValueError("boom")
    assert debugger.debug_metrics[-1].error == "ValueError: boom"
    record = debugger.error_system.error_tracker.errors[-1]
    assert (record.message, record.context["operation"]) == ("boom", "step")


def test_functions_and_coroutines_are_operations():
    @sg.debug_operation(debug_mode="anomaly_detection")
    async def waits():
        await asyncio.sleep(0)
        return torch.is_anomaly_enabled()

    @sg.debug_operation
    def runs(x, *, y=1):
        """Adds."""
        return x + y

    assert asyncio.run(waits())
    assert runs(1, y=2) == 3
    assert runs.__doc__ == "Adds."
    assert runs.debugger.debug_metrics[-1].name == "runs"
    shared = sg.PyTorchDebugger()
    sg.debug_operation(debugger=shared, name="mine")(lambda: None)()
    assert shared.debug_metrics[-1].name == "mine"
    with pytest.raises(TypeError, match="debug_operation"):
        sg.debug_operation(3)


# -- sessions ----------------------------------------------------------------------------------------------------


def train(model, steps=3, scale=1.0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 4)
    for _ in range(steps):
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()) * scale).backward()
        optimizer.step()


def test_a_session_that_raises_leaves_nothing_behind():
    from seismograd import patches

    before = step_hooks()
    with pytest.raises(ValueError, match="mine"), sg.debug_training_session(nn.Linear(4, 2)):
        raise ValueError("mine")
    assert patches.listeners() == ()
    assert step_hooks() == before


def test_a_session_tells_its_findings_to_the_debugger(capsys):
    model = nn.Linear(4, 2)
    with sg.debug_training_session(model, level="basic") as debugger:
        train(model, scale=math.nan)
    assert any(event["event_type"].startswith("nonfinite") for event in debugger.debug_events)
    assert debugger.debug_report()["run"]["status"] == "critical"
    assert "nonfinite" in capsys.readouterr().err


def test_a_session_without_a_model_is_the_contexts_alone():
    with sg.debug_training_session(enable_anomaly_detection=True, enable_memory_tracking=False) as debugger:
        assert torch.is_anomaly_enabled()
    assert debugger.memory_snapshots == []


def test_debug_context_detects_and_watches_a_model_if_it_is_given():
    model = nn.Linear(4, 2)
    with sg.debug_context("advanced", model=model) as debugger:
        assert torch.is_anomaly_enabled()
        train(model)
    assert debugger.level is sg.DebugLevel.ADVANCED
    assert debugger.get_debug_summary()["total_anomalies"] == 0


def test_a_session_trains_as_without_it():
    models = []
    for inside in (False, True):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
        if inside:
            with sg.debug_training_session(model, enable_anomaly_detection=True, enable_profiling=True):
                train(model, steps=5)
        else:
            train(model, steps=5)
        models.append(model)
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))
