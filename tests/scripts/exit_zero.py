"""Ends with sys.exit() when the loss is small enough."""

# run: status=healthy steps=8
# when: thorough

import sys

import torch

torch.manual_seed(0)
w = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(w.parameters(), lr=0.3)
x = torch.linspace(-1, 1, 16).view(-1, 1)
for step in range(1000):
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(w(x), 2 * x)
    loss.backward()
    opt.step()
    if step == 7:
        print("good enough", f"{loss.item():.5f}")
        torch.save(w.state_dict(), "weights.pt")
        sys.exit()
