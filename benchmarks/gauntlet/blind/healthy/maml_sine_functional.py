"""First-/second-order MAML on sinusoids through torch.func.functional_call: inner updates never touch the optimizer, and the outer loss is very noisy as each task differs."""
# expects:
# source: https://arxiv.org/abs/1703.03400
import math
import torch
import torch.nn as nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
meta_opt = torch.optim.Adam(net.parameters(), lr=3e-3)
inner_lr = 0.05


def task():
    amp = torch.rand(1) * 2 + 0.5
    ph = torch.rand(1) * math.pi

    def sample(k):
        x = torch.rand(k, 1) * 6 - 3
        return x / 3, amp * torch.sin(x + ph)
    return sample


def adapt(params, x, y, steps=1, create_graph=True):
    for _ in range(steps):
        l = (functional_call(net, params, (x,)) - y).pow(2).mean()
        grads = torch.autograd.grad(l, list(params.values()), create_graph=create_graph)
        params = {k: p - inner_lr * g for (k, p), g in zip(params.items(), grads)}
    return params


def evaluate(n=60):
    pre = post = 0
    for _ in range(n):
        s = task()
        xs, ys = s(10)
        xq, yq = s(50)
        p0 = dict(net.named_parameters())
        p1 = adapt(p0, xs, ys, steps=5, create_graph=False)
        with torch.no_grad():
            pre += (functional_call(net, p0, (xq,)) - yq).pow(2).mean().item() / n
            post += (functional_call(net, p1, (xq,)) - yq).pow(2).mean().item() / n
    return pre, post


print("before: pre %.3f post %.3f" % evaluate())
for it in range(300):
    meta_opt.zero_grad()
    total = 0.0
    for _ in range(6):
        s = task()
        xs, ys = s(10)
        xq, yq = s(10)
        fast = adapt(dict(net.named_parameters()), xs, ys, steps=2)
        ql = (functional_call(net, fast, (xq,)) - yq).pow(2).mean() / 6
        ql.backward()
        total += ql.item()
    meta_opt.step()
    if it % 100 == 99:
        print(f"iter {it + 1} query loss {total:.3f} | eval pre %.3f post %.3f" % evaluate())
