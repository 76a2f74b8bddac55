"""zero_grad() between backward() and step(): the step uses nothing."""
# expects: lost-gradient
# report: https://discuss.pytorch.org, "loss stays the same, weights do not update"

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
X = torch.rand(256, 8)
y = X.sum(1, keepdim=True)
for epoch in range(10):
    for i in range(0, 256, 16):
        y_hat = model(X[i : i + 16])
        loss = ((y_hat - y[i : i + 16]) ** 2).mean()
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
    print(epoch, loss.item())
