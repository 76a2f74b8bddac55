"""Moves to a folder of its own for its output, and deletes what it does not need."""

# run: status=healthy steps=6
# when: thorough

import os
import pathlib
import shutil

import torch

run = pathlib.Path("runs") / "0001"
run.mkdir(parents=True)
os.chdir(run)
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    (model(torch.eye(2)) - 1).square().mean().backward()
    optimizer.step()
    torch.save(model.state_dict(), f"step{step}.pt")
os.umask(0o077)
os.environ.clear()
print(sorted(os.listdir(".")), os.path.relpath("../..", "."))
os.makedirs("temporary")
os.chdir("temporary")
shutil.rmtree("../temporary")
print("gone:", not os.path.exists("../temporary"))
