"""Imports torch in the background while the user is greeted, and only a part of it by name."""

# run: status=healthy steps=6
# when: thorough

import importlib
import threading


def warm_up():
    importlib.import_module("torch.optim")


thread = threading.Thread(target=warm_up)
thread.start()
print("Welcome!")
thread.join()

from torch import eye, manual_seed, save
from torch.nn import Linear
from torch.optim import SGD

manual_seed(0)
model = Linear(3, 1)
optimizer = SGD(model.parameters(), lr=0.2)
for _ in range(6):
    optimizer.zero_grad()
    loss = (model(eye(3)) - 1).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
save(model.state_dict(), "weights.pt")
