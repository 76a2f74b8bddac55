"""Ten sigmoid layers: the first ones hardly get a gradient and the loss stays at chance."""
# expects: gradient-vanishing, saturated-units, loss-plateau

import torch
import torch.nn as nn

torch.manual_seed(0)
layers = []
width = 32
for _ in range(10):
    layers += [nn.Linear(width, width), nn.Sigmoid()]
net = nn.Sequential(*layers, nn.Linear(width, 4))
centres = torch.randn(4, width) * 1.5
labels = torch.randint(0, 4, (800,))
points = centres[labels] + torch.randn(800, width)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(10):
    total = 0.0
    for idx in torch.randperm(800).split(32):
        optimizer.zero_grad()
        loss = criterion(net(points[idx]), labels[idx])
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / 25:.4f}")
