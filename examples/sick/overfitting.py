"""A network that learns its samples by heart: few samples, noisy labels, far too many weights."""

import torch
from torch import nn

torch.manual_seed(0)


def sample(number):
    inputs = torch.randn(number, 20)
    labels = (inputs[:, 0] + inputs[:, 1] + 1.5 * torch.randn(number) > 0).long()
    return inputs, labels


train_inputs, train_labels = sample(128)
val_inputs, val_labels = sample(512)

model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(60):
    model.train()
    for batch in torch.randperm(128).split(32):
        loss = nn.functional.cross_entropy(model(train_inputs[batch]), train_labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        val_loss = nn.functional.cross_entropy(model(val_inputs), val_labels)
    if epoch % 10 == 0 or epoch == 59:
        print(f"epoch {epoch:2}  loss {loss.item():.4f}  validation {val_loss.item():.4f}")
