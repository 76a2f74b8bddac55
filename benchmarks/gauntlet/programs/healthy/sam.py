"""Sharpness-aware minimisation: up, second backward, down."""

import torch
import torch.nn as nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                e = p.grad * group["rho"] / (norm + 1e-12)
                self.state[p]["old"] = p.data.clone()
                p.add_(e)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
x = torch.randn(900, 12)
y = (x[:, :3] + 0.4 * torch.randn(900, 3)).argmax(1)
for epoch in range(5):
    for i in torch.randperm(900).split(30):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        optimizer.first_step()
        nn.functional.cross_entropy(model(x[i]), y[i]).backward()
        optimizer.second_step()
    print(epoch, loss.item())
