"""Plain loops of Accelerate, as they are, and with our tracker."""

from __future__ import annotations

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seismograd import patches
from seismograd.integrations.accelerate import SeismogradTracker
from seismograd.sinks import Memory

from .scouted import scouted

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _fresh_state():
    """What Accelerate keeps for the whole process is not of the test before."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def data(rows=88, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 8, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def train(accelerator, *, clip=None, validates=False, epochs=4, held=None, spoil=None, lr=1e-2, begin=None):
    """An ordinary loop; gives for each step the mean loss of its batches and the norm before clipping."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters() if held is None else held(model), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, total_iters=20)
    loader = DataLoader(data(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    held_out = accelerator.prepare(DataLoader(data(24, seed=5), batch_size=8))
    if begin is not None:
        begin(model, optimizer)
    loss_fn, steps, losses, validated, number = nn.CrossEntropyLoss(), [], [], [], 0
    for _ in range(epochs):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = loss_fn(model(x), y)
                if spoil is not None:
                    loss = spoil(loss, number)
                number += 1
                accelerator.backward(loss)
                losses.append(loss.item())
                if accelerator.sync_gradients:
                    norm = float(accelerator.clip_grad_norm_(model.parameters(), clip or 1e9))
                    steps.append((sum(losses) / len(losses), norm))
                    losses = []
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        if validates:
            model.eval()
            with torch.no_grad():
                seen = [loss_fn(model(x), y).item() for x, y in held_out]
            validated.append(sum(seen) / len(seen))
    return model, steps, validated


HEALTHY = {
    "plain": ({}, {}),
    "clipped": ({}, {"clip": 0.1}),
    "accumulated": ({"gradient_accumulation_steps": 3}, {}),
    "uneven": ({"gradient_accumulation_steps": 2}, {"clip": 0.1}),
    "bfloat16": ({"mixed_precision": "bf16"}, {}),
    "validated": ({"gradient_accumulation_steps": 2}, {"validates": True}),
    "all": ({"gradient_accumulation_steps": 2}, {"clip": 1.0, "validates": True, "epochs": 6}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_loop_has_its_own_numbers_and_no_alarm(name):
    made, more = HEALTHY[name]
    accelerator = Accelerator(cpu=True, **made)
    with scouted() as seen:
        _, steps, validated = train(accelerator, **more)
    assert seen.series("loss") == pytest.approx([loss for loss, _ in steps], rel=1e-4)
    assert seen.series("grad/norm") == pytest.approx([norm for _, norm in steps], rel=1e-3)
    assert seen.series("val_loss") == pytest.approx(validated, rel=1e-4)
    assert sum(seen.series("time/data")) > 0
    assert seen.alarms == []


def spoiled(loss, number):
    return loss * math.nan if number >= 5 else loss


@pytest.mark.parametrize(
    ("fault", "more"),
    [
        ("nonfinite-loss", {"spoil": spoiled}),
        ("unoptimized-parameter", {"held": lambda model: list(model[0].parameters())}),
        ("loss-explosion", {"lr": 3e3}),
    ],
)
def test_a_sick_loop_is_found(fault, more):
    with scouted() as seen:
        train(Accelerator(cpu=True, gradient_accumulation_steps=2), **more)
    assert fault in seen.findings


def test_the_tracker_watches_and_takes_what_is_logged():
    memory = Memory(limit=1000)
    tracker = SeismogradTracker(level="basic", store=False, sinks=[memory], strict=True)
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("run", config={"lr": 0.01})

    def begin(model, optimizer):
        tracker.watch(model, optimizer)
        accelerator.log({"loss": 0.5, "accuracy": 0.25, "note": "text"}, step=0)
        accelerator.log({"val_loss": 0.75}, step=0)

    watched, steps, _ = train(accelerator, begin=begin)
    assert accelerator.get_tracker("seismograd", unwrap=True) is tracker.tracker
    accelerator.end_training()
    assert tracker.tracker.closed
    assert not patches.listeners()
    assert memory.series("loss")[1] == pytest.approx([loss for loss, _ in steps])
    assert memory.series("logged/accuracy")[1] == [0.25]
    assert memory.series("logged/loss")[1] == [0.5]
    assert memory.series("val_loss")[1] == [0.75]
    plain, _, _ = train(Accelerator(cpu=True))
    for ours, theirs in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_logging_before_anything_is_watched_says_what_to_do():
    with pytest.warns(RuntimeWarning, match=r"tracker\.watch\(model, optimizer\)"):
        SeismogradTracker().log({"loss": 1.0})


def test_a_loop_that_raises_leaves_nothing_attached():
    tracker, model = SeismogradTracker(store=False, sinks=[]), net()
    with pytest.raises(KeyError), tracker.watch(model):
        raise KeyError("batch")
    assert not patches.listeners()
    assert tracker.tracker.status == "crashed"
