"""Federated averaging: every round each client trains a copy of the global model for a few steps."""
# run: status=healthy steps=64 runs=any
# when: thorough
import copy

import torch
from torch import nn

torch.manual_seed(0)
w = torch.randn(8, 1)
clients = []
for c in range(4):
    x = torch.randn(40, 8) + 0.3 * c
    clients.append((x, x @ w + 0.1 * torch.randn(40, 1)))

global_model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def local_update(model, x, y, steps=4):
    model = copy.deepcopy(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for k in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(model(x[k * 10:k * 10 + 10]), y[k * 10:k * 10 + 10]).backward()
        opt.step()
    return model.state_dict()


for rnd in range(4):
    states = [local_update(global_model, x, y) for x, y in clients]
    global_model.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})
    with torch.no_grad():
        print(rnd, [round(nn.functional.mse_loss(global_model(x), y).item(), 5) for x, y in clients])
torch.save(global_model.state_dict(), "global.pt")
