"""Healthy: loops that clear, step, clip and schedule in other places than most."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, OneCycleLR, StepLR

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy


def _batches(count: int = 120) -> Iterator[tuple[Tensor, Tensor]]:
    return iter(data.batches(*data.blobs(), count))


@healthy()
def cleared_by_data() -> sg.TrainingDebugger:
    """`p.grad.data.zero_()`, as the first tutorials had it: no version counter tells of it."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.data.zero_()
    return watch


@healthy()
def cleared_in_place_and_by_hand() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for at, (x, y) in enumerate(_batches()):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if at % 2:
                for parameter in model.parameters():
                    parameter.grad *= 0
            else:
                optimizer.zero_grad(set_to_none=False)
    return watch


@healthy()
def adversarial_training() -> sg.TrainingDebugger:
    """Three backwards a step for the attack, cleared each time, and one for the model."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            attacked = x.clone()
            for _ in range(3):
                attacked.requires_grad_(True)
                model.zero_grad()
                F.cross_entropy(model(attacked), y).backward()
                assert attacked.grad is not None
                attacked = (attacked + 0.02 * attacked.grad.sign()).detach()
            optimizer.zero_grad()
            F.cross_entropy(model(attacked), y).backward()
            optimizer.step()
    return watch


@healthy()
def sharpness_aware_by_hand() -> sg.TrainingDebugger:
    """SAM: the weights move to the worst place nearby, the gradient there is used, and they come back."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                steps = [0.01 * p.grad / (p.grad.norm() + 1e-12) for p in model.parameters() if p.grad is not None]
                for parameter, step in zip(model.parameters(), steps, strict=True):
                    parameter.data += step
            optimizer.zero_grad()
            F.cross_entropy(model(x.clone()), y).backward()
            with torch.no_grad():
                for parameter, step in zip(model.parameters(), steps, strict=True):
                    parameter.data -= step
            optimizer.step()
            optimizer.zero_grad()
    return watch


@healthy()
def private_gradients() -> sg.TrainingDebugger:
    """One backward for each sample, cleared in between; the clipped sum is set by hand before the step."""
    model = mlp(20, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in data.batches(*data.blobs(), 25):
            sums = [torch.zeros_like(p) for p in model.parameters()]
            for at in range(16):
                optimizer.zero_grad()
                F.cross_entropy(model(x[at : at + 1]), y[at : at + 1]).backward()
                norm = clip_grad_norm_(model.parameters(), 1.0)
                assert norm >= 0
                sums = [total + p.grad for total, p in zip(sums, model.parameters(), strict=True)]
            for total, parameter in zip(sums, model.parameters(), strict=True):
                parameter.grad = total / 16
            optimizer.step()
    return watch


@healthy()
def several_losses_of_one_batch() -> sg.TrainingDebugger:
    """The discriminator's way: a backward for the real batch, one for the fake one, each a mean, one step."""
    critic, maker = mlp(2, 32, 1), mlp(4, 32, 2)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.02)
    of_maker = torch.optim.SGD(maker.parameters(), lr=0.02)
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    with sg.watch([critic, maker], [of_critic, of_maker], sinks=[]) as watch:
        for _ in range(150):
            fake = maker(torch.randn(32, 4))
            critic.zero_grad()
            F.binary_cross_entropy_with_logits(critic(1 + 0.3 * torch.randn(32, 2)), ones).backward()
            F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros).backward()
            of_critic.step()
            maker.zero_grad()
            F.binary_cross_entropy_with_logits(critic(fake), ones).backward()
            of_maker.step()
    return watch


@healthy()
def weak_discriminator_only() -> sg.TrainingDebugger:
    """The discriminator steps only while it is the weaker one; its gradients are cleared every time."""
    critic, maker = mlp(2, 32, 1), mlp(4, 32, 2)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    with sg.watch([critic, maker], [of_critic, of_maker], sinks=[]) as watch:
        for _ in range(150):
            real, fake = 1 + 0.3 * torch.randn(32, 2), maker(torch.randn(32, 4))
            of_critic.zero_grad()
            loss = (F.softplus(-critic(real)) + F.softplus(critic(fake.detach()))).mean()
            loss.backward()
            if loss > 1.36:
                of_critic.step()
            of_maker.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            of_maker.step()
    return watch


@healthy()
def accumulation_of_divided_losses() -> sg.TrainingDebugger:
    """The last group of each epoch is incomplete, and goes on into the next."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(12):
            for at, (x, y) in enumerate(data.loader(*data.blobs())):
                (F.cross_entropy(model(x), y) / 3).backward()
                if (at + 1) % 3 == 0:
                    clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
    return watch


@healthy()
def groups_that_grow() -> sg.TrainingDebugger:
    """The batch is made larger in the course of the run: 2 parts, 16, and 128 in the end."""
    model, points = mlp(20, 32, 4), data.blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for parts in (2,) * 60 + (16,) * 20 + (128,) * 4:
            optimizer.zero_grad()
            for x, y in data.batches(*points, parts):
                (F.cross_entropy(model(x), y) / parts).backward()
            optimizer.step()
    return watch


@healthy()
def gradients_of_the_whole_epoch() -> sg.TrainingDebugger:
    """Full-batch descent: every batch adds its share, one step an epoch."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = data.loader(*data.blobs())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(30):
            optimizer.zero_grad()
            for x, y in loader:
                (F.cross_entropy(model(x), y) / len(loader)).backward()
            optimizer.step()
    return watch


@healthy()
def saliency_after_training() -> sg.TrainingDebugger:
    """Training, then a hundred backwards for the gradients of inputs, and no step."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        for x, y in _batches():
            wanted = x[:1].clone().requires_grad_(True)
            model.zero_grad()
            model(wanted)[0, y[0]].backward()
    return watch


@healthy()
def own_updates_beside_an_optimizer() -> sg.TrainingDebugger:
    """An optimizer that is only there for its rate; the weights are updated by hand."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.data.sub_(optimizer.param_groups[0]["lr"] * parameter.grad)
    return watch


@healthy()
def head_waits_for_its_time() -> sg.TrainingDebugger:
    """Two optimizers; the one of the trunk begins after 60 of 120 steps."""
    trunk, head = mlp(20, 32, 16), nn.Linear(16, 4)
    of_trunk = torch.optim.SGD(trunk.parameters(), lr=0.02)
    of_head = torch.optim.SGD(head.parameters(), lr=0.05)
    with sg.watch([trunk, head], [of_trunk, of_head], sinks=[]) as watch:
        for at, (x, y) in enumerate(_batches()):
            of_trunk.zero_grad()
            of_head.zero_grad()
            F.cross_entropy(head(trunk(x)), y).backward()
            of_head.step()
            if at >= 60:
                of_trunk.step()
    return watch


@healthy()
def scaled_and_clipped_in_order() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = CosineAnnealingLR(optimizer, 120)
    scaler = torch.amp.GradScaler("cpu", growth_interval=20)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
    return watch


@healthy()
def norm_is_read_by_clipping() -> sg.TrainingDebugger:
    """`clip_grad_norm_` with no limit, after the step, to log the norm."""
    model = mlp(20, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    norms = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for x, y in _batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            norms.append(float(clip_grad_norm_(model.parameters(), float("inf"))))
    return watch


@healthy()
def two_optimizers_of_one_loss_clipped_in_turn() -> sg.TrainingDebugger:
    trunk, head = mlp(20, 32, 16), nn.Linear(16, 4)
    of_trunk = torch.optim.SGD(trunk.parameters(), lr=0.02)
    of_head = torch.optim.SGD(head.parameters(), lr=0.05)
    with sg.watch([trunk, head], [of_trunk, of_head], sinks=[]) as watch:
        for x, y in _batches():
            F.cross_entropy(head(trunk(x)), y).backward()
            clip_grad_norm_(trunk.parameters(), 1.0)
            of_trunk.step()
            clip_grad_norm_(head.parameters(), 1.0)
            of_head.step()
            of_trunk.zero_grad()
            of_head.zero_grad()
    return watch


@healthy()
def schedules_by_batch_and_by_epoch() -> sg.TrainingDebugger:
    """Milestones in batches, on purpose; another run's `OneCycleLR` by batch, `StepLR` by epoch."""
    x, y = data.blobs()
    loader = data.loader(x, y)
    for at in range(3):
        model = mlp(20, 32, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        by_batch = (
            lambda: OneCycleLR(optimizer, max_lr=0.1, total_steps=8 * len(loader)),  # noqa: B023
            lambda: MultiStepLR(optimizer, [4 * len(loader), 6 * len(loader)]),  # noqa: B023
            lambda: LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20)),  # noqa: B023
        )[at]()
        by_epoch = StepLR(optimizer, 3, gamma=0.5)
        with sg.watch(model, optimizer, sinks=[]) as watch:
            for _ in range(8):
                for xb, yb in loader:
                    optimizer.zero_grad()
                    F.cross_entropy(model(xb), yb).backward()
                    optimizer.step()
                    by_batch.step()
                by_epoch.step()
        if watch.findings:
            break
    return watch
