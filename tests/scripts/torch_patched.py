"""Wraps functions of torch to count and time their calls, and puts some of them back."""

# run: status=healthy steps=any
# when: thorough

import functools

import torch

calls = []


def counted(owner, name):
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        calls.append(name)
        return original(*args, **kwargs)

    setattr(owner, name, wrapper)
    return original


backward = counted(torch.Tensor, "backward")
call = counted(torch.nn.Module, "__call__")
step = counted(torch.optim.SGD, "step")
zero_grad = counted(torch.optim.Optimizer, "zero_grad")
clip = counted(torch.nn.utils, "clip_grad_norm_")

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def fit(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(torch.eye(2)) - 1).square().sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(steps, f"{loss.item():.5f}", {name: calls.count(name) for name in sorted(set(calls))})


fit(3)
torch.Tensor.backward = backward
torch.nn.Module.__call__ = call
torch.nn.utils.clip_grad_norm_ = clip
fit(3)
torch.optim.SGD.step = step
fit(3)
print(torch.Tensor.backward is backward, torch.optim.SGD.step is step, backward.__name__, step.__name__)
torch.save(model.state_dict(), "weights.pt")
