"""Healthy: learning rates that move, and everything that is done to gradients on their way."""

from __future__ import annotations

import copy
import math

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy


def scheduled(
    optimizer: torch.optim.Optimizer, scheduler: object, model: nn.Module, steps: int = 500
) -> sg.TrainingDebugger:
    x, y = data.blobs(1024, 20, 6, spread=1.3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, steps):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            scheduler.step()  # type: ignore[attr-defined]
    return watch


@healthy()
def warmup_from_zero() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return scheduled(optimizer, lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 200)), model)


@healthy()
def long_warmup() -> sg.TrainingDebugger:
    """Warm-up over 2000 steps of which the run has only done 500: hardly any progress yet."""
    model = mlp(20, 64, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return scheduled(optimizer, lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 2000)), model)


@healthy()
def linear_warmup_and_decay() -> sg.TrainingDebugger:
    """The Transformers library's default: up for a tenth, down to zero."""
    model = mlp(20, 64, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    shape = lr_scheduler.LambdaLR(optimizer, lambda s: min(s / 50, max(0.0, (500 - s) / 450)))
    return scheduled(optimizer, shape, model)


@healthy()
def noam() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    shape = lr_scheduler.LambdaLR(optimizer, lambda s: 64**-0.5 * min((s + 1) ** -0.5, (s + 1) * 400**-1.5))
    return scheduled(optimizer, shape, model, 800)


@healthy()
def cosine_to_zero() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return scheduled(optimizer, lr_scheduler.CosineAnnealingLR(optimizer, T_max=500), model)


@healthy()
def warm_restarts() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return scheduled(optimizer, lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=60, T_mult=2), model, 900)


@healthy()
def one_cycle() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return scheduled(optimizer, lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=500), model, 500)


@healthy()
def cyclic() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return scheduled(
        optimizer, lr_scheduler.CyclicLR(optimizer, base_lr=1e-3, max_lr=0.1, step_size_up=100), model, 800
    )


@healthy()
def step_decay() -> sg.TrainingDebugger:
    """StepLR with a tenth every two epochs: in the end the rate is 1e-6, as in many examples."""
    x, y = data.blobs(800, 20, 6)
    model = mlp(20, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(12):
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            scheduler.step()
    return watch


@healthy()
def mnist_example_decay() -> sg.TrainingDebugger:
    """Adadelta at 1.0 and StepLR(1, gamma=0.7), as in pytorch/examples."""
    x, y = data.images(640)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10), nn.LogSoftmax(1))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(12):
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.nll_loss(model(xb), yb).backward()
                optimizer.step()
            scheduler.step()
    return watch


@healthy()
def reduce_on_plateau() -> sg.TrainingDebugger:
    """ReduceLROnPlateau on a noisy validation loss: it falls several times, down to 1e-7 at the end."""
    x, y = data.regression(600, noise=0.5)
    model = mlp(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            for xb, yb in data.loader(x[:400], y[:400], 64):
                optimizer.zero_grad()
                F.mse_loss(model(xb), yb).backward()
                optimizer.step()
            with torch.no_grad():
                scheduler.step(F.mse_loss(model(x[400:]), y[400:]))
    return watch


@healthy()
def polynomial_decay_full_run() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return scheduled(optimizer, lr_scheduler.PolynomialLR(optimizer, total_iters=500, power=2.0), model)


@healthy()
def exponential_decay() -> sg.TrainingDebugger:
    model = mlp(20, 64, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return scheduled(optimizer, lr_scheduler.ExponentialLR(optimizer, gamma=0.99), model, 600)


@healthy()
def freeze_then_unfreeze() -> sg.TrainingDebugger:
    """Head first, then the whole model at a tenth of the rate in a new group."""
    x, y = data.images(512)
    body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    model = nn.Sequential(body, nn.Linear(128, 10))
    body.requires_grad_(False)
    optimizer = torch.optim.Adam(model[1].parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for epoch in range(20):
            if epoch == 10:
                body.requires_grad_(True)
                optimizer.add_param_group({"params": list(body.parameters()), "lr": 3e-4})
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
    return watch


@healthy()
def discriminative_rates() -> sg.TrainingDebugger:
    """Three groups with rates 1e-5, 1e-4, 1e-3, as fastai does."""
    x, y = data.blobs()
    model = mlp(20, 64, 64, 4)
    groups = [{"params": model[at].parameters(), "lr": lr} for at, lr in ((0, 1e-5), (2, 1e-4), (4, 3e-3))]
    optimizer = torch.optim.Adam(groups)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def clipping_every_step() -> sg.TrainingDebugger:
    """Gradients of some hundreds, clipped to 1 at every step."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, 30 * y, 800):
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return watch


@healthy()
def accumulation() -> sg.TrainingDebugger:
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 1200, 8)):
            (F.cross_entropy(model(xb), yb) / 4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    return watch


@healthy()
def sharpness_aware() -> sg.TrainingDebugger:
    """SAM: two backwards for each step, the second at weights that were moved uphill."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            F.cross_entropy(model(xb), yb).backward()
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
                moved = [0.05 * p.grad / norm for p in model.parameters()]
                for p, e in zip(model.parameters(), moved, strict=True):
                    p.add_(e)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            with torch.no_grad():
                for p, e in zip(model.parameters(), moved, strict=True):
                    p.sub_(e)
            optimizer.step()
            optimizer.zero_grad()
    return watch


@healthy()
def amp_bfloat16() -> sg.TrainingDebugger:
    x, y = data.images()
    model = nn.Sequential(nn.Flatten(), *mlp(144, 64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def grad_scaler_settling() -> sg.TrainingDebugger:
    """A scaler that starts at 2**24: the first steps are skipped until it fits, and one now and then after growth."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=60)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(xb), yb)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return watch


@healthy()
def bfloat16_weights() -> sg.TrainingDebugger:
    """The whole model in bfloat16, with a rate large enough for it."""
    x, y = data.blobs()
    model = mlp(20, 64, 4).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x.bfloat16(), y, 400):
            optimizer.zero_grad()
            F.cross_entropy(model(xb).float(), yb).backward()
            optimizer.step()
    return watch


@healthy()
def bfloat16_adamw() -> sg.TrainingDebugger:
    """bfloat16 weights with AdamW at 1e-3 and its usual decay, which rounds many updates away and still learns."""
    x, y = data.blobs()
    model = mlp(20, 128, 128, 4).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x.bfloat16(), y, 500):
            optimizer.zero_grad()
            F.cross_entropy(model(xb).float(), yb).backward()
            optimizer.step()
    return watch


@healthy()
def weight_averaging() -> sg.TrainingDebugger:
    """SWA: a constant, rather high rate in the second half, and an averaged copy beside the model."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scheduler = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.1, anneal_epochs=5)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for epoch in range(24):
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            if epoch > 12:
                averaged.update_parameters(model)
                scheduler.step()
    return watch


@healthy()
def strong_but_fair_decay() -> sg.TrainingDebugger:
    """AdamW with decay 0.1 over a long run: weights shrink, the loss stays low."""
    x, y = data.blobs(512, 20, 4, spread=0.7)
    model = mlp(20, 128, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 1200):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def mean_teacher() -> sg.TrainingDebugger:
    """A student, its slow copy as teacher, and a consistency loss whose weight is ramped up."""
    x, y = data.blobs()
    student = mlp(20, 64, 4)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    with sg.watch(student, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 500)):
            noisy, other = xb + 0.2 * torch.randn_like(xb), xb + 0.2 * torch.randn_like(xb)
            out = student(noisy)
            weight = 5.0 * math.exp(-5.0 * (1 - min(1.0, i / 200)) ** 2)
            gap = F.mse_loss(out.softmax(1), teacher(other).softmax(1))
            loss = F.cross_entropy(out[:8], yb[:8]) + weight * gap
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                    slow.lerp_(fast, 0.02)
    return watch


@healthy()
def curriculum() -> sg.TrainingDebugger:
    """Every 120 steps the task gets harder and the loss goes up, six times."""
    model = mlp(8, 64, 64, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i in range(840):
            many = 2 + i // 120
            x = torch.randn(32, 8)
            y = x[:, :many].argmax(1)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def task_after_task() -> sg.TrainingDebugger:
    """Continual learning: five tasks one after the other, each with its own permutation of the inputs."""
    x, y = data.blobs(512, 20, 4, spread=0.6)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            order: Tensor = torch.randperm(20)
            for xb, yb in data.batches(x[:, order], y, 150):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
    return watch


@healthy()
def gradient_checkpointing() -> sg.TrainingDebugger:
    x, y = data.blobs()
    model = mlp(20, 64, 64, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 250):
            optimizer.zero_grad()
            out = torch.utils.checkpoint.checkpoint_sequential(model, 2, xb, use_reentrant=False)
            F.cross_entropy(out, yb).backward()
            optimizer.step()
    return watch
