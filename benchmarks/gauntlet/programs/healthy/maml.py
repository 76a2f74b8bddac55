"""First-order-free MAML with functional_call: inner gradients with create_graph."""

import torch
import torch.nn as nn
from torch.func import functional_call

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 1))
meta = torch.optim.Adam(model.parameters(), lr=2e-3)


def task():
    amplitude, phase = torch.rand(1) * 3 + 0.5, torch.rand(1) * 3

    def sample(n):
        x = torch.rand(n, 1) * 6 - 3
        return x, amplitude * torch.sin(x + phase)

    return sample


for step in range(120):
    outer = 0.0
    for _ in range(4):
        sample = task()
        x, y = sample(10)
        params = dict(model.named_parameters())
        loss = nn.functional.mse_loss(functional_call(model, params, x), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        adapted = {k: p - 0.02 * g for (k, p), g in zip(params.items(), grads)}
        x, y = sample(10)
        outer = outer + nn.functional.mse_loss(functional_call(model, adapted, x), y)
    meta.zero_grad()
    (outer / 4).backward()
    meta.step()
    if step % 30 == 0:
        print(step, outer.item() / 4)
