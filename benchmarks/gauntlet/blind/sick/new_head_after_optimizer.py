"""The classifier head is replaced for the new task after the optimizer was built: the optimizer still holds the old head, the new one is never trained."""
# expects: unoptimized-parameter
# report: https://github.com/microsoft/nni/issues/4521
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(16, n_classes)

    def forward(self, x):
        return self.fc(self.features(x))


def textures(n, classes):
    y = torch.randint(classes, (n,))
    i, j = torch.meshgrid(torch.arange(14.), torch.arange(14.), indexing="ij")
    ang = y[:, None, None] * 3.14159 / classes
    x = torch.sin(1.5 * (i * ang.cos() + j * ang.sin()) + 6.28 * torch.rand(n, 1, 1))
    return (x + 0.3 * torch.randn(n, 14, 14))[:, None], y


def fit(model, optimizer, classes, steps):
    model.train()
    for s in range(steps):
        x, y = textures(32, classes)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if s % 40 == 0:
            print(f"  {s:3d} loss {loss.item():.4f}")
    model.eval()
    x, y = textures(500, classes)
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
model = Net(3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
# new task has 8 classes
model.fc = nn.Linear(16, 8)
nn.init.normal_(model.fc.weight, std=0.01)
print("acc", fit(model, optimizer, 8, 280))
