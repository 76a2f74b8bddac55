"""Skips batches that fail, and prints the traceback of each, as one does."""

# run: status=healthy steps=8
# when: thorough

import sys
import traceback

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        if x.shape[0] == 1:
            raise ValueError("a batch of one has no variance")
        return torch.relu(self.linear(x)) + x


torch.manual_seed(0)
model = nn.Sequential(Block(4), Block(4), nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step, size in enumerate([4, 4, 1, 4, 4, 4, 1, 4, 4, 4]):
    x = torch.randn(size, 4)
    optimizer.zero_grad()
    try:
        loss = model(x).sub(x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
    except ValueError:
        print(f"step {step} failed:")
        traceback.print_exc(file=sys.stdout)
        frames = traceback.extract_tb(sys.exc_info()[2])
        print([frame.name for frame in frames])
    else:
        print(f"step {step} {loss.item():.4f}")

try:
    loss.backward()
except RuntimeError as error:
    print(str(error).split(" (")[0])
    print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
try:
    torch.optim.SGD(model.parameters(), lr=-1)
except ValueError as error:
    print(error, [frame.name for frame in traceback.extract_tb(error.__traceback__)])
torch.save(model.state_dict(), "weights.pt")
