"""Looks for memory leaks: after each trial everything is deleted and has to be gone."""
# run: status=healthy steps=15+15+15
# when: thorough
import gc
import weakref

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randn(64, 1)
alive = []


def trial(width):
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(15):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    alive.extend([("model", weakref.ref(model)), ("optimizer", weakref.ref(opt)), ("weight", weakref.ref(model[0].weight)), ("gradient", weakref.ref(model[0].weight.grad))])
    return loss.item()


for width in (16, 32, 64):
    print(width, trial(width))
    gc.collect()
    print("still alive:", [name for name, ref in alive if ref() is not None])
print("tensors left:", sum(1 for o in gc.get_objects() if type(o) in (torch.Tensor, nn.Parameter)))
