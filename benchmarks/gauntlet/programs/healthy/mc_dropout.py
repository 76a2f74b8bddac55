"""Monte Carlo dropout: after training, dropout is left on at prediction on purpose."""

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.rand(500, 1) * 6 - 3
y = torch.sin(x) + 0.1 * torch.randn(500, 1)
net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(15):
    net.train()
    for i in torch.randperm(500).split(25):
        loss = nn.functional.mse_loss(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
net.eval()
for m in net.modules():
    if isinstance(m, nn.Dropout):
        m.train()
with torch.no_grad():
    samples = torch.stack([net(torch.linspace(-3, 3, 20).unsqueeze(1)) for _ in range(30)])
print(samples.std(0).mean().item())
