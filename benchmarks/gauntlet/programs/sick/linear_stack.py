"""Four linear layers in a row without an activation, on a problem that is not linear."""
# expects: missing-activation

import torch
import torch.nn as nn


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 64)
        self.fc4 = nn.Linear(64, 2)

    def forward(self, x):
        x = self.fc1(x)
        x = self.fc2(x)
        x = self.fc3(x)
        return self.fc4(x)


torch.manual_seed(0)
angle = torch.rand(600) * 6.28
y = torch.arange(600) % 2
x = torch.stack([angle.cos(), angle.sin()], 1) * (1 + y[:, None]) + 0.1 * torch.randn(600, 2)
model = MLP()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    for i in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
