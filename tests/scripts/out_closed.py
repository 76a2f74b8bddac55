"""Closes its streams when it has nothing more to say."""

# run: status=healthy steps=6
# when: thorough

import sys

import torch

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
sys.stdin.close()
sys.stdout.close()
