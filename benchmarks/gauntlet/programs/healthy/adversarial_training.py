"""Madry-style training: PGD inside every step (extra forwards and backwards that belong to no step)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
centres = 1.5 * torch.randn(4, 30)


def pgd(x, y, eps=0.3, alpha=0.1, steps=4):
    model.eval()
    delta = torch.empty_like(x).uniform_(-eps, eps)
    for _ in range(steps):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model(x + delta), y)
        (grad,) = torch.autograd.grad(loss, delta)
        delta = (delta.detach() + alpha * grad.sign()).clamp(-eps, eps)
    model.train()
    return (x + delta).detach()


for step in range(150):
    y = torch.randint(0, 4, (32,))
    x = centres[y] + torch.randn(32, 30)
    loss = F.cross_entropy(model(pgd(x, y)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
