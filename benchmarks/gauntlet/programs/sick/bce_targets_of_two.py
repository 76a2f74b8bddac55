"""Binary labels stored as 1 and 2 go into BCEWithLogitsLoss: the loss runs below zero."""
# expects: label-out-of-range, loss-explosion

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(700, 9)
label = (x[:, 0] + x[:, 1] > 0).long() + 1  # 1: benign, 2: malignant
model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(8):
    for i in torch.randperm(700).split(28):
        loss = criterion(model(x[i]).squeeze(1), label[i].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
