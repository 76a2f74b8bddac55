"""Fine-tuning with FrozenBatchNorm: norms in eval mode, their affine parameters frozen, the rest trained."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12),
    nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 4),
)
y = torch.randint(0, 4, (400,))
x = nn.functional.interpolate(torch.randn(4, 1, 3, 3), size=10)[y] + 0.4 * torch.randn(400, 1, 10, 10)


def freeze_norms(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.eval()
            m.requires_grad_(False)


def train(optimizer, epochs, frozen):
    for epoch in range(epochs):
        net.train()
        if frozen:
            freeze_norms(net)
        for i in torch.randperm(400).split(20):
            loss = nn.functional.cross_entropy(net(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


train(torch.optim.Adam(net.parameters(), lr=2e-3), 2, False)
freeze_norms(net)
train(torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=5e-4), 3, True)
