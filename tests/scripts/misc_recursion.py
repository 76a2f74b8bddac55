"""Runs into the recursion limit, catches it, raises the limit, and trains on a deep tree."""

# run: status=healthy steps=6
# when: thorough

import sys

import torch


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def tree(x, w, n):
    return x if n == 0 else torch.tanh(tree(x, w, n - 1) @ w)


print(sys.getrecursionlimit(), depth(900))
try:
    depth(5000)
except RecursionError as error:
    print(type(error).__name__, str(error)[:32])
sys.setrecursionlimit(6000)
print(depth(5000))

torch.manual_seed(0)
w = (torch.eye(3) * 0.9).requires_grad_()
optimizer = torch.optim.SGD([w], lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    loss = (tree(torch.ones(1, 3), w, 150) - 0.1).square().sum()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.6f}")
torch.save(w, "weights.pt")
