"""The model and its inputs are fine; one regression target is NaN."""
# op: -
# phase: input
# module: -
# conditions: data target loop

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.rand(40, 3)
y = 3 * x[:, :1] + x[:, 1:2] ** 2
y[26] = float("nan")
net = nn.Sequential(nn.Linear(3, 10), nn.SiLU(), nn.Linear(10, 1))
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
loss_fn = nn.HuberLoss()
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=5):
    pred = net(xb)
    loss = loss_fn(pred, yb)  # <-- origin
    opt.zero_grad()
    loss.backward()
    opt.step()
