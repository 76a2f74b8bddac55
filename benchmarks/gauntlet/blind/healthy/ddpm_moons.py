"""Tiny DDPM on two moons: eps-prediction MSE is very noisy and flattens high, since noise is not predictable at small t; EMA weights used for sampling."""
# expects:
# source: https://arxiv.org/abs/2006.11239
import copy
import math
import torch
import torch.nn as nn

torch.manual_seed(0)


def moons(n):
    t = torch.rand(n) * math.pi
    up = torch.stack([t.cos() - 0.5, t.sin() - 0.25], 1)
    dn = torch.stack([0.5 - t.cos(), 0.25 - t.sin()], 1)
    return torch.where(torch.rand(n, 1) < 0.5, up, dn) * 1.5 + 0.04 * torch.randn(n, 2)


T = 50
betas = torch.linspace(1e-3, 0.15, T)
abar = torch.cumprod(1 - betas, 0)


class Eps(nn.Module):
    def __init__(self, h=128):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, 3, 8)))
        self.net = nn.Sequential(nn.Linear(2 + 16, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 2))

    def forward(self, x, t):
        e = (t.float() / T)[:, None] * self.freqs
        return self.net(torch.cat([x, e.sin(), e.cos()], 1))


model = Eps()
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 800, eta_min=1e-4)
run = None
for step in range(800):
    x0 = moons(256)
    t = torch.randint(0, T, (256,))
    n = torch.randn_like(x0)
    a = abar[t][:, None]
    loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * n, t) - n).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    sched.step()
    with torch.no_grad():
        for pe, p in zip(ema.parameters(), model.parameters()):
            pe.mul_(0.99).add_(p, alpha=0.01)
    run = loss.item() if run is None else 0.98 * run + 0.02 * loss.item()
    if step % 200 == 199:
        print(f"step {step + 1} loss {loss.item():.4f} smoothed {run:.4f}")
with torch.no_grad():
    x = torch.randn(1000, 2)
    for i in reversed(range(T)):
        e = ema(x, torch.full((1000,), i))
        x = (x - betas[i] / (1 - abar[i]).sqrt() * e) / (1 - betas[i]).sqrt()
        if i:
            x = x + betas[i].sqrt() * torch.randn_like(x)
    def energy(a, b):
        return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()
    print(f"energy distance to data: samples {energy(x, moons(1000)):.4f}, plain noise {energy(torch.randn(1000, 2), moons(1000)):.4f}, data {energy(moons(1000), moons(1000)):.4f}")
