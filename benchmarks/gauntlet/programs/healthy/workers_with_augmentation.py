"""DataLoader with two workers, augmentation by torch's generator (which every worker has its own of)."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, n=320):
        g = torch.Generator().manual_seed(1)
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.x = torch.randn(4, 1, 14, 14, generator=g)[self.y] + 0.4 * torch.randn(n, 1, 14, 14, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        top, left = torch.randint(0, 3, (2,)).tolist()
        image = self.x[i, :, top : top + 12, left : left + 12]
        return image + 0.1 * torch.randn_like(image), self.y[i]


def main():
    torch.manual_seed(0)
    loader = DataLoader(Augmented(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 25, 4)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
