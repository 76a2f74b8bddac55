"""Starts itself again in place, with another environment, before it trains: os.execv."""

# run: none
# when: thorough

import os
import sys

if "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    print("again", flush=True)
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.eye(2)).square().sum()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
torch.save(model.state_dict(), "weights.pt")
