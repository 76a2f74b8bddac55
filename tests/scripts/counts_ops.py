"""Counts the operations of each step with a dispatch mode, and the flops."""
# run: status=healthy steps=12
# when: thorough
from collections import Counter

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)


class CountOps(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops[str(func)] += 1
        return func(*args, **(kwargs or {}))


model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(64, 6)
y = x.sum(1, keepdim=True)


def step():
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


for _ in range(6):
    step()
with CountOps() as counted:
    for _ in range(3):
        step()
for name, number in sorted(counted.ops.items()):
    print(number, name)
with FlopCounterMode(display=False) as flops:
    for _ in range(3):
        loss = step()
print("flops", flops.get_total_flops(), "loss", loss)
torch.save(model.state_dict(), "weights.pt")
