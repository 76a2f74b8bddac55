"""Early stopping on a validation loss computed with dropout on, in a trainer with callbacks."""
# expects: train-mode-evaluation

import copy

import torch
import torch.nn as nn


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.state = patience, float("inf"), 0, None

    def __call__(self, loss, model):
        if loss < self.best:
            self.best, self.bad, self.state = loss, 0, copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad > self.patience


@torch.no_grad()
def evaluate(model, x, y):
    return nn.functional.mse_loss(model(x), y).item()


torch.manual_seed(0)
x = torch.randn(700, 10)
y = torch.sin(x[:, :1]) + 0.2 * torch.randn(700, 1)
net = nn.Sequential(nn.Linear(10, 96), nn.ReLU(), nn.Dropout(0.5), nn.Linear(96, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
stop = EarlyStopping(patience=8)
net.train()
for epoch in range(25):
    for i in torch.randperm(500).split(25):
        loss = nn.functional.mse_loss(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    value = evaluate(net, x[500:], y[500:])
    if stop(value, net):
        break
print(epoch, stop.best)
