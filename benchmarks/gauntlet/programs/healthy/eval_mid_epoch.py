"""Evaluation every 20 steps in the middle of an epoch, with the modes put back."""

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(15, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
x = torch.randn(1000, 15)
y = (x[:, :3] + 0.4 * torch.randn(1000, 3)).argmax(1)


@torch.no_grad()
def evaluate():
    was = model.training
    model.eval()
    accuracy = (model(x[800:]).argmax(1) == y[800:]).float().mean().item()
    model.train(was)
    return accuracy


step = 0
for epoch in range(6):
    for i in torch.randperm(800).split(32):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(step, loss.item(), evaluate())
