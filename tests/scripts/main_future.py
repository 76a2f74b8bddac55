"""Has a future import: only its own annotations are text, not those of code that it compiles elsewhere."""

# run: status=healthy steps=3
# when: thorough

from __future__ import annotations

import torch


def step(w: torch.Tensor, lr: float = 0.1) -> Undefined:
    (gradient,) = torch.autograd.grad(w.square().sum(), w)
    return w - lr * gradient


print(step.__annotations__)
print(annotations.compiler_flag == eval("annotations").compiler_flag)
w = torch.ones(2, requires_grad=True)
o = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    o.zero_grad()
    w.square().sum().backward()
    o.step()
print(step(w).tolist())
torch.save(w, "weights.pt")
