"""A pool of spawned processes: each of them imports this file again, under another name."""

# run: status=healthy steps=6
# when: thorough

import multiprocessing
import os
import sys

import torch


def trial(lr):
    torch.manual_seed(0)
    w = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=lr)
    for _ in range(6):
        optimizer.zero_grad()
        loss = (w - 1).square().sum()
        loss.backward()
        optimizer.step()
    return round(w.item(), 5)


def names(_):
    main = sys.modules["__main__"]
    return trial.__module__, main.__name__, os.path.basename(main.__file__), sys.argv[1:], multiprocessing.parent_process() is None


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with multiprocessing.Pool(1) as pool:
        print(pool.map(names, [0]))
        print(pool.map(trial, [0.1, 0.2]))
    print(trial(0.4))
