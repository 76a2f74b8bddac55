"""Handlers at exit after an error: the traceback comes first, and one of the handlers fails as well."""

# exit: 1
# stderr: RuntimeError: out of patience
# exception: RuntimeError: out of patience
# run: status=crashed steps=3
# when: thorough

import atexit
import sys

import torch


def save():
    print("saving; the last error was", type(getattr(sys, "last_value", None)).__name__)
    torch.save(model.state_dict(), "weights.pt")


def broken():
    print("failing")
    raise OSError("disk is full")


atexit.register(save)
atexit.register(broken)

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    if step == 3:
        raise RuntimeError("out of patience")
    optimizer.zero_grad()
    model(torch.ones(2, 1)).sum().pow(2).backward()
    optimizer.step()
