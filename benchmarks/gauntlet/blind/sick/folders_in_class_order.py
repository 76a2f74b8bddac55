"""The dataset lists one class after the other and the loader has no shuffle=True: each batch holds one class, the net forgets all but the last."""
# expects: unshuffled-data
# report: https://github.com/Deci-AI/super-gradients/issues/416
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class FolderLike(Dataset):
    """walks through class_0, class_1, ... as ImageFolder does"""

    def __init__(self, per_class, seed, classes=6):
        g = torch.Generator().manual_seed(seed)
        proto = torch.randn(classes, 1, 10, 10, generator=torch.Generator().manual_seed(99))
        self.samples = []
        for c in range(classes):
            for _ in range(per_class):
                self.samples.append((proto[c] + 1.2 * torch.randn(1, 10, 10, generator=g), c))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def evaluate(model, loader):
    model.eval()
    ok = n = 0
    with torch.no_grad():
        for x, y in loader:
            ok += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    model.train()
    return ok / n


def main():
    torch.manual_seed(0)
    train_loader = DataLoader(FolderLike(320, 0), batch_size=32)
    test_loader = DataLoader(FolderLike(50, 1), batch_size=100)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(800, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(5):
        for i, (x, y) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 15 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")
        print(f"epoch {epoch} test acc {evaluate(model, test_loader):.3f}")


main()
