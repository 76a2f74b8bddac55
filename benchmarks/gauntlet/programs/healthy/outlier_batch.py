"""One strange batch in a long run: the loss spikes once and returns."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(300):
    x = torch.randn(32, 8)
    y = torch.tanh(x.sum(1, keepdim=True))
    if step == 180:
        y = y + 3.0
    loss = nn.functional.huber_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(step, loss.item())
