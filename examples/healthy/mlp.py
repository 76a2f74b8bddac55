"""A classifier on four classes, with dropout, momentum and a validation at the end of each epoch."""

import torch
from torch import nn

torch.manual_seed(0)

rule = torch.randn(20, 4)


def sample(number):
    inputs = torch.randn(number, 20)
    return inputs, (inputs @ rule + 0.5 * torch.randn(number, 4)).argmax(dim=1)


train_inputs, train_labels = sample(4096)
val_inputs, val_labels = sample(1024)

model = nn.Sequential(
    nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(6):
    model.train()
    for batch in torch.randperm(4096).split(64):
        loss = nn.functional.cross_entropy(model(train_inputs[batch]), train_labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        val_loss = nn.functional.cross_entropy(model(val_inputs), val_labels)
    print(f"epoch {epoch}  loss {loss.item():.4f}  validation {val_loss.item():.4f}")
