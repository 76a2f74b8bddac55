"""Prints where it is: stacks by traceback, inspect and logging, and a warning that blames its caller."""

# stderr: DeprecationWarning: use fit
# run: status=healthy steps=3
# when: thorough

import inspect
import logging
import sys
import traceback
import warnings

import torch

logging.basicConfig(stream=sys.stdout, format="%(filename)s:%(lineno)d %(funcName)s %(message)s")
warnings.simplefilter("always")


def train():
    warnings.warn("use fit", DeprecationWarning, stacklevel=2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_forward_hook(lambda *_: print([frame.function for frame in inspect.stack()][1:3]))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.eye(2)).square().mean().backward()
        optimizer.step()
    traceback.print_stack(file=sys.stdout)
    print([frame.name for frame in traceback.extract_stack()])
    print([frame.function for frame in inspect.stack()])
    logging.error("where am I?", stack_info=True)


train()
