"""Healthy: every usual optimizer, and some that are not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import healthy


@healthy()
def adam_default() -> sg.TrainingDebugger:
    model = mlp(20, 64, 64, 4)
    return fit(model, torch.optim.Adam(model.parameters()), *data.blobs())


@healthy()
def sgd_momentum_mlp() -> sg.TrainingDebugger:
    model = mlp(20, 64, 4)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True), *data.blobs())


@healthy()
def rmsprop_regression() -> sg.TrainingDebugger:
    model = mlp(10, 32, 32, 1, activation=nn.Tanh)
    return fit(model, torch.optim.RMSprop(model.parameters(), lr=1e-3), *data.regression(), 500)


@healthy()
def adagrad_mlp() -> sg.TrainingDebugger:
    model = mlp(20, 32, 4)
    return fit(model, torch.optim.Adagrad(model.parameters(), lr=0.05), *data.blobs())


@healthy()
def adadelta_mlp() -> sg.TrainingDebugger:
    """Adadelta with its default rate of 1.0, as in the MNIST example."""
    model = mlp(20, 64, 4)
    return fit(model, torch.optim.Adadelta(model.parameters(), lr=1.0), *data.blobs())


@healthy()
def adamax_spirals() -> sg.TrainingDebugger:
    model = mlp(2, 64, 64, 2)
    return fit(model, torch.optim.Adamax(model.parameters(), lr=0.01), *data.spirals(), 600)


@healthy()
def rprop_full_batch() -> sg.TrainingDebugger:
    x, y = data.regression(256)
    model = mlp(10, 32, 1, activation=nn.Tanh)
    optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(200):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def lbfgs() -> sg.TrainingDebugger:
    x, y = data.regression(200)
    model = mlp(10, 20, 1, activation=nn.Tanh)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(40):
            optimizer.step(closure)
    return watch


class Lion(torch.optim.Optimizer):
    """A hand-written optimizer: the sign of the momentum."""

    def __init__(self, params: object, lr: float = 1e-4, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (0.9 * m + 0.1 * p.grad).sign())
                m.mul_(0.99).add_(p.grad, alpha=0.01)


@healthy()
def lion() -> sg.TrainingDebugger:
    model = mlp(20, 64, 64, 4)
    return fit(model, Lion(model.parameters(), lr=3e-4, weight_decay=0.1), *data.blobs(), 400)


@healthy()
def update_by_hand() -> sg.TrainingDebugger:
    """No optimizer at all: `p -= lr * p.grad`, as in the introduction."""
    x, y = data.blobs()
    model = mlp(20, 50, 4)
    with sg.watch(model, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            loss = F.cross_entropy(model(xb), yb)
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.05 * p.grad)
    return watch
