"""Wants no output at all on stderr: closes it, and its file descriptor, before it trains."""

# options: --quiet
# run: status=healthy steps=6
# when: thorough

import os
import sys

import torch

sys.stderr.close()
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.eye(2)).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
torch.save(model.state_dict(), "weights.pt")
