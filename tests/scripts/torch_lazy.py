"""Imports torch late, inside a function, under names of its own."""

# args: train
# run: status=healthy steps=11
# when: thorough

import sys


def help():
    print("usage: torch_lazy.py train|help")


def train():
    print("torch" in sys.modules)
    import torch as t
    from torch.nn.functional import cross_entropy as ce
    from torch.optim import SGD as Descent

    t.manual_seed(0)
    x = t.randn(30, 4)
    y = x.argmax(1)
    w = t.zeros(4, 4, requires_grad=True)
    b = t.zeros(4, requires_grad=True)
    o = Descent([w, b], lr=0.5)
    for _ in range(11):
        o.zero_grad()
        ce(x @ w + b, y).backward()
        o.step()
    print((x @ w + b).argmax(1).eq(y).sum().item(), "of 30")
    t.save([w, b], "weights.pt")


{"train": train, "help": help}[sys.argv[1]]()
