"""Pixels from 0 to 255 into tanh layers: every unit sits at +1 or -1."""
# expects: saturated-units, unnormalized-input

import torch
import torch.nn as nn


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(144, 64)
        self.l2 = nn.Linear(64, 32)
        self.l3 = nn.Linear(32, 8)

    def forward(self, x):
        x = torch.tanh(self.l1(x.flatten(1)))
        x = torch.tanh(self.l2(x))
        return self.l3(x)


torch.manual_seed(0)
template = torch.randint(0, 256, (8, 12, 12)).float()
y = torch.randint(0, 8, (640,))
x = (template[y] + 40 * torch.randn(640, 12, 12)).clamp(0, 255)
model = MLP()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(5):
    for i in torch.randperm(640).split(32):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
