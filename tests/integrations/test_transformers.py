"""The Trainer of transformers, as it is, and with our callback: its numbers are ours."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import Trainer, TrainerCallback

from seismograd import patches
from seismograd.integrations import transformers as integration
from seismograd.integrations.transformers import SeismogradCallback
from seismograd.sinks import Memory

from .hugging_face import Classes, Sequences, Stream, bert, gpt, llama, trainer
from .scouted import scouted

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*scheduler.*:UserWarning"),
]
ROOT = Path(__file__).parents[2]


def average(model, data, folder):
    """An average of the weights is kept, in a model of its own."""

    class Averages(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            self.kept = [p.detach().clone() for p in model.parameters()]

        def on_step_end(self, args, state, control, model=None, **kwargs):
            for old, new in zip(self.kept, model.parameters(), strict=True):
                old.lerp_(new.detach(), 0.1)

    return trainer(model, data, folder, callbacks=[Averages()])


HEALTHY = {
    "plain": lambda at: trainer(bert(), Classes(), at),
    "accumulated": lambda at: trainer(gpt(), Sequences(72), at, gradient_accumulation_steps=4, num_train_epochs=6),
    "evaluated": lambda at: trainer(
        llama(),
        Sequences(60),
        at,
        eval_dataset=Sequences(24, seed=9),
        eval_strategy="epoch",
        gradient_accumulation_steps=3,
    ),
    "bfloat16": lambda at: trainer(bert(), Classes(24), at, bf16=True, num_train_epochs=2),
    "checkpointed": lambda at: trainer(gpt(use_cache=False), Sequences(), at, gradient_checkpointing=True),
    "uneven": lambda at: trainer(gpt(), Sequences(88), at, gradient_accumulation_steps=2, max_grad_norm=0.1),
    "smoothed": lambda at: trainer(gpt(), Sequences(), at, label_smoothing_factor=0.1, gradient_accumulation_steps=2),
    "streamed": lambda at: trainer(gpt(), Stream(Sequences(64)), at, max_steps=16),
    "scheduled": lambda at: trainer(llama(), Sequences(), at, lr_scheduler_type="cosine", warmup_steps=6),
    "unclipped": lambda at: trainer(bert(), Classes(), at, max_grad_norm=0),
    "sgd": lambda at: trainer(bert(), Classes(), at, optim="sgd", learning_rate=0.1),
    "adafactor": lambda at: trainer(bert(), Classes(), at, optim="adafactor"),
    "tied": lambda at: trainer(llama(tie_word_embeddings=True), Sequences(), at),
    "averaged": lambda at: average(bert(), Classes(), at),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_has_the_numbers_of_the_trainer_and_no_alarm(name, tmp_path):
    with scouted() as seen:
        trained = HEALTHY[name](tmp_path)
        trained.train()
    logs = [log for log in trained.state.log_history if "loss" in log]
    assert len(seen.series("loss")) == trained.state.global_step == len(logs)
    assert seen.series("loss") == pytest.approx([log["loss"] for log in logs], rel=1e-5)
    assert seen.series("grad/norm") == pytest.approx([float(log["grad_norm"]) for log in logs], rel=1e-4)
    assert seen.series("val_loss") == [log["eval_loss"] for log in trained.state.log_history if "eval_loss" in log]
    assert sum(seen.series("time/data")) > 0
    assert seen.alarms == []
    assert not patches.listeners()


@pytest.mark.parametrize("best", [None, "eval_long_loss", "long_loss"])
def test_of_several_data_sets_the_first_counts_or_that_of_the_best_model(best, tmp_path):
    sets = {"short": Classes(16, seed=5), "long": Classes(24, seed=6)}
    with scouted() as seen:
        trained = trainer(
            bert(), Classes(), tmp_path, eval_dataset=sets, eval_strategy="epoch", metric_for_best_model=best
        )
        trained.train()
    name = "eval_short_loss" if best is None else "eval_long_loss"
    told = [log[name] for log in trained.state.log_history if name in log]
    assert len(told) == 4
    assert seen.series("val_loss") == (told if best is None else pytest.approx(told))


@pytest.mark.parametrize("last", ["evaluate", "predict"])
def test_a_test_set_after_training_is_no_validation(last, tmp_path):
    with scouted() as seen:
        trained = trainer(bert(), Classes(), tmp_path, eval_dataset=Classes(16, seed=5), eval_strategy="epoch")
        trained.train()
        told = [log["eval_loss"] for log in trained.state.log_history if "eval_loss" in log]
        getattr(trained, last)(Classes(24, seed=7))
    assert seen.series("val_loss") == told


class Halves(Trainer):
    """Divides by zero in the fourth step."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        return loss * (torch.zeros(()) / 0 if self.state.global_step == 3 else 1)


class Cuts(Trainer):
    """The loss is cut off from most of the model."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        hidden = model.bert(inputs["input_ids"]).pooler_output.detach()
        return F.cross_entropy(model.classifier(hidden), inputs["labels"])


class Weighs(Trainer):
    """Has a loss of its own."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return F.cross_entropy(model(inputs["input_ids"]).logits, inputs["labels"], torch.tensor([1.0, 2.0]))


def without_the_head(at):
    model = bert()
    held = [p for name, p in model.named_parameters() if not name.startswith("classifier")]
    return trainer(model, Classes(), at, Weighs, optimizers=(torch.optim.AdamW(held, lr=3e-3), None))


def with_bad_weight(at):
    model = gpt()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight[0, 0] = math.inf
    return trainer(model, Sequences(), at)


SICK = {
    "nonfinite-loss": lambda at: trainer(bert(), Classes(), at, Halves),
    "unoptimized-parameter": without_the_head,
    "nonfinite-parameter": with_bad_weight,
    "loss-explosion": lambda at: trainer(
        gpt(), Sequences(), at, optim="sgd", learning_rate=300.0, max_grad_norm=0, lr_scheduler_type="constant"
    ),
    "unused-parameter": lambda at: trainer(bert(), Classes(), at, Cuts),
}


@pytest.mark.parametrize("fault", SICK)
def test_a_sick_training_is_found(fault, tmp_path):
    with scouted() as seen:
        SICK[fault](tmp_path).train()
    assert fault in seen.findings
    if fault == "unoptimized-parameter":
        assert "F.cross_entropy" in seen.findings[fault].where.code, "and not the line of trainer.train()"


@pytest.mark.parametrize("told", [False, True])
def test_a_loss_that_the_trainer_takes_for_divided_is_found(told, tmp_path):
    """A BERT's loss is the mean over its own batch, whatever `num_items_in_batch` the Trainer gives it."""
    with scouted() as seen:
        made = trainer(bert(), Classes(160), tmp_path, gradient_accumulation_steps=2, max_steps=10)
        if told:
            made.model_accepts_loss_kwargs = False
        made.train()
    finding = seen.findings.get("accumulation-mismatch")
    assert (finding is None) is told
    assert told or "model_accepts_loss_kwargs = False" in finding.recommendations[0]


@pytest.mark.parametrize("hides", [True, False])
def test_a_loss_that_the_trainer_hides_is_named(hides, tmp_path):
    with scouted() as seen:
        trained = trainer(bert(), Classes(), tmp_path, Halves, logging_nan_inf_filter=hides)
        trained.train()
    finding = seen.findings["nonfinite-loss"]
    assert finding.step == 3
    assert math.isnan(trained.state.log_history[3]["loss"]) is not hides, "what the Trainer shows of it"
    assert (finding.evidence.get("hidden_by") == "logging_nan_inf_filter") is hides
    assert any("logging_nan_inf_filter=False" in text for text in finding.recommendations) is hides


# -- the callback ------------------------------------------------------------------------------------------------


def callback(**more):
    memory = Memory(limit=1000)
    return SeismogradCallback(store=False, sinks=[memory], strict=True, **more), memory


def test_the_callback_watches_each_training(tmp_path):
    ours, memory = callback(level="basic")
    trained = trainer(
        bert(), Classes(), tmp_path, callbacks=[ours], eval_dataset=Classes(16, seed=5), eval_strategy="epoch"
    )
    trained.train()
    first = ours.watch
    assert first.closed
    assert first.status == "healthy"
    assert not patches.listeners()
    assert memory.series("loss")[1] == [log["loss"] for log in trained.state.log_history if "loss" in log]
    assert memory.series("val_loss")[1] == [log["eval_loss"] for log in trained.state.log_history if "eval_loss" in log]
    trained.train()
    assert ours.watch is not first
    assert ours.watch.closed


def test_the_weights_are_the_same_bytes(tmp_path):
    def trained(*callbacks):
        made = trainer(gpt(), Sequences(), tmp_path, callbacks=list(callbacks), gradient_accumulation_steps=2)
        made.train()
        return made.model.state_dict()

    plain, watched = trained(), trained(callback()[0])
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


@pytest.mark.parametrize("error", [KeyError("batch"), KeyboardInterrupt()])
def test_a_training_that_raises_leaves_nothing_attached(error, tmp_path):
    class Raises(Trainer):
        def training_step(self, *args, **kwargs):
            if self.state.global_step == 2:
                raise error
            return super().training_step(*args, **kwargs)

    ours, _ = callback()
    with pytest.raises(type(error)):
        trainer(bert(), Classes(), tmp_path, Raises, callbacks=[ours]).train()
    assert not patches.listeners()
    assert ours.watch.closed
    assert ours.watch.status == ("crashed" if isinstance(error, Exception) else "healthy")


def test_trainers_are_as_they_were_once_the_callback_is_gone():
    gc.collect()
    integration._callbacks.clear()  # an earlier test's may be held by its error
    integration._leave_trainers()
    before = Trainer.train
    ours, _ = callback()
    assert Trainer.train is not before
    del ours
    gc.collect()
    assert Trainer.train is before


def test_the_callback_stops_where_that_is_asked_for(tmp_path):
    ours, _ = callback(stop_on="critical")
    trained = trainer(bert(), Classes(), tmp_path, Halves, callbacks=[ours])
    trained.train()
    assert trained.state.global_step == 4
    assert "nonfinite-loss" in {finding.id for finding in ours.watch.findings}


def test_resumed_from_a_checkpoint(tmp_path):
    def made(ours, **more):
        return trainer(bert(), Classes(), tmp_path, callbacks=[ours], save_strategy="epoch", **more)

    made(callback()[0], num_train_epochs=1).train()
    ours, memory = callback()
    made(ours, num_train_epochs=2).train(resume_from_checkpoint=True)
    assert len(memory.series("loss")[1]) == 6
    assert any(event["event_type"] == "resumed" for event in ours.watch.report()["events"])


def test_under_run_the_callback_alone_watches(tmp_path):
    ours, memory = callback()
    with scouted() as seen:
        trainer(bert(), Classes(16), tmp_path, callbacks=[ours]).train()
    assert len(memory.series("loss")[1]) == 8
    assert seen.runs == []


# -- the command line --------------------------------------------------------------------------------------------


def test_the_example_is_healthy_under_run(tmp_path):
    report = tmp_path / "report.json"
    line = [sys.executable, "-m", "seismograd", "run", "--store", "off", "--report", str(report)]
    done = subprocess.run(
        [*line, str(ROOT / "examples/transformers/train.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(report.read_text())
    assert told["run"]["status"] == "healthy", told["findings"]
    assert told["run"]["steps"] == 60
