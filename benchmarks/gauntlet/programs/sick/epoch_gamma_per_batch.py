"""ExponentialLR(0.9), meant per epoch, inside the batch loop of a Trainer class."""
# expects: scheduler-order, lr-jump, lr-too-low

import torch
import torch.nn as nn


class Trainer:
    def __init__(self, model, data, lr=3e-3, gamma=0.9):
        self.model, self.data = model, data
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, gamma)

    def step(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.item()

    def run(self, epochs):
        for epoch in range(epochs):
            losses = [self.step(x, y) for x, y in self.data]
            print(epoch, sum(losses) / len(losses), self.sched.get_last_lr()[0])


torch.manual_seed(0)
xs = torch.randn(60, 32, 8)
ys = torch.sin(3 * xs[..., :1]) * xs[..., 1:2]
Trainer(nn.Sequential(nn.Linear(8, 96), nn.GELU(), nn.Linear(96, 1)), list(zip(xs, ys))).run(6)
