"""Sends file descriptor 1 to a file while it trains, as one does to catch what native code prints."""

# run: status=healthy steps=7
# when: thorough

import os
import sys

import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

sys.stdout.flush()
saved = os.dup(1)
with open("captured.txt", "w") as file:
    os.dup2(file.fileno(), 1)
    for step in range(7):
        optimizer.zero_grad()
        loss = (model(torch.eye(3)) - 2).abs().mean()
        loss.backward()
        optimizer.step()
        os.write(1, b"step %d\n" % step)
        os.system("echo from a shell")
    os.dup2(saved, 1)
os.close(saved)
print(open("captured.txt").read().count("\n"), "lines", f"{loss.item():.5f}")
torch.save(model.state_dict(), "weights.pt")
