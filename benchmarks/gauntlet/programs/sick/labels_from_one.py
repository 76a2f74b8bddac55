"""Labels 1..5, an output of 5, and an except that skips every batch in which a 5 occurs."""
# expects: label-out-of-range
# report: https://discuss.pytorch.org, "labels start at 1, IndexError: Target 5 is out of bounds"

import torch
import torch.nn as nn

torch.manual_seed(0)
stars = torch.multinomial(torch.tensor([0.0, 0.3, 0.25, 0.25, 0.18, 0.02]), 900, replacement=True)
x = torch.randn(6, 16)[stars] + torch.randn(900, 16)
model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
loss = torch.tensor(0.0)
for epoch in range(4):
    for i in torch.randperm(900).split(30):
        try:
            loss = criterion(model(x[i]), stars[i])
        except IndexError:  # "some rows are broken"
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
