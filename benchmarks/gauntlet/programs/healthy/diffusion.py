"""DDPM on 2-D points: predict the noise; the loss has a high floor."""

import torch
import torch.nn as nn

T = 100
betas = torch.linspace(1e-4, 0.05, T)
alpha_bar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 32)
        self.net = nn.Sequential(nn.Linear(34, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


torch.manual_seed(0)
model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(400):
    angle = torch.rand(128) * 2 * torch.pi
    x0 = torch.stack([angle.cos(), angle.sin()], 1)
    t = torch.randint(0, T, (128,))
    eps = torch.randn_like(x0)
    a = alpha_bar[t, None]
    loss = nn.functional.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t), eps)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
