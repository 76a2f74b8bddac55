"""A GAN with losses by hand: the discriminator is so sure of itself that 1 - D(G(z)) is 0."""
# op: aten.log
# phase: loss
# module: -
# conditions: gan several-roots several-optimizers loop

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
opt_g = torch.optim.SGD(G.parameters(), lr=500.0)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-2)

for step in range(15):
    real = torch.randn(16, 2) * 0.5 + 2
    fake = G(torch.randn(16, 4))

    loss_d = -torch.log(D(real) + 1e-7).mean() - torch.log(1 - D(fake.detach()) + 1e-7).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    loss_g = torch.log(1 - D(fake)).mean()  # <-- origin
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    print(step, loss_d.item(), loss_g.item())
