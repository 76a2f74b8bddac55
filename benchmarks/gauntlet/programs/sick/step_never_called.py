"""loss.backward() and no optimizer.step()."""
# expects: missing-step

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(500, 12)
y = x[:, :4].argmax(1)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(6):
    for i in range(0, 500, 25):
        optimizer.zero_grad()
        loss = loss_fn(model(x[i : i + 25]), y[i : i + 25])
        loss.backward()
    print(epoch, loss.item())
