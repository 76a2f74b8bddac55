"""Label smoothing: the loss converges to a floor well above zero."""

import torch
import torch.nn as nn

torch.manual_seed(0)
centres = 3 * torch.randn(8, 16)
y = torch.randint(0, 8, (1000,))
x = centres[y] + torch.randn(1000, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    for i in torch.randperm(1000).split(40):
        loss = criterion(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
