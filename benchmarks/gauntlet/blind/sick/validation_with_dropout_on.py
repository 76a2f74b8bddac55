"""The validation loop uses no_grad but never model.eval(): dropout 0.5 is live and batch-norm statistics come from (and are updated by) the validation batches."""
# expects: train-mode-evaluation
# report: https://github.com/ipolharvard/ethos-ares/issues/20
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def rings(n, gen):
    y = torch.randint(0, 3, (n,), generator=gen)
    img = torch.randn(n, 1, 12, 12, generator=gen) * 1.3
    g = torch.arange(12) - 5.5
    r = (g[:, None] ** 2 + g[None] ** 2).sqrt()
    for k in range(3):
        img[y == k, 0] += ((r - (1.5 + 1.5 * k)).abs() < 0.8).float() * 1.2
    return img, y


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12)
        self.conv2, self.bn2 = nn.Conv2d(12, 16, 3), nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(16 * 64, 3)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(self.drop(x.flatten(1)))


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    train = DataLoader(TensorDataset(*rings(1280, gen)), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(*rings(320, gen)), batch_size=8)
    model = CNN()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = 0.0
    for epoch in range(5):
        model.train()
        for x, y in train:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        with torch.no_grad():
            hits, vloss = 0, 0.0
            for x, y in val:
                out = model(x)
                vloss += F.cross_entropy(out, y).item()
                hits += (out.argmax(1) == y).sum().item()
        best = max(best, hits / 320)
        print(f"epoch {epoch} train {loss.item():.4f} val {vloss/len(val):.4f} acc {hits/320:.4f} best {best:.4f}")


main()
