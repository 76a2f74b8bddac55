"""Adapters of PEFT: they are watched, and the frozen base is no fault."""

from __future__ import annotations

import math

import pytest
import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model

from .hugging_face import Sequences, llama, trainer
from .scouted import scouted

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]


def adapted(**more):
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return get_peft_model(llama(), LoraConfig(**settings | more))


def two_adapters():
    model = adapted()
    model.add_adapter("other", LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    return model


def scaled():
    layers = {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}
    return get_peft_model(llama(), IA3Config(task_type="CAUSAL_LM", **layers))


def checkpointed():
    base = llama()
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.enable_input_require_grads()
    return get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


HEALTHY = {
    "lora": adapted,
    "everywhere": lambda: adapted(target_modules="all-linear", lora_dropout=0.1),
    "modules-to-save": lambda: adapted(modules_to_save=["lm_head"]),
    "dora": lambda: adapted(use_dora=True),
    "two-adapters": two_adapters,
    "checkpointed": checkpointed,
    "ia3": scaled,
    "prompt": lambda: get_peft_model(llama(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)),
}


def train(model, folder, **more):
    with scouted() as seen:
        made = trainer(model, Sequences(), folder, **{"learning_rate": 1e-2, **more})
        made.train()
    return made, seen


@pytest.mark.parametrize("name", HEALTHY)
def test_a_frozen_base_is_no_fault(name, tmp_path):
    made, seen = train(HEALTHY[name](), tmp_path)
    assert seen.alarms == []
    assert "missing-activation" not in seen.findings, "an adapter is narrow on purpose"
    logs = [log for log in made.state.log_history if "loss" in log]
    assert seen.series("loss") == pytest.approx([log["loss"] for log in logs])
    assert seen.series("grad/norm") == pytest.approx([float(log["grad_norm"]) for log in logs], rel=1e-4)


def test_adapters_are_read_by_their_names(tmp_path):
    _, seen = train(adapted(), tmp_path, max_steps=2)
    reading = next(reading for reading in seen.memories[0].readings if "gradient" in reading.tensors)
    names = reading.tensors["gradient"].names
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight" in names
    assert all("lora_" in name for name in names)


def test_nan_in_an_adapter_is_found_where_it_is(tmp_path):
    model = adapted()
    place = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.default"
    with torch.no_grad():
        model.get_submodule(place).weight[0, 0] = math.nan
    _, seen = train(model, tmp_path)
    assert seen.findings["nonfinite-parameter"].where.parameter == f"{place}.weight"
    assert seen.findings["nonfinite-activation"].where.module == place
    assert seen.findings["nonfinite-loss"].evidence["hidden_by"] == "logging_nan_inf_filter"


def test_an_adapter_that_no_optimizer_holds_is_found(tmp_path):
    model = adapted()
    held = [p for name, p in model.named_parameters() if p.requires_grad and "layers.1" not in name]
    _, seen = train(model, tmp_path, optimizers=(torch.optim.AdamW(held, lr=1e-2), None))
    finding = seen.findings["unoptimized-parameter"]
    assert finding.where.module == "base_model.model.model.layers.1.self_attn.q_proj.lora_A.default"


def test_an_optimizer_that_was_built_before_the_adapter_is_found(tmp_path):
    base = llama()
    held = torch.optim.AdamW(base.parameters(), lr=1e-2)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    _, seen = train(model, tmp_path, optimizers=(held, None))
    finding = seen.findings["unoptimized-parameter"]
    assert finding.severity == "critical"
    assert "All that the optimizer holds is frozen" in finding.message
    assert "blind-probe" not in seen.findings
