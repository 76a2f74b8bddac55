"""Keeps a copy of the best model, and an average of all, while it trains; a copy is trained on."""

# run: status=healthy steps=20+10
# when: thorough

import copy

import torch
from torch import nn

torch.manual_seed(6)
x = torch.randn(64, 4)
y = torch.sin(x).sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
best, best_loss = None, float("inf")
for step in range(20):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    if loss.item() < best_loss:
        best, best_loss = copy.deepcopy(model), loss.item()
print(f"best {best_loss:.5f}, average {nn.functional.mse_loss(average(x), y).item():.5f}")

tuned = copy.deepcopy(best)
optimizer = torch.optim.SGD(tuned.parameters(), lr=0.02)
for step in range(10):
    loss = nn.functional.mse_loss(tuned(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"tuned {loss.item():.5f}")
torch.save([model.state_dict(), best.state_dict(), tuned.state_dict(), average.state_dict()], "weights.pt")
