"""Runs other code: another script by runpy, text by exec, and a module that is changed and loaded again."""

# run: status=healthy steps=3+5+4
# when: thorough

import importlib
import os
import runpy
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))

names = runpy.run_path(os.path.join(here, "other.py"), init_globals={"seed": 3}, run_name="__main__")
print(names["result"], names["__name__"], sys.modules["__main__"].__dict__ is globals(), sys.argv[0].endswith("drive.py"))

import torch

scope = {"torch": torch}
exec(
    """
torch.manual_seed(1)
w = torch.zeros(2, requires_grad=True)
o = torch.optim.Adam([w], lr=0.1)
for i in range(5):
    o.zero_grad(); ((w - 1) ** 2).sum().backward(); o.step()
print("exec", [round(v, 4) for v in w.tolist()])
""",
    scope,
)

import config

print(config.LR)
with open(config.__file__, "a") as file:
    file.write("LR = 0.02\n")
importlib.invalidate_caches()
print(importlib.reload(config) is config, config.LR)

torch.manual_seed(2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=config.LR)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.eye(2)).square().sum()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}", eval("__name__"))
torch.save([scope["w"], model.state_dict()], "weights.pt")
