"""os.fork in the middle of training: the child trains on for a while and leaves with sys.exit."""

# run: status=healthy steps=8

import os
import sys

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    x = torch.randn(8, 3)
    optimizer.zero_grad()
    loss = (model(x) - x[:, 1:2]).square().mean()
    loss.backward()
    optimizer.step()
    return f"{loss.item():.5f}"


for _ in range(4):
    last = step()
print("before", last, flush=True)
if os.fork() == 0:
    print("child", [step() for _ in range(3)][-1])
    sys.exit(6)
_, status = os.wait()
print("child left with", os.waitstatus_to_exitcode(status))

sys.stdout.flush()
if os.fork() == 0:
    raise SystemExit
print("second child left with", os.waitstatus_to_exitcode(os.wait()[1]))
for _ in range(4):
    last = step()
print("after", last)
torch.save(model.state_dict(), "weights.pt")
