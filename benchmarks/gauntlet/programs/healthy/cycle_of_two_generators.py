"""CycleGAN on points: one optimizer for two generators, identity and cycle terms."""

import itertools

import torch
import torch.nn as nn


def gen():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


def disc():
    return nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


torch.manual_seed(0)
g_ab, g_ba, d_a, d_b = gen(), gen(), disc(), disc()
opt_g = torch.optim.Adam(itertools.chain(g_ab.parameters(), g_ba.parameters()), lr=5e-4, betas=(0.5, 0.999))
opt_da = torch.optim.Adam(d_a.parameters(), lr=5e-4, betas=(0.5, 0.999))
opt_db = torch.optim.Adam(d_b.parameters(), lr=5e-4, betas=(0.5, 0.999))
mse, l1 = nn.MSELoss(), nn.L1Loss()
one, zero = torch.ones(48, 1), torch.zeros(48, 1)
for step in range(150):
    a = torch.randn(48, 2) * 0.3 + torch.tensor([1.0, 0.0])
    b = torch.randn(48, 2) * 0.3 - torch.tensor([1.0, 0.0])
    fake_b, fake_a = g_ab(a), g_ba(b)
    loss_g = mse(d_b(fake_b), one) + mse(d_a(fake_a), one) + 5 * (l1(g_ba(fake_b), a) + l1(g_ab(fake_a), b))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    for d, opt, real, fake in ((d_a, opt_da, a, fake_a), (d_b, opt_db, b, fake_b)):
        loss_d = (mse(d(real), one) + mse(d(fake.detach()), zero)) / 2
        opt.zero_grad()
        loss_d.backward()
        opt.step()
    if step % 50 == 0:
        print(step, loss_g.item(), loss_d.item())
