"""The step profiler and the anomaly hook, on torch models and on plain arrays."""

import gc
import math
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from seismograd import steps
from seismograd.steps import AnomalyDetectionHook, StepProfiler


def plain(gradients, lr=0.1):
    return SimpleNamespace(parameters=[SimpleNamespace(grad=g) for g in gradients]), SimpleNamespace(lr=lr)


def kinds(hook, model, optimizer, loss=1.0, step=0):
    return [anomaly.kind for anomaly in hook.analyze_training_step(step, 0.01, model, optimizer, loss)]


def torch_pair(gradient, dtype=torch.float32):
    parameter = nn.Parameter(torch.zeros(2, 2, dtype=dtype))
    parameter.grad = gradient
    model = nn.Module()
    model.weight, model.frozen = parameter, nn.Parameter(torch.zeros(1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("value", "expected"), [(5.0, []), (5.001, ["gradient_norm"]), (math.nan, ["gradient_nonfinite"])]
)
def test_the_gradient_limit_on_arrays_and_tensors(value, expected):
    hook = AnomalyDetectionHook(grad_norm_threshold=10.0)
    assert kinds(hook, *plain([np.full((2, 2), value), None])) == expected
    assert kinds(hook, *torch_pair(torch.full((2, 2), value))) == expected


def test_an_infinite_gradient_is_not_merely_large():
    hook = AnomalyDetectionHook()
    assert kinds(hook, *torch_pair(torch.full((2, 2), math.inf))) == ["gradient_nonfinite"]
    huge = torch.full((2, 2), 3e38)
    assert kinds(hook, *torch_pair(huge)) == ["gradient_norm"], "finite, though its square overflows"


def test_bf16_and_sparse_gradients():
    hook = AnomalyDetectionHook(grad_norm_threshold=10.0)
    assert kinds(hook, *torch_pair(torch.full((2, 2), 6.0).bfloat16(), torch.bfloat16)) == ["gradient_norm"]
    embedding = nn.Embedding(10, 4, sparse=True)
    (embedding(torch.tensor([1, 1])) * 100).sum().backward()
    assert kinds(hook, embedding, torch.optim.SGD(embedding.parameters(), lr=0.1)) == ["gradient_norm"]


@pytest.mark.parametrize("loss", [math.nan, math.inf, np.float32("nan"), torch.tensor(math.nan, requires_grad=True)])
def test_a_loss_that_is_not_finite(loss):
    assert kinds(AnomalyDetectionHook(), *plain([np.ones(1)]), loss=loss) == ["loss_nonfinite"]


def test_no_gradients_is_no_anomaly():
    model = nn.Linear(2, 2)
    assert kinds(AnomalyDetectionHook(grad_norm_threshold=0), model, torch.optim.SGD(model.parameters(), lr=1.0)) == []


@pytest.mark.parametrize(("rates", "expected"), [([1.0, 1.125], []), ([1.0, 1.126], [1]), ([1.0, 0.874], [1])])
def test_a_change_of_the_learning_rate_on_its_limit(rates, expected):
    hook = AnomalyDetectionHook(lr_change_threshold=0.125)
    model, optimizer = plain([])
    seen = []
    for step, optimizer.lr in enumerate(rates):
        seen += [facts["step"] for _, facts in hook.analyze_training_step(step, 0.01, model, optimizer, 1.0)]
    assert seen == expected


def test_each_group_has_its_own_history():
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([{"params": [first], "lr": torch.tensor(0.1)}, {"params": [second], "lr": 0.001}])
    hook, model = AnomalyDetectionHook(), nn.Module()
    assert kinds(hook, model, optimizer) == []
    optimizer.param_groups[1]["lr"] = 0.01
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 5.0})
    (anomaly,) = hook.analyze_training_step(1, 0.01, model, optimizer, 1.0)
    assert anomaly.facts["group"] == 1
    assert (anomaly.facts["previous_lr"], anomaly.facts["lr"]) == (0.001, 0.01)
    assert anomaly.facts["change_ratio"] == pytest.approx(9)


def test_two_optimizers_do_not_mix_even_when_one_takes_the_place_of_the_other():
    hook, model = AnomalyDetectionHook(), nn.Module()
    for lr in (0.1, 0.01, 0.001, 0.1, 0.5) * 5:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
        assert kinds(hook, model, optimizer) == []
        del optimizer
        gc.collect()
    assert len(hook._rates) <= 1


def test_callbacks_get_the_facts_and_one_that_fails_does_not_stop_the_others():
    hook, seen = AnomalyDetectionHook(grad_norm_threshold=1.0), []

    def broken(kind, facts):
        raise RuntimeError("no disk")

    hook.register_anomaly_callback(broken)
    hook.register_anomaly_callback(lambda kind, facts: seen.append((kind, facts)))
    model, optimizer = plain([np.array([3.0, 4.0])])
    with pytest.warns(UserWarning, match="broken failed on gradient_norm: no disk"):
        hook.after_step(step=7, step_duration=0.5, model=model, optimizer=optimizer, loss=1.0, epoch=2)
    assert seen == [
        ("gradient_norm", {"epoch": 2, "step": 7, "step_duration": 0.5, "grad_norm": 5.0, "threshold": 1.0})
    ]


def test_all_hooks_run_even_where_warnings_are_errors(capsys):
    class Broken:
        def after_step(self, **_):
            raise ValueError("broken")

    seen = []
    profiler = StepProfiler()
    profiler.register_hook(Broken())
    profiler.register_hook(SimpleNamespace(after_step=lambda **context: seen.append(context)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profiler.end_step(4, 0.1, loss=2.0, epoch=1)
    assert "Hook Broken failed: broken" in capsys.readouterr().err
    assert seen == [
        {"step": 4, "step_duration": 0.1, "model": None, "optimizer": None, "loss": 2.0, "epoch": 1},
    ]


def test_what_cannot_be_a_hook_is_refused():
    with pytest.raises(TypeError, match="after_step"):
        StepProfiler().register_hook(print)


@pytest.mark.parametrize(
    "limits", [{"lr_history_size": 1}, {"grad_norm_threshold": -1}, {"lr_change_threshold": math.nan}, {"epsilon": -1}]
)
def test_limits_that_mean_nothing_are_refused(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        AnomalyDetectionHook(**limits)


def test_the_analysis_leaves_no_trace_on_the_model():
    model, optimizer = torch_pair(torch.full((2, 2), 100.0))
    AnomalyDetectionHook().analyze_training_step(0, 0.01, model, optimizer, torch.tensor(1.0))
    assert torch.equal(model.weight.grad, torch.full((2, 2), 100.0))
    assert model.frozen.grad is None


def test_the_global_profiler_is_one():
    assert steps.get_step_profiler() is steps.get_step_profiler()
    steps.end_step(9, 0.1)
    assert steps.get_step_profiler().step_count == 9


def test_arrays_are_analyzed_without_torch():
    program = (
        "import sys, numpy as np\n"
        "from types import SimpleNamespace as N\n"
        "from seismograd.steps import AnomalyDetectionHook\n"
        "model = N(parameters=lambda: [N(grad=np.full(4, 100.0))])\n"
        "found = AnomalyDetectionHook().analyze_training_step(0, 0.1, model, N(lr=0.1), 1.0)\n"
        "assert [a.kind for a in found] == ['gradient_norm'] and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
