"""Free adversarial training: the gradient of the input by loss.backward(), cleared before the real one."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
shapes = torch.randn(5, 1, 10, 10)
for step in range(150):
    y = torch.randint(0, 5, (24,))
    x = shapes[y] + 0.4 * torch.randn(24, 1, 10, 10)
    x.requires_grad_(True)
    F.cross_entropy(net(x), y).backward()
    adversarial = (x + 0.1 * x.grad.sign()).detach()
    optimizer.zero_grad()
    loss = 0.5 * F.cross_entropy(net(x.detach()), y) + 0.5 * F.cross_entropy(net(adversarial), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
