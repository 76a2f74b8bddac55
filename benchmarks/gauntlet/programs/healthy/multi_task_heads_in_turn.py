"""Two tasks, one head each, used in alternation; the other head gets no gradient in that step."""

import torch
import torch.nn as nn


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 48), nn.ReLU())
        self.heads = nn.ModuleDict({"class": nn.Linear(48, 3), "value": nn.Linear(48, 1)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


torch.manual_seed(0)
net = Multi()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(300):
    x = torch.randn(32, 12)
    if step % 2:
        loss = nn.functional.cross_entropy(net(x, "class"), x[:, :3].argmax(1))
    else:
        loss = nn.functional.mse_loss(net(x, "value"), torch.tanh(x[:, 3:4] + x[:, 4:5]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 < 2:
        print(step, loss.item())
