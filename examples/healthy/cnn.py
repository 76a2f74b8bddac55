"""A convolutional network with batch norm that tells where in a picture the bright square is."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

labels = torch.randint(0, 4, (1024,))
pictures = 0.5 * torch.randn(1024, 1, 16, 16)
for picture, label in zip(pictures, labels.tolist(), strict=True):
    top, left = 8 * (label // 2), 8 * (label % 2)
    row, column = torch.randint(0, 5, (2,)).tolist()
    picture[0, top + row : top + row + 4, left + column : left + column + 4] += 1.0

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AvgPool2d(4),
    nn.Flatten(),
    nn.Linear(128, 4),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(8):
    for inputs, targets in DataLoader(TensorDataset(pictures, labels), batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}")
