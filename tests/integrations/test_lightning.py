"""Lightning under both of its names: scripts as they are, and with our callback."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import lightning.pytorch
import pytest
import pytorch_lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from seismograd import patches
from seismograd.integrations.lightning import SeismogradCallback
from seismograd.sinks import Memory

from .scouted import scouted

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:You passed .Trainer.accelerator=.cpu., precision=.16-mixed.*"),
    pytest.mark.filterwarnings("ignore:The number of training batches.*"),
    pytest.mark.filterwarnings("ignore:You defined a .validation_step. but have no .val_dataloader.*"),
    pytest.mark.filterwarnings("ignore:You are overwriting.*"),
    pytest.mark.filterwarnings("ignore:You requested to overfit.*"),
    pytest.mark.filterwarnings("ignore:To debug try disable.*"),
    pytest.mark.filterwarnings("ignore:.*Detected KeyboardInterrupt.*"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory.*"),
]

TREES = {"lightning": lightning.pytorch, "pytorch_lightning": pytorch_lightning}


def data(rows: int = 176, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 8, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] + inputs[:, 1] > 0).long())


def module(tree: Any = lightning.pytorch, **settings: Any) -> Any:
    """A module that keeps what Lightning itself knows: losses by batch, gradient norms before clipping."""

    class Net(tree.LightningModule):  # type: ignore[misc,name-defined]
        spoil_at: int | None = settings.get("spoil_at")
        raise_at: int | None = settings.get("raise_at")
        lr: float = settings.get("lr", 0.02)
        optimizer: str = settings.get("optimizer", "sgd")
        manual: bool = settings.get("manual", False)

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not self.manual
            self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
            self.losses: list[float] = []
            self.norms: list[float] = []
            self.validated: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            output = self.net(batch[0])
            if self.spoil_at is not None and self.global_step >= self.spoil_at:
                output = torch.log(output - output.max())
            if self.raise_at is not None and self.global_step >= self.raise_at:
                raise settings.get("error", ValueError)("boom")
            loss = F.cross_entropy(output, batch[1])
            self.losses.append(loss.item())
            self.log("train_loss", loss)
            if self.manual:
                self.manual_backward(loss / 4)
                if (index + 1) % 4 == 0:
                    optimizer = self.optimizers()
                    self.note_norm()
                    self.clip_gradients(optimizer, 0.1, "norm")
                    optimizer.step()
                    optimizer.zero_grad()
                return None
            return loss

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            if not self.manual:  # there it comes after clipping
                self.note_norm()

        def note_norm(self) -> None:
            self.norms.append(math.hypot(*(float(p.grad.float().norm()) for p in self.parameters())))

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

        def on_validation_epoch_end(self) -> None:
            if not self.trainer.sanity_checking:
                self.validated.append(float(self.trainer.callback_metrics["val_loss"]))

        def configure_optimizers(self) -> Any:
            if self.optimizer == "lbfgs":
                return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)
            optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    torch.manual_seed(0)
    return Net()


def fit(net: Any, tree: Any = lightning.pytorch, *, validates: bool = True, **settings: Any) -> Any:
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "barebones"), False
    )
    trainer = tree.Trainer(accelerator="cpu", **{"max_epochs": 3, **quiet, **settings})
    loader = DataLoader(data(), batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(1))
    trainer.fit(net, loader, DataLoader(data(40, seed=5), batch_size=16) if validates else None)
    return trainer


def by_step(losses: list[float], batches: int, epoch: int = 11) -> list[float]:
    """The mean over the batches of each step; the last step of an epoch may have fewer."""
    found = []
    for begin in range(0, len(losses), epoch):
        own = losses[begin : begin + epoch]
        found += [sum(own[at : at + batches]) / len(own[at : at + batches]) for at in range(0, len(own), batches)]
    return found


HEALTHY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "accumulated": ({}, {"accumulate_grad_batches": 4}),
    "clipped": ({}, {"gradient_clip_val": 0.05}),
    "clipped by value": ({}, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
    "accumulated and clipped": ({}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.05}),
    "bf16-mixed": ({}, {"precision": "bf16-mixed"}),
    "bf16-true": ({}, {"precision": "bf16-true"}),
    "64-true": ({}, {"precision": "64-true"}),
    "anomaly mode": ({}, {"detect_anomaly": True}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_fit_has_its_own_numbers_and_no_alarm(name: str) -> None:
    made, settings = HEALTHY[name]
    net = module(**made)
    with scouted() as seen:
        trainer = fit(net, **settings)
    loose = 2e-2 if "bf16" in name else 1e-4
    losses = by_step(net.losses, settings.get("accumulate_grad_batches", 1))
    assert len(seen.series("loss")) == trainer.global_step
    assert seen.series("loss") == pytest.approx(losses, rel=loose)
    assert seen.series("grad/norm") == pytest.approx(net.norms, rel=loose)
    assert seen.series("val_loss") == pytest.approx(net.validated, rel=loose)
    assert seen.alarms == []


def test_the_other_name_of_lightning() -> None:
    net = module(pytorch_lightning)
    with scouted() as seen:
        fit(net, pytorch_lightning, accumulate_grad_batches=2, gradient_clip_val=0.05)
    assert seen.series("loss") == pytest.approx(by_step(net.losses, 2), rel=1e-4)
    assert seen.series("grad/norm") == pytest.approx(net.norms, rel=1e-4)
    assert seen.alarms == []


def test_manual_optimization() -> None:
    net = module(manual=True)
    with scouted() as seen:
        fit(net, validates=False, limit_train_batches=8)
    assert seen.series("loss") == pytest.approx(by_step(net.losses, 4, 8), rel=1e-4)
    assert seen.series("grad/norm") == pytest.approx(net.norms, rel=1e-4)
    assert seen.alarms == []


def test_a_search_for_a_rate_is_a_run_of_its_own(tmp_path: Path) -> None:
    from lightning.pytorch.tuner import Tuner

    net, loader = module(), DataLoader(data(), batch_size=16)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.pytorch.Trainer(accelerator="cpu", max_epochs=2, default_root_dir=tmp_path, **quiet)
    with scouted() as seen:
        Tuner(trainer).lr_find(net, loader, num_training=20, early_stop_threshold=None)
        trainer.fit(net, loader)
    assert seen.steps == [20, trainer.global_step] == [20, 22]


def test_a_line_search_is_one_step_for_each_batch() -> None:
    net = module(optimizer="lbfgs")
    with scouted() as seen:
        trainer = fit(net, validates=False)
    assert len(seen.series("loss")) == trainer.global_step == 33
    assert seen.alarms == []


def test_two_optimizers_are_two_series_and_one_step() -> None:
    class Gan(lightning.pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.made = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
            self.judge = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
            self.losses: list[tuple[float, float]] = []

        def training_step(self, batch: Any, index: int) -> None:
            real, (first, second) = batch[0], self.optimizers()
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            self.toggle_optimizer(second)
            fake = self.made(torch.randn(len(real), 4)).detach()
            judged = F.binary_cross_entropy_with_logits(self.judge(real), ones)
            judged = judged + F.binary_cross_entropy_with_logits(self.judge(fake), zeros)
            second.zero_grad()
            self.manual_backward(judged)
            second.step()
            self.untoggle_optimizer(second)
            self.toggle_optimizer(first)
            fooled = F.binary_cross_entropy_with_logits(self.judge(self.made(torch.randn(len(real), 4))), ones)
            first.zero_grad()
            self.manual_backward(fooled)
            first.step()
            self.untoggle_optimizer(first)
            self.losses.append((judged.item(), fooled.item()))

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.made, self.judge)]

    torch.manual_seed(0)
    net = Gan()
    with scouted() as seen:
        trainer = fit(net, validates=False)
    assert seen.steps == [33]
    assert trainer.global_step == 66, "Lightning counts the steps of both"
    assert sorted(seen.series("loss/0")[-30:] + seen.series("loss/1")[-30:]) == pytest.approx(
        sorted(loss for both in net.losses[-30:] for loss in both), rel=1e-4
    )
    assert seen.alarms == []


@pytest.mark.parametrize(
    ("fault", "made"), [("nonfinite-loss", {"spoil_at": 12}), ("lr-too-high", {"lr": 3e3})], ids=["nan", "rate"]
)
def test_a_sick_fit_is_told_its_fault(fault: str, made: dict[str, Any]) -> None:
    net = module(**made)
    with scouted() as seen:
        fit(net, max_epochs=10)
    assert fault in seen.findings
    if fault == "nonfinite-loss":
        finding = seen.findings[fault]
        assert finding.step == 12
        assert finding.where.file is not None
        assert Path(finding.where.file).name == Path(__file__).name
        assert finding.where.code is not None
        assert "torch.log" in finding.where.code


def test_a_loss_that_is_cut_off_is_told_by_the_line_that_makes_it() -> None:
    class Cut(lightning.pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 2)

        def training_step(self, batch: Any, index: int) -> Any:
            output = self.net(batch[0])
            loss = F.cross_entropy(output, batch[1])
            return torch.tensor(loss.item(), requires_grad=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    with scouted() as seen:
        fit(Cut(), validates=False, max_epochs=1)
    assert seen.findings["detached-loss"].where.code.strip().startswith("loss = F.cross_entropy")


def test_a_loss_that_is_divided_twice_is_told_by_the_line_that_makes_it() -> None:
    class Divides(lightning.pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 2)

        def training_step(self, batch: Any, index: int) -> Any:
            return F.cross_entropy(self.net(batch[0]), batch[1]) / 4

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    with scouted() as seen:
        fit(Divides(), validates=False, max_epochs=3, accumulate_grad_batches=4, limit_train_batches=8)
    where = seen.findings["accumulation-mismatch"].where
    assert where.code.strip() == "return F.cross_entropy(self.net(batch[0]), batch[1]) / 4"


@pytest.mark.parametrize("wrong", [True, False])
def test_a_generator_whose_optimizer_never_steps(wrong: bool) -> None:
    class Gan(lightning.pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.made, self.judge = nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 1))

        def training_step(self, batch: Any, index: int) -> None:
            first, second = self.optimizers()
            fake = self.made(torch.randn(len(batch[0]), 4))
            second.zero_grad()
            self.manual_backward(
                F.softplus(-self.judge(batch[0])).mean() + F.softplus(self.judge(fake.detach())).mean()
            )
            second.step()
            first.zero_grad()
            self.manual_backward(F.softplus(-self.judge(fake)).mean())
            (second if wrong else first).step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.made, self.judge)]

    torch.manual_seed(0)
    with scouted() as seen:
        fit(Gan(), validates=False)
    assert seen.alarms == (["missing-step"] if wrong else [])


# -- the callback ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TREES)
def test_the_callback_watches_a_fit(name: str) -> None:
    tree, memory = TREES[name], Memory()
    plain, net = module(tree), module(tree)
    fit(plain, tree)
    callback = SeismogradCallback(sinks=[memory], store=False, strict=True)
    trainer = fit(net, tree, callbacks=[callback])
    assert callback.watch is not None
    assert callback.watch.closed
    report = callback.watch.report()
    assert (report["run"]["status"], report["run"]["steps"], report["run"]["name"]) == ("healthy", 33, "Net")
    assert trainer.global_step == 33
    assert memory.series("loss")[1] == pytest.approx(net.losses, rel=1e-5)
    assert memory.series("val_loss")[1] == pytest.approx(net.validated)
    assert len(memory.series("logged/train_loss")[1]) >= 2
    assert patches.listeners() == ()
    for mine, other in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, other), "training is the same, bit by bit"


def test_the_callback_stops_a_fit_that_is_lost() -> None:
    callback = SeismogradCallback(sinks=[], store=False, strict=True, stop_on="critical")
    trainer = fit(module(spoil_at=5), callbacks=[callback])
    assert callback.watch is not None
    assert trainer.global_step == 6
    assert callback.watch.findings[0].id == "nonfinite-loss"


def test_a_fit_that_fails_ends_the_watch() -> None:
    callback = SeismogradCallback(sinks=[], store=False, strict=True)
    with pytest.raises(ValueError, match="boom"):
        fit(module(raise_at=7), callbacks=[callback])
    assert callback.watch is not None
    assert callback.watch.report()["run"]["exit"]["exception"] == "ValueError: boom"
    assert callback.watch.status == "crashed"
    assert patches.listeners() == ()


def test_a_second_fit_is_a_second_run(tmp_path: Path) -> None:
    from seismograd import runs

    callback = SeismogradCallback(sinks=[], store=tmp_path, strict=True)
    net = module()
    fit(net, callbacks=[callback])
    first = callback.watch
    fit(net, callbacks=[callback])
    assert callback.watch is not first
    assert len(runs(tmp_path)) == 2


def test_a_validation_loss_of_another_name() -> None:
    memory = Memory()
    callback = SeismogradCallback(sinks=[memory], store=False, val_loss="valid")
    fit(module(), callbacks=[callback])
    assert callback.watch is not None
    assert memory.series("val_loss")[1] == []
    (told,) = [event for event in callback.watch.events if event["event_type"] == "no_validation_loss"]
    assert "there is: train_loss, val_loss" in told["message"]


@pytest.mark.slow
def test_the_example_under_run(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples/lightning/train.py"
    command = [sys.executable, "-m", "seismograd", "run", "--store", "off", "--report", "r.json", str(example)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["run"]["status"] == "healthy", done.stderr
    assert report["run"]["steps"] == 120
    sick = subprocess.run([*command, "--sick"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads((tmp_path / "r.json").read_text())["findings"][0]["id"] == "nonfinite-loss", sick.stderr
