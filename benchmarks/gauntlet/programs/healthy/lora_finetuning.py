"""LoRA: base weights frozen, A random, B zero."""

import math

import torch
import torch.nn as nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.empty(rank, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.A.T @ self.B.T) * self.scale


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 6))
x = torch.randn(900, 20)
y = x[:, :6].argmax(1)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for i in torch.randperm(900).split(30):  # "pretraining"
    loss = nn.functional.cross_entropy(model(x[i]), y[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for at in (0, 2):
    model[at] = LoRALinear(model[at])
model[4].requires_grad_(False)
y = (x[:, :6] + x[:, 6:12]).argmax(1)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
for epoch in range(6):
    for i in torch.randperm(900).split(30):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
