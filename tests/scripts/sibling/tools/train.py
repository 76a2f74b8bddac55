"""A script in a folder, started from elsewhere, imports its neighbour, which looks into `__main__`."""

# run: status=healthy steps=9
# when: thorough

import os
import sys

import torch
from helper import settings, train

SETTINGS = {"lr": 0.1, "steps": 9}


class Model(torch.nn.Linear):
    pass


if __name__ == "__main__":
    print(os.path.relpath(sys.path[0]), sys.argv, __file__ == sys.argv[0])
    print(settings() is SETTINGS)
    torch.manual_seed(0)
    model = Model(3, 3)
    print(f"{train(model):.5f}")
    torch.save(model.state_dict(), "weights.pt")

    import train as itself  # a second copy, under its own name

    print(itself.__name__, itself.Model is Model, itself.SETTINGS == SETTINGS)
    print("helper" in sys.modules, sys.modules["helper"].__file__.endswith("helper.py"))
