"""Run as `python -m recipes.train`, with relative imports."""

# module: recipes.train
# args: --level 2 -m other
# run: status=healthy steps=15
# when: thorough

print(sorted(globals()))

import os
import sys

import torch

from . import __name__ as package
from .data import batches

print(__name__, __package__, __spec__.name, __spec__.parent, package)
print(os.path.relpath(__file__), os.path.isabs(__file__), sys.argv[0] == __file__, sys.argv[1:])
print(sys.path[0] == os.getcwd(), type(__loader__).__name__, __spec__.origin == __file__, __cached__ == __spec__.cached)
print(sys.modules["__main__"].__dict__ is globals(), "recipes.train" in sys.modules, "recipes" in sys.modules)


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in batches(15):
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.5f}")
    torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
