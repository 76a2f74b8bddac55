"""A neural process: the context set is pooled on purpose; the first dimension is points, not samples."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class ConditionalNP(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 32))
        self.decoder = nn.Sequential(nn.Linear(33, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, cx, cy, tx):
        r = self.encoder(torch.cat([cx, cy], -1)).mean(-2, keepdim=True).expand(*tx.shape[:-1], -1)
        mu, raw = self.decoder(torch.cat([r, tx], -1)).chunk(2, -1)
        return mu, 0.05 + 0.95 * nn.functional.softplus(raw)


model = ConditionalNP()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(300):
    phase = torch.rand(16, 1, 1) * 3
    x = torch.rand(16, 20, 1) * 4 - 2
    y = torch.sin(2 * x + phase)
    mu, sigma = model(x[:, :10], y[:, :10], x)
    loss = -torch.distributions.Normal(mu, sigma).log_prob(y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
