"""os._exit in the middle of training: nothing is run after it, no atexit handler, no finally."""

# exit: 7
# run: status=healthy steps=10

import atexit
import os
import sys

import torch

atexit.register(print, "never printed")
torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(20):
        optimizer.zero_grad()
        loss = model(torch.eye(3)).sub(torch.eye(3)).pow(2).sum()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.5f}")
        if step == 9:
            torch.save(model.state_dict(), "weights.pt")
            sys.stdout.flush()
            os._exit(7)
finally:
    print("never printed either")
