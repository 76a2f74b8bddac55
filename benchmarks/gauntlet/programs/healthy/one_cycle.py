"""OneCycleLR stepped once a batch, as it wants to be."""

import torch
import torch.nn as nn

torch.manual_seed(0)
epochs, per_epoch = 6, 30
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, epochs=epochs, steps_per_epoch=per_epoch)
x = torch.randn(900, 16)
y = (x[:, :4] + 0.3 * torch.randn(900, 4)).argmax(1)
for epoch in range(epochs):
    for i in torch.randperm(900).split(30):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print(epoch, loss.item(), scheduler.get_last_lr()[0])
