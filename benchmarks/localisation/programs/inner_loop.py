"""The gradient of an inner loop is differentiated again; a probability in it is exactly 0."""
# op: aten.log
# phase: backward|loss
# module: -
# conditions: double-backward functional
import torch
from torch import nn
import torch.nn.functional as F


def forward(params, x):
    w1, b1, w2, b2 = params
    return F.linear(torch.relu(F.linear(x, w1, b1)), w2, b2)


def inner_loss(out, y):
    p = out.softmax(1).gather(1, y[:, None])
    return -p.log().mean()  # <-- origin


def adapt(params, x, y, lr, n):
    for _ in range(n):
        g = torch.autograd.grad(inner_loss(forward(params, x), y), params, create_graph=True)
        params = [p - lr * gi for p, gi in zip(params, g)]
    return params


torch.manual_seed(0)
meta = nn.ParameterList([torch.randn(16, 4) * 0.5, torch.zeros(16), torch.randn(3, 16) * 0.3, torch.zeros(3)])
opt = torch.optim.Adam(meta.parameters(), lr=1e-3)
for it in range(6):
    total = 0
    for task in range(3):
        x, y = torch.randn(9, 4), torch.arange(9) % 3
        if it == 4 and task == 1:
            x = x * 300
        fast = adapt(list(meta), x, y, 0.1, 2)
        total = total + inner_loss(forward(fast, torch.randn(9, 4)), torch.arange(9) % 3)
    opt.zero_grad()
    total.backward()
    opt.step()
