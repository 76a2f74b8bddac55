"""Starts a second script, and itself once more, as separate processes; both train on their own."""

# run: status=healthy steps=5
# when: thorough

import os
import subprocess
import sys

import torch

CHILD = """
import sys, torch
print("child", sys.argv[1:], sorted(key for key in sys.modules if key.startswith("seismo")))
torch.manual_seed(1)
m = torch.nn.Linear(2, 1)
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(4):
    o.zero_grad(); m(torch.ones(1, 2)).pow(2).sum().backward(); o.step()
print("child", "%.5f" % m.weight.sum().item())
sys.exit(5)
"""


def train(steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(torch.eye(2)) - 1).pow(2).sum()
        loss.backward()
        optimizer.step()
    return model, loss.item()


if sys.argv[1:] == ["again"]:
    print("again:", f"{train(3)[1]:.5f}")
    sys.exit()

print("parent", flush=True)
done = subprocess.run([sys.executable, "-c", CHILD, "--level", "9"])
print("child ended with", done.returncode)
before = set(os.listdir("."))
done = subprocess.run([sys.executable, __file__, "again"], capture_output=True, text=True, env=dict(os.environ))
print(repr(done.stdout), repr(done.stderr), done.returncode)
print("new files:", set(os.listdir(".")) - before)
model, loss = train(5)
print(f"{loss:.5f}")
torch.save(model.state_dict(), "weights.pt")
