"""Backpropagates through tens of thousands of operations in a row."""

# run: status=healthy steps=4
# when: thorough

import torch

w = torch.nn.Parameter(torch.ones(3) * 0.5)
optimizer = torch.optim.SGD([w], lr=1e-4)
for _ in range(4):
    h = torch.zeros(3)
    for _ in range(30000):
        h = h * 0.99 + w * 0.01
    loss = (h - 1).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
torch.save(w.detach(), "weights.pt")
