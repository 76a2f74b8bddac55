"""Healthy, right beside a limit: floors at the loss of guessing, weights that rest on purpose, rewards that grow."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import pretrained
from patients.register import healthy


def weak_classes(classes: int, strength: float, steps: int) -> sg.TrainingDebugger:
    """Labels that the inputs hardly tell: what can be learned ends a little below log(classes)."""
    x = torch.randn(6000, 12)
    y = torch.distributions.Categorical(logits=strength * x @ torch.randn(12, classes)).sample()
    model = mlp(12, 64, classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, steps, 128):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def weak_ten_classes() -> sg.TrainingDebugger:
    return weak_classes(10, 0.08, 600)


@healthy()
def weak_three_classes() -> sg.TrainingDebugger:
    """The outcome of a match: 1.0986 to about 1.07."""
    return weak_classes(3, 0.08, 600)


@healthy()
def floor_at_chance_of_others() -> sg.TrainingDebugger:
    """A language with branches of about eight: the loss falls from log 50 to log 8, and stays."""
    follow = torch.stack([torch.randperm(50)[:8] for _ in range(50)])
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(700):
            x = torch.randint(0, 50, (256,))
            y = follow[x, torch.randint(0, 8, (256,))]
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def biases_only() -> sg.TrainingDebugger:
    """BitFit: all weights are frozen, only biases are trained."""
    model, x, y = pretrained()
    for name, p in model.named_parameters():
        p.requires_grad_(name.endswith("bias"))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    return fit(model, optimizer, x + 1.0, y)


@healthy()
def backbone_with_rate_zero() -> sg.TrainingDebugger:
    """The backbone's group has a rate of zero for now: a way to freeze that many scripts use."""
    model, x, y = pretrained()
    model[4] = nn.Linear(64, 4)
    body = [*model[0].parameters(), *model[2].parameters()]
    optimizer = torch.optim.Adam([{"params": body, "lr": 0.0}, {"params": model[4].parameters()}], lr=1e-3)
    return fit(model, optimizer, x, 3 - y)


@healthy()
def profit_maximised() -> sg.TrainingDebugger:
    """A differentiable simulation: the profit grows from nothing to some thousands, where it has its best."""
    best = 30 * torch.randn(8)
    policy = mlp(4, 32, 8)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    with sg.watch(policy, optimizer, sinks=[]) as watch:
        for _ in range(500):
            amount = policy(torch.randn(32, 4) + 2)
            profit = (2 * best * amount - amount**2).sum(1).mean()
            optimizer.zero_grad()
            (-profit).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optimizer.step()
    return watch


@healthy()
def values_of_large_rewards() -> sg.TrainingDebugger:
    """TD learning with rewards of 10: the error is nothing at first and grows with the values, until they settle."""
    value = mlp(4, 64, 1)
    slow = copy.deepcopy(value).requires_grad_(False)
    optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
    with sg.watch(value, optimizer, sinks=[]) as watch:
        for i in range(800):
            state = torch.randn(64, 4)
            reward = 10.0 * (state[:, :1] > 0.5) if i > 10 else torch.zeros(64, 1)
            goal = reward + 0.95 * slow(0.8 * state + 0.6 * torch.randn(64, 4))
            optimizer.zero_grad()
            F.mse_loss(value(state), goal).backward()
            optimizer.step()
            if i % 25 == 24:
                slow.load_state_dict(value.state_dict())
    return watch


@healthy()
def adversarial_training_switched_on() -> sg.TrainingDebugger:
    """Clean batches first, attacked ones from step 15 on: the loss leaps up once and stays well above its start."""
    x, y = data.blobs(512, 20, 4, spread=0.4)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 400)):
            if i >= 15:
                probe = xb.clone().requires_grad_(True)
                (slope,) = torch.autograd.grad(F.cross_entropy(model(probe), yb), probe)
                step: Tensor = 2.0 * slope.sign()
            else:
                step = torch.zeros_like(xb)
            optimizer.zero_grad()
            F.cross_entropy(model(xb + step), yb).backward()
            optimizer.step()
    return watch


@healthy()
def strong_decay_by_design() -> sg.TrainingDebugger:
    """Ridge regression as weight decay of 1: the weights shrink, the fit is what was asked for."""
    x, y = data.regression(400, noise=0.5)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, weight_decay=1.0)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(400):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def small_validation_rise() -> sg.TrainingDebugger:
    """Validation rises by a percent or so of what was gained, as in nearly every run that is trained to its end."""
    x, y = data.blobs(1200, 20, 4, spread=1.0)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(25):
            for xb, yb in data.loader(x[:800], y[:800]):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            with torch.no_grad():
                watch.validate(F.cross_entropy(model(x[800:]), y[800:]))
    return watch
