"""Leaky integrate-and-fire network with surrogate gradients: activations are binary and mostly zero at any time step, the reset is detached, the Heaviside has no true gradient."""
# expects:
# source: https://github.com/fzenke/spytorch
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class SurrGradSpike(torch.autograd.Function):
    scale = 10.0

    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (SurrGradSpike.scale * v.abs() + 1.0) ** 2


spike = SurrGradSpike.apply
T, NI, NH, NO = 25, 30, 64, 3
rate = torch.rand(NO, NI) * 0.25


def data(n):
    y = torch.randint(0, NO, (n,))
    return (torch.rand(n, T, NI) < rate[y].unsqueeze(1)).float(), y


class SNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(NI, NH) * 1.2 / NI ** 0.5)
        self.w2 = nn.Parameter(torch.randn(NH, NO) / NH ** 0.5)
        self.alpha, self.beta = 0.8, 0.85

    def forward(self, x):
        n = len(x)
        syn, mem = torch.zeros(n, NH), torch.zeros(n, NH)
        out, acc, spikes = torch.zeros(n, NO), [], 0.0
        cur = x @ self.w1
        for t in range(T):
            s = spike(mem - 1.0)
            mem = (self.beta * mem + syn) * (1 - s.detach())
            syn = self.alpha * syn + cur[:, t]
            out = self.beta * out + s @ self.w2
            acc.append(out)
            spikes = spikes + s.mean()
        return torch.stack(acc, 1).mean(1), spikes / T


net = SNN()
opt = torch.optim.Adamax(net.parameters(), lr=5e-3, betas=(0.9, 0.999))
for step in range(150):
    x, y = data(64)
    o, fr = net(x)
    loss = F.cross_entropy(o, y) + 0.05 * fr
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        with torch.no_grad():
            x, y = data(500)
            o, fr = net(x)
        print(f"step {step + 1} loss {loss.item():.3f} test acc {(o.argmax(1) == y).float().mean():.3f} firing rate {fr:.3f}")
