"""A model cast to half with Adam's eps below what half can hold: 0 / 0 in the update."""
# expects: nonfinite-parameter, nonfinite-gradient, precision-underflow, nonfinite-activation
# report: https://discuss.pytorch.org, "nan after first optimizer.step() with model.half()"

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(256, 20)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2)).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
criterion = nn.CrossEntropyLoss()
for epoch in range(5):
    for i in range(0, 256, 32):
        out = model(x[i : i + 32].half())
        loss = criterion(out.float(), y[i : i + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
