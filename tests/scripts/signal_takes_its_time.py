"""Catches SIGTERM, finishes what it is at, which takes a while, and saves."""

# run: status=healthy steps=any
# when: thorough

import os
import signal
import threading
import time

import torch

asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 4)

for step in range(8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
    optimizer.step()
    if step == 4:
        os.kill(os.getpid(), signal.SIGTERM)
print("asked to stop:", asked.is_set())
time.sleep(2)
torch.save(model.state_dict(), "weights.pt")
print("saved")
