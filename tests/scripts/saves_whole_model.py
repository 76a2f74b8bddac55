"""Saves the module itself, not its state, in the middle of training; copies it; goes on with what it loaded."""
# run: status=healthy steps=any runs=any
# when: thorough
# findings: none
import copy
import pickle

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def train(net, steps):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == steps // 2:
            torch.save(net, f"net{steps}.pt")
            print(len(pickle.dumps(net)), len(pickle.dumps(copy.deepcopy(net))), len(net._forward_hooks), len(net._forward_pre_hooks))
    print(loss.item())


torch.manual_seed(0)
x = torch.randn(64, 5)
y = x.sum(1, keepdim=True)
train(Net(), 20)
again = torch.load("net20.pt", weights_only=False)
print(again, len(again._forward_hooks))
train(again, 15)
torch.save(again, "last.pt")
