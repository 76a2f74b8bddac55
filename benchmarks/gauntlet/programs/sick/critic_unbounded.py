"""A WGAN critic without clipping or penalty: its loss runs off to minus infinity."""
# expects: loss-explosion, lr-too-high, gradient-explosion

import torch
import torch.nn as nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
opt_c = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
opt_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
for step in range(250):
    for _ in range(3):
        real = torch.randn(64, 2) + 3
        fake = generator(torch.randn(64, 8)).detach()
        loss_c = critic(fake).mean() - critic(real).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    loss_g = -critic(generator(torch.randn(64, 8))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 50 == 0:
        print(step, loss_c.item())
