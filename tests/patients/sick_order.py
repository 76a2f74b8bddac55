"""Sick: the order of forward, backward, clipping, step, zero_grad and scheduler."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, OneCycleLR, StepLR

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import sick


def _critic() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


@sick("missing-zero-grad")
def nothing_clears() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@sick("missing-zero-grad")
def cleared_once_an_epoch() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            for x, y in data.loader(*data.blobs()):
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
    return watch


@sick("missing-zero-grad")
def cleared_on_the_wrong_optimizer() -> sg.TrainingDebugger:
    """Two models, each with its optimizer; `zero_grad` is called twice on the first."""
    first, second = mlp(20, 32, 4), mlp(20, 32, 4)
    one = torch.optim.Adam(first.parameters(), lr=1e-3)
    two = torch.optim.Adam(second.parameters(), lr=1e-3)
    with sg.watch([first, second], [one, two], sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            one.zero_grad()
            F.cross_entropy(first(x), y).backward()
            one.step()
            one.zero_grad()
            F.cross_entropy(second(x), y).backward()
            two.step()
    return watch


@sick("lost-gradient")
def cleared_before_the_step() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            F.cross_entropy(model(x), y).backward()
            optimizer.zero_grad()
            optimizer.step()
    return watch


@sick("lost-gradient")
def zeroed_before_the_step() -> sg.TrainingDebugger:
    """In place, by the model."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            F.cross_entropy(model(x), y).backward()
            model.zero_grad(set_to_none=False)
            optimizer.step()
    return watch


@sick("lost-gradient")
def step_before_backward() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            optimizer.step()
            loss.backward()
    return watch


@sick("missing-step")
def step_is_not_called() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 30):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step
    return watch


@sick("missing-step")
def scheduler_steps_alone() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = StepLR(optimizer, 100)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 30):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            schedule.step()
    return watch


@sick("missing-step")
def accumulates_for_ever() -> sg.TrainingDebugger:
    """A step with every 64th batch of an epoch that has 16."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for i, (x, y) in enumerate(data.loader(*data.blobs())):
                (F.cross_entropy(model(x), y) / 64).backward()
                if (i + 1) % 64 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    return watch


@sick("missing-step")
def steps_once_and_never_again() -> sg.TrainingDebugger:
    """A counter that is compared with `==` and never put back."""
    model, count = mlp(20, 32, 4), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 300):
            (F.cross_entropy(model(x), y) / 4).backward()
            count += 1
            if count == 4:
                optimizer.step()
                optimizer.zero_grad()
    return watch


@sick("missing-step")
def one_of_two_never_steps() -> sg.TrainingDebugger:
    """A GAN whose discriminator is forgotten."""
    critic, maker = _critic(), mlp(4, 32, 2)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    with sg.watch([critic, maker], [of_critic, of_maker], sinks=[]) as watch:
        for _ in range(30):
            real, fake = 1 + 0.3 * torch.randn(32, 2), maker(torch.randn(32, 4))
            of_critic.zero_grad()
            (F.softplus(-critic(real)) + F.softplus(critic(fake.detach()))).mean().backward()
            of_maker.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            of_maker.step()
    return watch


@sick("accumulation-mismatch")
def thrown_away_between_batches() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (x, y) in enumerate(data.batches(*data.blobs(), 60)):
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) / 4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
    return watch


@sick("accumulation-mismatch")
def step_only_after_the_epoch() -> sg.TrainingDebugger:
    """`step()` one level too far out: the last batch of each epoch is all that counts."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(6):
            for x, y in data.loader(*data.blobs()):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@sick("accumulation-mismatch")
def loss_not_divided() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(8):
            for i, (x, y) in enumerate(data.loader(*data.blobs())):
                F.cross_entropy(model(x), y).backward()
                if (i + 1) % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    return watch


@sick("ineffective-clipping")
def clipped_after_the_step() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            clip_grad_norm_(model.parameters(), 1.0)
    return watch


@sick("ineffective-clipping")
def clipped_while_scaled() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return watch


@sick("ineffective-clipping")
def clips_a_used_up_generator() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    parameters = model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            clip_grad_norm_(list(parameters), 1.0)
            optimizer.step()
    return watch


@sick("scheduler-order")
def scheduler_before_optimizer() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.step()  # keeps torch from warning
    schedule = CosineAnnealingLR(optimizer, 40)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            schedule.step()
            optimizer.step()
    return watch


@sick("scheduler-order")
def epochs_schedule_with_every_batch() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = StepLR(optimizer, step_size=3, gamma=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(6):
            for x, y in data.loader(*data.blobs()):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                schedule.step()
    return watch


@sick("scheduler-order")
def decay_with_every_batch() -> sg.TrainingDebugger:
    """Gamma of 0.9, meant for each of ten epochs, and no loader."""
    model = mlp(20, 32, 4)
    x, y = data.blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = ExponentialLR(optimizer, 0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            schedule.step()
    return watch


@sick("scheduler-order")
def batches_schedule_with_every_epoch() -> sg.TrainingDebugger:
    """`OneCycleLR` for all batches, stepped once an epoch: it stays in its warm-up."""
    model = mlp(20, 32, 4)
    x, y = data.blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = data.loader(x, y)
    schedule = OneCycleLR(optimizer, max_lr=0.1, epochs=8, steps_per_epoch=len(loader))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(8):
            for xb, yb in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            schedule.step()
    return watch
