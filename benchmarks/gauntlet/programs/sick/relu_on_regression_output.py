"""A ReLU after the last layer of a regression whose targets are negative half of the time."""
# expects: output-range, dead-units

import torch
import torch.nn as nn

torch.manual_seed(0)


class PriceChange(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 64)
        self.fc2 = nn.Linear(64, 1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        return torch.relu(self.fc2(x))


x = torch.randn(800, 10)
y = (x[:, :1] - x[:, 3:4]) * 2
model = PriceChange()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(10):
    for i in torch.randperm(800).split(32):
        loss = nn.MSELoss()(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
