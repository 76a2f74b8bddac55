"""The trainer does what a loop written by hand does, is watched throughout, and says what came of it."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from seismograd.costs import samples_in
from seismograd.optimize.trainer import Trainer
from seismograd.optimize.trainer.guesses import UsualLoss
from seismograd.sinks import Memory

from .trainings import MODELS, data, everything, mlp, same, trainer


def by_hand(model: nn.Module, loader: Any, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def test_it_is_the_loop_that_one_would_write_by_hand() -> None:
    one = trainer(val_loader=None)
    model = copy.deepcopy(one.model)
    before = torch.get_rng_state()
    one.train_sync()
    torch.set_rng_state(before)
    by_hand(model, one.training_feed.loader, 3)
    same(one.model.state_dict(), model.state_dict())


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", MODELS)
def test_watched_and_unwatched_it_ends_with_the_same_bytes(tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {"accumulation_steps": 2, "gradient_clip": 1.0, "amp": "bf16"}
    plain = trainer(kind, **options)
    plain.train_sync()
    watched = trainer(kind, **options, enable_pytorch_debugging=True, debug_mode=True, strict=True, progress=True)
    asyncio.run(watched.train())
    same(everything(plain), everything(watched))


# -- accumulation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [32, 27, 3])
@pytest.mark.parametrize("amp", [False, "fp16"])
def test_accumulation_has_the_gradient_of_the_large_batch(samples: int, amp: str | bool) -> None:
    """Also where the last batches are smaller, or fewer."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3).double() if amp is False else nn.Linear(6, 3)
    x, y = data(samples).tensors
    x = x.to(model.weight.dtype)
    seen: dict[bool, list[Tensor]] = {True: [], False: []}
    for accumulated in (True, False):
        one = Trainer(
            copy.deepcopy(model),
            DataLoader(TensorDataset(x, y), batch_size=4 if accumulated else 16),
            optimizer=torch.optim.SGD,
            accumulation_steps=4 if accumulated else 1,
            max_epochs=1,
            amp=amp,
            enable_pytorch_debugging=False,
        )
        one.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=amp == "fp16")  # no step is left out
        note = seen[accumulated]
        one.optimizer.register_step_pre_hook(lambda o, *_, note=note: note.append(o.param_groups[0]["params"][0].grad))
        one.train_sync()
        note.append(one.model.weight)
        note.append(torch.tensor(one.results["train_loss"]))
    assert len(seen[True]) == len(seen[False]) == math.ceil(samples / 16) + 2
    tolerance = 1e-12 if amp is False else 1e-2
    for left, right in zip(seen[True], seen[False], strict=True):
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def test_a_loss_that_is_a_sum_is_summed() -> None:
    losses = []
    for size, steps in ((4, 4), (16, 1)):
        torch.manual_seed(0)
        loader = DataLoader(data(16), batch_size=size)
        options: dict[str, Any] = {"accumulation_steps": steps, "max_epochs": 1, "optimizer": torch.optim.SGD}
        one = Trainer(
            nn.Linear(6, 3),
            loader,
            loss_fn=nn.CrossEntropyLoss(reduction="sum"),
            enable_pytorch_debugging=False,
            **options,
        )
        one.train_sync()
        losses.append((one.results["train_loss"], one.model.weight))
    torch.manual_seed(0)
    mean = nn.functional.cross_entropy(nn.Linear(6, 3)(data(16).tensors[0]), data(16).tensors[1])
    assert losses[0][0] == pytest.approx(losses[1][0]) == [pytest.approx(mean.item(), rel=1e-5)], "means over samples"
    torch.testing.assert_close(losses[0][1], losses[1][1])


def test_tokens_may_be_counted_in_place_of_samples() -> None:
    """Padded to different lengths, a mean over tokens is that of the whole batch only by tokens."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7))
    rows = torch.randint(0, 7, (4, 6))
    targets = rows.clone()
    targets[:2, 3:] = -100
    parts = [(rows[:2, :3], targets[:2, :3]), (rows[2:], targets[2:])]
    ends = []
    for loader, steps in (([(rows, targets)], 1), (parts, 2)):
        one = Trainer(
            copy.deepcopy(model),
            loader,
            optimizer=torch.optim.SGD,
            learning_rate=1.0,
            accumulation_steps=steps,
            max_epochs=1,
            weight=lambda batch: (batch[1] != -100).sum(),
            enable_pytorch_debugging=False,
        )
        ends.append((one.train_sync()["train_loss"], one.model[1].weight))
    assert ends[0][0] == pytest.approx(ends[1][0])
    torch.testing.assert_close(*(weight for _, weight in ends))


# -- clipping, schedules, validation, stopping -----------------------------------------------------------------------


@pytest.mark.parametrize("amp", [False, "fp16"])
def test_clipping_comes_after_unscaling(amp: str | bool) -> None:
    norms: list[float] = []
    one = trainer(gradient_clip=0.01, amp=amp, max_epochs=1)
    one.optimizer.register_step_pre_hook(
        lambda o, *_: norms.append(float(nn.utils.get_total_norm([p.grad for p in o.param_groups[0]["params"]])))
    )
    one.train_sync()
    assert norms == pytest.approx([0.01] * 6, rel=1e-2)


def test_a_step_that_the_scaler_leaves_out_does_not_move_the_scheduler() -> None:
    """Its first scale overflows: warnings are errors here, and torch warns of a scheduler that steps first."""
    one = trainer(
        amp="fp16", max_epochs=1, schedule_per="step", scheduler=lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5)
    )
    one.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    one.train_sync()
    assert one.scheduler.last_epoch < 6


def test_schedulers_step_with_each_step_or_epoch() -> None:
    def halves(optimizer: Any) -> Any:
        return lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    by_epoch = trainer(scheduler=halves)
    assert by_epoch.train_sync()["learning_rate"] == pytest.approx([0.01, 0.005, 0.0025])
    by_step = trainer(scheduler=halves, schedule_per="step")
    by_step.train_sync()
    assert by_step.scheduler.last_epoch == 18


def test_a_plateau_is_told_the_validation_loss() -> None:
    one = trainer(scheduler=lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.99))
    results = one.train_sync()
    assert one.scheduler.best == results["val_loss"][0]
    assert results["learning_rate"] == pytest.approx([0.01, 0.01, 0.001])


def test_validation_is_a_mean_over_samples_in_evaluation_mode_without_gradients() -> None:
    one = trainer(max_epochs=1)
    one.model[0].eval()  # on purpose, as one freezes a batch norm
    seen = []
    one.model.register_forward_hook(lambda m, _, o: seen.append((m.training, o.requires_grad)))
    results = one.train_sync()
    assert seen == [(True, True)] * 6 + [(False, False)] * 3
    assert (one.model.training, one.model[0].training, one.model[2].training) == (True, False, True)
    assert torch.is_grad_enabled()
    x, y = data(20).tensors
    expected = nn.functional.cross_entropy(one.model.eval()(x), y)
    assert results["val_loss"] == pytest.approx([expected.item()], rel=1e-5)  # 8, 8 and 4 samples


def test_other_tasks_have_gradients_while_it_validates() -> None:
    async def both() -> list[bool]:
        one = trainer(max_epochs=1)
        task, seen = asyncio.create_task(one.train()), []
        while not task.done():
            seen.append(torch.is_grad_enabled())
            await asyncio.sleep(0)
        return seen

    seen = asyncio.run(both())
    assert len(seen) >= 10  # it has its turn between any two steps
    assert all(seen)


def test_early_stopping_and_the_best_checkpoint(tmp_path: Path) -> None:
    """With a rate that is far too high for long, epochs get no better: it stops, and has the best."""
    one = trainer(
        checkpoint_dir=tmp_path, patience=2, max_epochs=50, scheduler=lambda o: lr_scheduler.ExponentialLR(o, 8.0)
    )
    results = one.train_sync()
    assert results["stopped"] == "early stopping"
    best = results["best_epoch"]
    assert results["epochs"] == best + 3 < 50
    assert results["best_val_loss"] == results["val_loss"][best] == min(results["val_loss"])
    saved = torch.load(results["best_checkpoint"], weights_only=True)
    assert saved["course"]["epoch"] == best + 1
    model = mlp()
    model.load_state_dict(saved["model"])
    x, y = data(20).tensors
    assert nn.functional.cross_entropy(model.eval()(x), y).item() == pytest.approx(results["best_val_loss"], rel=1e-5)
    again = trainer(checkpoint_dir=tmp_path, patience=2, max_epochs=50, resume=True)
    assert again.train_sync()["epochs"] == results["epochs"]  # it stays stopped
    more = trainer(checkpoint_dir=tmp_path, patience=4, max_epochs=50, resume=True)
    assert more.train_sync()["epochs"] == results["epochs"] + 2  # unless it is given more patience


def test_a_loader_that_is_told_its_epoch() -> None:
    class Told:
        def __init__(self) -> None:
            self.epochs: list[int] = []
            self.batches = list(DataLoader(data(16), batch_size=8))

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __iter__(self) -> Iterator[Any]:
            return iter(self.batches)

    loader = Told()
    trainer(train_loader=loader, max_epochs=2).train_sync()
    assert loader.epochs == [0, 1]


# -- batches of any structure ----------------------------------------------------------------------------------------


class OwnLoss(nn.Module):
    """As models of the transformers library are: they take the labels, and return their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.layer(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


def fits(model: nn.Module, batches: list[Any], **options: Any) -> list[float]:
    torch.manual_seed(0)
    one = Trainer(model, batches, batches, max_epochs=2, learning_rate=0.05, enable_pytorch_debugging=False, **options)
    losses: list[float] = one.train_sync()["train_loss"]
    assert losses[1] < losses[0]
    return losses


X, Y = data(16).tensors


@pytest.mark.parametrize(
    ("model", "batch", "options"),
    [
        (lambda: nn.Linear(6, 3), (X, Y), {}),
        (lambda: nn.Linear(6, 3), [X, Y.to(torch.uint8)], {}),
        (lambda: nn.Linear(6, 1), (X, Y.float()), {}),
        (lambda: nn.Linear(6, 1), (X, Y.float()[:, None]), {}),
        (lambda: nn.Linear(6, 3), {"input": X, "labels": Y}, {}),
        (OwnLoss, {"x": X, "labels": Y}, {}),
        (OwnLoss, (X, Y), {}),
        (lambda: nn.Linear(6, 6), X, {"loss_fn": lambda output: (output**2).mean()}),
        (lambda: nn.Bilinear(6, 6, 3), (X, X, Y), {"loss_fn": nn.CrossEntropyLoss()}),
        (lambda: nn.Linear(6, 3), {"any": [X, (Y,)]}, {"loss_fn": lambda model, b: model(b["any"][0]).pow(2).mean()}),
        (lambda: nn.Linear(6, 4), (X.reshape(2, 8, 6), Y.reshape(2, 8)), {}),  # batch, time, class
        (lambda: nn.Conv1d(6, 4, 1), (X.reshape(2, 6, 8), Y.reshape(2, 8)), {}),  # batch, class, time
    ],
)
def test_a_batch_of_any_structure(model: Any, batch: Any, options: dict[str, Any]) -> None:
    fits(model(), [batch] * 4, **options)


def test_a_loss_is_not_guessed_where_it_could_be_wrong() -> None:
    usual = UsualLoss()
    for output, target in [
        (torch.zeros(4, 3), torch.zeros(4)),
        (torch.zeros(4, 1), torch.ones(4, dtype=torch.bool)),
        (torch.zeros(4, 3), torch.zeros(4, 3).long()),
        ((torch.zeros(4, 3),), torch.zeros(4).long()),
    ]:
        with pytest.raises(
            TypeError, match=r"no loss could be guessed for an output .* and a target .*: pass a loss_fn"
        ):
            usual(output, target)


def test_samples_are_counted_by_the_target() -> None:
    assert samples_in((torch.zeros(7, 4), torch.zeros(4))) == 4
    assert samples_in({"x": torch.zeros(7, 4), "labels": torch.zeros(4)}) == 4
    assert samples_in(torch.zeros(5, 2)) == 5
    assert samples_in(([torch.zeros(3, 8)] * 2, [{"boxes": torch.zeros(9, 4)}] * 2)) == 2
    assert samples_in((torch.zeros(4), (torch.zeros(4), torch.zeros(4, 2)))) == 4
    assert samples_in(3) == 1


# -- watched throughout ----------------------------------------------------------------------------------------------


def sound(tmp_path: Path, **options: Any) -> Trainer:
    torch.manual_seed(0)
    x = torch.randn(160, 6)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    return Trainer(
        model, loader, loader, max_epochs=4, learning_rate=0.01, checkpoint_dir=tmp_path, strict=True, **options
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"debug_mode": True, "gradient_clip": 1.0},
        {"accumulation_steps": 3, "amp": "bf16"},
        {"amp": "fp16", "gradient_clip": 1.0},
        {"scheduler": lambda o: lr_scheduler.OneCycleLR(o, 0.02, total_steps=40), "schedule_per": "step"},
    ],
    ids=["plain", "debug", "accumulation", "fp16", "one cycle"],
)
def test_a_sound_training_has_no_findings(tmp_path: Path, options: dict[str, Any]) -> None:
    one = sound(tmp_path, **options)
    results = one.train_sync()
    assert results["findings"] == []
    assert results["status"] == "healthy"
    assert results["report"]["run"]["steps"] == results["steps"]
    assert one.watch is not None
    assert one.watch.closed
    json.dumps(results, allow_nan=False)


@pytest.mark.parametrize("loss_fn", [None, nn.CrossEntropyLoss()], ids=str)
def test_each_validation_is_read_once(tmp_path: Path, loss_fn: Any) -> None:
    memory = Memory()
    results = sound(tmp_path, sinks=[memory], loss_fn=loss_fn).train_sync()
    read = [reading.scalars["val_loss"] for reading in memory.readings if "val_loss" in reading.scalars]
    assert read == results["val_loss"]


def poisoned() -> DataLoader[Any]:
    x, y = data().tensors
    x = x.clone()
    x[40:] = math.nan
    return DataLoader(TensorDataset(x, y), batch_size=8)


def test_a_sick_training_goes_on_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("mine")
    one = trainer(train_loader=poisoned(), enable_pytorch_debugging=True, checkpoint_dir=tmp_path, logger=logger)
    with caplog.at_level(logging.INFO, "mine"):
        results = one.train_sync()
    assert results["stopped"] == "finished"
    assert results["status"] == "critical"
    assert "nonfinite-input" in [finding["id"] for finding in results["findings"]]
    assert any("nonfinite-input" in record.getMessage() for record in caplog.records if record.name == "mine")
    assert results["best_checkpoint"] is None  # there is no good one
    json.dumps(results)


def test_a_run_that_was_sick_is_not_healthy_when_it_is_gone_on_with(tmp_path: Path) -> None:
    first = trainer(train_loader=poisoned(), enable_pytorch_debugging=True, checkpoint_dir=tmp_path, max_epochs=1)
    first.train_sync()
    second = trainer(enable_pytorch_debugging=True, checkpoint_dir=tmp_path, max_epochs=1, resume=True)
    results = second.train_sync()
    assert results["status"] == "critical"
    assert "nonfinite-input" in [finding["id"] for finding in results["findings"]]
    assert any(event["event_type"] == "resumed" for event in results["events"])


def test_a_logger_of_the_seeds_kind_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    logger = SimpleNamespace(log_info=said.append, log_warning=said.append, log_error=said.append)
    trainer(train_loader=poisoned(), enable_pytorch_debugging=True, logger=logger, max_epochs=1).train_sync()
    assert any(text.startswith("nonfinite-input: ") for text in said)


def test_unwatched_it_does_not_claim_to_be_healthy() -> None:
    results = trainer(max_epochs=1).train_sync()
    assert results["status"] == "unwatched"
    assert results["report"] is None


def test_a_request_from_outside_stops_it_cleanly(tmp_path: Path) -> None:
    one = trainer(enable_pytorch_debugging=True, checkpoint_dir=tmp_path)
    original = one._step

    def asked(group: Any) -> Tensor:
        if one.course.step == 3 and one.watch is not None:
            one.watch.errands.ask("stop", None, lambda _text: None)
        return original(group)

    one._step = asked  # type: ignore[method-assign]
    results = one.train_sync()
    assert results["stopped"] == "stopped"
    assert 4 <= results["steps"] <= 5
    assert trainer(checkpoint_dir=tmp_path, resume=True).train_sync()["steps"] == 18


def test_a_profile_of_the_first_steps(tmp_path: Path) -> None:
    one = trainer(enable_profiling=True, checkpoint_dir=tmp_path, max_epochs=5)
    results = one.train_sync()
    assert results["profile"]["steps"] > 0
    assert json.loads((tmp_path / "profile.json").read_text())["traceEvents"]


def test_an_error_in_the_users_code_comes_out_as_it_is(tmp_path: Path) -> None:
    def broken(_model: nn.Module, _batch: Any) -> Tensor:
        raise ZeroDivisionError("of mine")

    one = trainer(loss_fn=broken, enable_pytorch_debugging=True, checkpoint_dir=tmp_path)
    with pytest.raises(ZeroDivisionError, match="of mine"):
        one.train_sync()
    assert one.results["stopped"] == one.results["status"] == "crashed"
    assert one.watch is not None
    assert one.watch.closed


# -- the bar, and mistakes -------------------------------------------------------------------------------------------


def test_the_bar_is_on_stderr_and_only_where_it_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    trainer(max_epochs=1).train_sync()
    assert capfd.readouterr() == ("", "")
    trainer(max_epochs=1, progress=True).train_sync()
    out, err = capfd.readouterr()
    assert out == ""
    assert "epoch 1/1" in err
    assert "lr 0.01" in err


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"max_epochs": 0}, ValueError, "max_epochs is 0: it takes a whole number"),
    ({"accumulation_steps": 1.5}, ValueError, "accumulation_steps is 1.5"),
    ({"gradient_clip": -1}, ValueError, "gradient_clip is -1: it takes a number above 0"),
    ({"learning_rate": 0}, ValueError, "learning_rate is 0"),
    ({"save_every": 0}, ValueError, "save_every is 0"),
    ({"patience": 0}, ValueError, "patience is 0"),
    ({"schedule_per": "batch"}, ValueError, "schedule_per is 'batch': use 'step' or 'epoch'"),
    ({"amp": "int8"}, ValueError, "amp is 'int8'"),
    ({"optimizer": "adam"}, TypeError, "optimizer is 'adam'"),
    ({"scheduler": "cosine"}, TypeError, "scheduler is 'cosine'"),
    ({"epochs": 3}, TypeError, "a trainer has no argument 'epochs'"),
    (
        {"recovery": {"nonfinite-loss": "skip"}, "enable_pytorch_debugging": False},
        ValueError,
        "recovery needs the watch",
    ),
    (
        {"scheduler": lr_scheduler.ReduceLROnPlateau, "schedule_per": "step"},
        ValueError,
        "ReduceLROnPlateau waits for a validation loss",
    ),
]


@pytest.mark.parametrize(("options", "kind", "text"), MISTAKES, ids=[text for _, _, text in MISTAKES])
def test_mistakes_are_told_when_it_is_made(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        trainer(**options)


def test_mistakes_that_show_later() -> None:
    with pytest.raises(
        ValueError, match=r"train_loader has no batch in epoch 2: a generator can be gone through only once"
    ):
        trainer(train_loader=(batch for batch in [(X, Y)])).train_sync()
    with pytest.raises(ValueError, match="val_loader has no batch in epoch 1"):
        trainer(val_loader=[]).train_sync()
    with pytest.raises(ValueError, match=r"the loss is of shape \(8,\)"):
        trainer(loss_fn=nn.CrossEntropyLoss(reduction="none")).train_sync()
    once = trainer(max_epochs=1)
    once.train_sync()
    with pytest.raises(RuntimeError, match="this trainer has trained"):
        once.train_sync()


def test_a_seed_makes_two_runs_the_same() -> None:
    ends = []
    for noise in (1, 2):
        one = trainer(seed=5)
        torch.manual_seed(noise)
        one.train_sync()
        ends.append(everything(one))
    same(*ends)


def test_the_public_name() -> None:
    assert sg.create_enhanced_training_optimizer is Trainer


# -- recovery --------------------------------------------------------------------------------------------------------


def test_a_poisoned_batch_is_skipped_and_the_rest_learned(tmp_path: Path) -> None:
    one = trainer(
        train_loader=poisoned(),
        val_loader=None,
        enable_pytorch_debugging=True,
        recovery={"nonfinite-input": "skip"},
        checkpoint_dir=tmp_path,
    )
    results = one.train_sync()
    assert all(map(math.isfinite, results["train_loss"])), "what was not learned from is not in the curve"
    assert results["best_epoch"] == 2
    assert results["report"]["summary"]["skipped_steps"] == 3 * sum(x.isnan().any().item() for x, _ in poisoned())
    assert all(bool(torch.isfinite(p).all()) for p in one.model.parameters())
    assert results["stopped"] == "finished"


def test_a_policy_that_stops_leaves_the_last_checkpoint_and_the_results(tmp_path: Path) -> None:
    one = trainer(
        train_loader=poisoned(),
        val_loader=None,
        enable_pytorch_debugging=True,
        recovery={"nonfinite-input": "stop"},
        checkpoint_dir=tmp_path,
    )
    results = asyncio.run(one.train())
    assert "nonfinite-input" in results["stopped"]
    assert results["status"] == "critical"
    assert results["steps"] < len(poisoned())
    assert (tmp_path / "last.pt").is_file()
    assert all(bool(torch.isfinite(p).all()) for p in one.model.parameters())


def test_a_model_that_is_none_and_an_optimizer_that_wants_a_closure_are_told() -> None:
    with pytest.raises(TypeError, match=r"model is None, not an nn\.Module"):
        Trainer(None, [])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="LBFGS evaluates the loss by itself"):
        Trainer(nn.Linear(2, 2), [], optimizer=torch.optim.LBFGS)
