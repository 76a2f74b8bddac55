"""Asks whether torch is there before it imports it, as libraries with several backends do."""

# run: status=healthy steps=7
# when: thorough

import importlib.metadata
import importlib.util
import sys


def available(name):
    spec = importlib.util.find_spec(name)
    return spec is not None and type(spec.loader).__name__


print({name: available(name) for name in ("torch", "tensorflou", "numpy")}, "torch" in sys.modules)
print(importlib.metadata.version("torch").split(".")[0])
try:
    import flacks  # the other backend
except ImportError:
    import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(7):
    optimizer.zero_grad()
    loss = (model(torch.eye(2)) - 1).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}", type(torch.__loader__).__name__, torch.__spec__.name, torch.__spec__.parent)
torch.save(model.state_dict(), "weights.pt")
