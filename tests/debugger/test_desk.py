"""The front desk: checks, passes, memory, events, reports."""

from __future__ import annotations

import gc
import json
import logging
import math
import mmap
import pickle
import weakref

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.debugger.gradients import GradientReport


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture
def batch():
    torch.manual_seed(1)
    x = torch.randn(16, 4)
    return x, (x[:, 0] > 0).long()


@pytest.fixture
def debugger(tmp_path):
    return sg.PyTorchDebugger(log_dir=tmp_path)


def backward(model, batch, scale=1.0):
    model.zero_grad()
    (nn.functional.cross_entropy(model(batch[0]), batch[1]) * scale).backward()


def types(debugger):
    return [event["event_type"] for event in debugger.debug_events]


# -- gradients ---------------------------------------------------------------------------------------------------


def test_the_second_argument_is_the_loss_or_the_threshold(debugger, model, batch):
    backward(model, batch)
    assert debugger.check_gradients(model, 1e-9)["gradient_anomalies"]
    assert debugger.check_gradients(model, torch.tensor(0.7))["gradient_anomalies"] == []
    assert debugger.check_gradients(model, torch.tensor(0.7), 1e-9)["gradient_anomalies"]


def test_without_a_threshold_a_norm_is_judged_by_those_before(debugger, model, batch):
    for _ in range(30):
        backward(model, batch)
        assert debugger.check_gradients(model)["gradient_anomalies"] == []
    backward(model, batch, scale=1e6)
    report = debugger.check_gradients(model)
    assert report["gradient_anomalies"]
    assert "gradient_explosion" in types(debugger)


def test_two_models_are_judged_apart(debugger, model, batch):
    large = nn.Linear(4, 2)
    for _ in range(30):
        backward(model, batch)
        backward(large, batch, scale=1e5)
        assert not debugger.check_gradients(model)["gradient_anomalies"]
        assert not debugger.check_gradients(large)["gradient_anomalies"]


def test_a_model_without_gradients_has_a_norm_of_zero(debugger, model):
    report = debugger.check_gradients(model)
    assert report == 0.0
    assert report["parameter_stats"] == {}
    assert debugger.get_debug_summary()["total_anomalies"] == 0


def test_a_gradient_report_is_a_number_with_evidence():
    report = GradientReport(1.5, ["a: 1 NaN"], {})
    assert report + 1 == 2.5
    assert json.dumps(report) == "1.5"
    assert pickle.loads(pickle.dumps(report))["gradient_anomalies"] == ["a: 1 NaN"]
    assert set(report) == set(report.keys()) == {"gradient_norm", "gradient_anomalies", "parameter_stats"}
    assert report.get("other", 3) == 3
    with pytest.raises(KeyError, match="gradient_norm"):
        report["norm"]


def test_odd_gradients_are_checked(debugger):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 3, sparse=True)
            self.small = nn.Parameter(torch.full((4,), 60000.0, dtype=torch.half))
            self.turn = nn.Parameter(torch.ones(3, dtype=torch.complex64))
            self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, at):
            return self.table(at).sum() + self.small.float().sum() + self.turn.abs().sum() + self.frozen.sum()

    model = Odd()
    model(torch.tensor([1, 2])).backward()
    report = debugger.check_gradients(model)
    assert set(report["parameter_stats"]) == {"table.weight", "small", "turn"}
    assert report == pytest.approx(math.sqrt(6 + 4 + 3), rel=1e-5)
    assert debugger.check_gradient_vanishing(model) == []


def test_lists_are_in_the_model_s_order_and_bad_gradients_explode(debugger, model, batch):
    backward(model, batch)
    model[2].bias.grad.fill_(math.nan)
    model[0].weight.grad.mul_(1e9)
    assert debugger.check_gradient_explosion(model, threshold=1e3) == ["0.weight", "2.bias"]
    assert debugger.check_gradient_vanishing(model, threshold=1e-30) == []


# -- passes ------------------------------------------------------------------------------------------------------


def test_the_first_bad_layer_is_named(debugger, model, batch):
    with torch.no_grad():
        model[0].bias[0] = math.inf
    debugger.debug_forward_pass(model, batch[0])
    assert types(debugger)[0] == "nonfinite_activation"
    finding = debugger.findings[0]
    assert (finding.id, finding.where.module) == ("nonfinite-activation", "0")


def test_a_forward_pass_leaves_no_hooks_and_draws_as_a_plain_one(debugger, batch):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
    torch.manual_seed(5)
    plain = model(batch[0])
    torch.manual_seed(5)
    assert torch.equal(debugger.debug_forward_pass(model, batch[0]), plain)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_failing_forward_pass_tells_the_layers_before(debugger, model):
    broken = nn.Sequential(*model, nn.Linear(99, 1))
    with pytest.raises(RuntimeError):
        debugger.debug_forward_pass(broken, torch.ones(2, 4))
    assert [layer["name"] for layer in debugger.forward_layers] == ["0", "1", "2"]
    assert not any(module._forward_hooks for module in broken.modules())


def test_inputs_may_be_arguments_keywords_or_one_dict(debugger):
    class Pair(nn.Module):
        def forward(self, a, b):
            return a + b

    class Taker(nn.Module):
        def forward(self, batch):
            return batch["a"] * 2

    one, two = torch.ones(2), torch.full((2,), 2.0)
    assert debugger.debug_forward_pass(Pair(), (one, two)).tolist() == [3.0, 3.0]
    assert debugger.debug_forward_pass(Pair(), {"b": two, "a": one}).tolist() == [3.0, 3.0]
    assert debugger.debug_forward_pass(Taker(), {"a": two}).tolist() == [4.0, 4.0]


def test_layers_that_are_called_twice_or_hold_parameters_themselves_are_told(debugger):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(self.inner(x)) * self.scale

    debugger.debug_forward_pass(nn.Sequential(Block()), torch.ones(2, 4))
    assert [layer["name"] for layer in debugger.forward_layers] == ["0.inner", "0.inner", "0"]


def test_a_backward_pass_is_told(debugger, model, batch):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    told = debugger.debug_backward_pass(loss)
    assert told["loss"] == pytest.approx(loss.item())
    assert told["gradient_norm"] == pytest.approx(debugger.check_gradients(model), rel=1e-6)
    assert told["tensors"] == 4


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_training_step_is_that_of_a_plain_loop(debugger, model, batch, kind):
    twin = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    twin.load_state_dict(model.state_dict())
    optimizer, other = kind(model.parameters(), lr=0.1), kind(twin.parameters(), lr=0.1)

    def closure():
        other.zero_grad()
        loss = nn.functional.cross_entropy(twin(batch[0]), batch[1])
        loss.backward()
        return loss

    for _ in range(3):
        debugger.debug_training_step(model, *batch, nn.functional.cross_entropy, optimizer)
        other.step(closure)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_a_step_under_a_scaler_is_unscaled_and_what_it_skips_is_no_fault(debugger, model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    plain = debugger.debug_training_step(
        model, *batch, nn.functional.cross_entropy, torch.optim.SGD([nn.Parameter(torch.ones(1))])
    )
    told = debugger.debug_training_step(model, *batch, nn.functional.cross_entropy, optimizer, scaler=scaler)
    assert told["gradient_norm"] == pytest.approx(plain["gradient_norm"], rel=1e-5)
    before = model[0].weight.detach().clone()
    debugger.debug_training_step(
        model, batch[0], batch[1], lambda *_: model(batch[0]).sum() * 1e38, optimizer, scaler=scaler
    )
    assert torch.equal(model[0].weight, before)
    assert scaler.get_scale() == 2.0**15
    assert debugger.get_debug_summary()["total_anomalies"] == 0


# -- memory ------------------------------------------------------------------------------------------------------


def test_snapshots_compare_by_name(debugger):
    debugger.profile_memory("before")
    with mmap.mmap(-1, 64 << 20) as kept:  # not from the heap, which may have room of what others freed
        kept.write(b"\1" * (64 << 20))
        debugger.profile_memory("after")
    told = debugger.compare_memory("before", "after")
    assert told["rss"] > 40_000_000
    assert "rose" in told["words"]
    assert told == debugger.compare_memory(*debugger.memory_snapshots)
    with pytest.raises(KeyError, match="'before'"):
        debugger.compare_memory("befor", "after")


def test_the_memory_of_a_model_counts_what_is_shared_once(debugger):
    tied = nn.Module()
    tied.a, tied.b = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    tied.b.weight = tied.a.weight
    tied.register_buffer("mask", torch.ones(4))
    optimizer = torch.optim.Adam(tied.parameters())
    assert debugger.profile_memory_usage(tied)["total"] == 8 * 8 * 4 + 16
    (tied.a(torch.ones(1, 8)) + tied.b(torch.ones(1, 8))).sum().backward()
    optimizer.step()
    usage = debugger.profile_memory_usage(tied, optimizer)
    assert usage["gradients"] == 256
    assert usage["optimizer"] == 2 * 256 + 4  # both moments, and the count of steps


def test_memory_of_odd_models(debugger):
    lazy, meta = nn.LazyLinear(3), nn.Linear(4, 4, device="meta")
    assert debugger.profile_memory_usage(lazy)["total"] == 0
    assert debugger.profile_memory_usage(meta)["total"] == 0


# -- events ------------------------------------------------------------------------------------------------------


def test_history_is_bounded_and_counts_are_not(tmp_path):
    debugger = sg.PyTorchDebugger(log_dir=tmp_path, history=10)
    for at in range(50):
        debugger.log_debug_event("mine", str(at))
        debugger.analyze_tensor(torch.ones(2), "x")
        debugger.profile_memory("x")
        with debugger.debug_context("o"):
            pass
    assert [event["message"] for event in debugger.debug_events] == [str(at) for at in range(40, 50)]
    assert debugger.get_debug_summary()["event_counts"] == {"mine": 50}
    kept = (debugger.debug_history, debugger.memory_snapshots, debugger.debug_metrics)
    assert [len(each) for each in kept] == [10, 10, 10]


def test_nothing_of_the_user_s_is_kept_alive(debugger, model, batch):
    backward(model, batch)
    debugger.check_gradients(model)
    debugger.debug_forward_pass(model, batch[0])
    tensor = torch.full((3,), math.nan)
    debugger.analyze_tensor(tensor, "mine")
    debugger.log_debug_event("mine", "text", {"tensor": tensor, "model": model})
    gone = weakref.ref(model), weakref.ref(tensor)
    debugger.forward_layers = []
    del model, tensor
    gc.collect()
    assert gone[1]() is None


@pytest.mark.parametrize("method", ["clear_debug_data", "clear_debug_history"])
def test_clearing_forgets_everything(debugger, model, batch, method):
    backward(model, batch, scale=math.inf)
    debugger.check_gradients(model)
    with debugger.debug_context("o"):
        debugger.profile_memory("x")
    assert debugger.get_debug_summary()["total_anomalies"]
    getattr(debugger, method)()
    summary = debugger.get_debug_summary()
    assert summary["total_anomalies"] == summary["total_operations"] == summary["memory"]["snapshots"] == 0
    assert (debugger.debug_events, debugger.findings, list(debugger.debug_history)) == ([], [], [])


def test_repeats_are_one_finding_that_counts(debugger, model, batch):
    backward(model, batch)
    for _ in range(3):
        debugger.check_gradients(model, 1e-9)
    assert [(f.id, f.count) for f in debugger.findings] == [("gradient-explosion", 3)]
    assert debugger.get_debug_summary()["gradient_violations"] == 3
    assert types(debugger).count("gradient_explosion") == 3


class Speaker:
    def __init__(self):
        self.said = []

    def log_info(self, text):
        self.said.append(("info", text))

    def log_warning(self, text):
        self.said.append(("warning", text))

    def log_error(self, text):
        self.said.append(("error", text))


def test_events_reach_any_logger(model, batch, caplog, tmp_path):
    backward(model, batch)
    speaker = Speaker()
    sg.PyTorchDebugger(logger=speaker).check_gradients(model, 1e-9)
    assert speaker.said[0][0] == "warning"
    with caplog.at_level(logging.INFO, logger="mine"):
        sg.PyTorchDebugger(training_logger=logging.getLogger("mine")).log_debug_event("a", "b")
    assert caplog.records
    with sg.create_training_logger({"log_dir": str(tmp_path)}) as events:
        sg.PyTorchDebugger(training_logger=events).check_gradients(model, 1e-9)
    assert events.events[0]["event_type"] == "gradient_explosion"
    with pytest.raises(TypeError, match="log_warning"):
        sg.PyTorchDebugger(logger="mine")


def test_the_report_is_strict_json_and_whole(debugger, model, batch, tmp_path):
    backward(model, batch, scale=math.inf)
    debugger.check_gradients(model)
    with debugger.debug_context("step"):
        pass
    path = debugger.save_debug_report()
    report = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert path.parent == tmp_path
    assert report["run"]["status"] == "critical"
    assert [each["id"] for each in report["violations"]] == ["nonfinite-gradient"]
    assert report["performance"]["operations"][0]["name"] == "step"
    assert sg.PyTorchDebugger().save_debug_report(tmp_path / "deep" / "r.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"level": "loud"}, "basic"),
        ({"debug_mode": "loud"}, "full_debug"),
        ({"history": 0}, "history=0"),
    ],
)
def test_wrong_arguments_are_told(arguments, words):
    with pytest.raises(ValueError, match=words):
        sg.PyTorchDebugger(**arguments)


def test_a_tensor_s_kind_is_checked(debugger):
    with pytest.raises(ValueError, match="activation"):
        debugger.analyze_tensor(torch.tensor([math.nan]), "x", kind="thing")
    with pytest.raises(TypeError, match="list"):
        debugger.analyze_tensor([1.0], "x")
    debugger.analyze_tensor(torch.tensor(math.nan), "loss", kind="loss")
    assert types(debugger) == ["nonfinite_loss"]
