"""A model of plain functions divides by the root mean square of a row of zeros."""
# op: aten.rsqrt
# phase: backward|loss
# module: -
# conditions: functional
import torch

torch.manual_seed(0)
W = torch.randn(5, 8, requires_grad=True)
b = torch.zeros(8, requires_grad=True)
V = torch.randn(8, 1, requires_grad=True)
opt = torch.optim.SGD([W, b, V], lr=0.01)


def rms(h):
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True))  # <-- origin


for i in range(6):
    x = torch.randn(7, 5)
    if i == 3:
        x[2] = 0.0
        with torch.no_grad():
            b.zero_()
    h = torch.relu(x @ W + b)
    y = rms(h) @ V
    loss = (y - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
