"""An excepthook that calls sys.exit with a code of its own, and a default hook that is called on the way."""

# exit: 9
# stderr: RuntimeError: the loss is gone
# run: status=crashed steps=1
# when: thorough

import sys

import torch


def hook(kind, error, tb):
    sys.__excepthook__(kind, error, tb)
    print("exit with 9")
    sys.exit(9)


sys.excepthook = hook
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 1)).sum().backward()
optimizer.step()
raise RuntimeError("the loss is gone")
