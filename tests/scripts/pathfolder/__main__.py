"""A folder with a __main__.py, run as `python pathfolder`: the folder is where it imports from."""

# target: pathfolder
# args: 3
# run: status=healthy steps=6
# when: thorough

print(sorted(globals()))

import os
import sys

import torch
from parts import WIDTH

print(__name__, repr(__package__), __spec__.name, os.path.relpath(__file__), sys.argv)
print(sys.path[0], type(__loader__).__name__, sys.modules["__main__"].__dict__ is globals())
torch.manual_seed(0)
model = torch.nn.Linear(WIDTH, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(WIDTH):
    optimizer.zero_grad()
    loss = (model(torch.eye(WIDTH)) - 1).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
torch.save(model.state_dict(), "weights.pt")
