"""Started by a link from another folder: its imports come from where the file really is."""

# target: linked/start
# run: status=healthy steps=5
# when: thorough

import os
import sys

import torch
from beside import LR

print(os.path.relpath(sys.path[0]), sys.argv[0], __file__, os.path.islink(__file__))
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
for _ in range(5):
    optimizer.zero_grad()
    loss = (model(torch.ones(3, 1)) - 1).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
torch.save(model.state_dict(), "weights.pt")
