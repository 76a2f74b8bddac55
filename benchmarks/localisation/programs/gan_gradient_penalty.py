"""WGAN-GP: the critic's gradient at one point is the zero vector, and its norm is taken by hand."""
# op: aten.sqrt
# phase: backward
# module: -
# conditions: gan several-roots double-backward loop

import torch
from torch import nn

torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, x):
        return self.net(x)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(len(real), 1)
    x = (eps * real + (1 - eps) * fake).requires_grad_(True)
    grads = torch.autograd.grad(critic(x).sum(), x, create_graph=True)[0]
    norm = torch.sqrt((grads**2).sum(dim=1))  # <-- origin
    return ((norm - 1) ** 2).mean()


critic = Critic()
generator = nn.Linear(2, 3)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
for step in range(8):
    real = torch.randn(6, 3)
    if step == 5:
        real = real - 40 * critic.net[0].weight.detach().sum(0).sign()
        with torch.no_grad():
            critic.net[0].bias.fill_(-80.0)  # dead units
    with torch.no_grad():
        fake = generator(torch.randn(6, 2))
    loss_c = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(critic, real, fake)
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()

    loss_g = -critic(generator(torch.randn(6, 2))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
