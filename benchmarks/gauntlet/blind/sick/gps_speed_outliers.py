"""Sensor glitches (1 row in 3000 is 500x too large) get through unfiltered into an MSE regression: now and then the loss jumps by orders of magnitude and throws the model back."""
# expects: loss-spike, input-drift, gradient-explosion
# report: folklore
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(12)
N = 12000
x = torch.randn(N, 8)
w1, w2 = torch.randn(8, 12), torch.randn(12, 1)
y = torch.tanh(x @ w1) @ w2 * 0.4 + 0.05 * torch.randn(N, 1)
# the logger sometimes writes raw counts instead of m/s
bad = torch.randperm(N)[:4]
x[bad] *= 500
y[bad] *= 500

dl = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    for i, (xb, yb) in enumerate(dl):
        loss = ((net(xb) - yb) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 50.0)
        opt.step()
        if i % 10 == 0 or loss.item() > 100:
            print(f"epoch {epoch} batch {i:3d} loss {loss.item():.4f}")
