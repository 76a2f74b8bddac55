"""nn.BCELoss fed with the clamp of raw logits, because of 'all elements of input should be between 0 and 1'."""
# expects: loss-input-mismatch, output-range, dead-units, constant-output

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
bce = nn.BCELoss()
x = torch.randn(600, 12)
y = (x[:, :1] - x[:, 5:6] > 0).float()
for epoch in range(8):
    for i in torch.randperm(600).split(30):
        out = torch.clamp(model(x[i]), 0.0, 1.0)  # "fixes" the RuntimeError
        loss = bce(out, y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
