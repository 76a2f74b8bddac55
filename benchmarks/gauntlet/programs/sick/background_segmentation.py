"""Lesions cover 1 % of the pixels; pixel-wise cross-entropy learns to answer background."""
# expects: class-imbalance

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(150):
    mask = torch.zeros(8, 20, 20, dtype=torch.long)
    at = torch.randint(0, 18, (8, 2))
    for row, (i, j) in enumerate(at):
        mask[row, i : i + 2, j : j + 2] = 1
    image = 0.5 * mask.float() + torch.randn(8, 20, 20)
    loss = nn.functional.cross_entropy(net(image[:, None]), mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
