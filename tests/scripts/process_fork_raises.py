"""A forked child dies of an exception: it writes a traceback, and only the parent goes on."""

# stderr: AssertionError: the child is not well
# run: status=healthy steps=5
# when: thorough

import atexit
import os

import torch

torch.set_num_threads(1)
atexit.register(lambda: print("at exit in the", role, flush=True))
role = "parent"
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(2, 3)).pow(2).sum().backward()
    optimizer.step()
    if step == 2 and not (child := os.fork()):
        role = "child"
        raise AssertionError("the child is not well")
    if step == 2:
        print("child left with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
torch.save(model.state_dict(), "weights.pt")
