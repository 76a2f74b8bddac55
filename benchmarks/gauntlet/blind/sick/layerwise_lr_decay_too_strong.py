"""Layer-wise lr decay of 0.03 per layer leaves the lower layers of a fresh network with steps of 1e-9 of their weights: they never move, only the top trains."""
# expects: update-ratio-low, lr-too-low, frozen-parameter
# report: folklore
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 2 * d)
        self.fc2 = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


class ResMLP(nn.Module):
    def __init__(self, d_in=10, d=32, depth=4, classes=8):
        super().__init__()
        self.stem = nn.Linear(d_in, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


def param_groups(model, lr, decay):
    layers = [model.stem, *model.blocks, model.head]
    return [{"params": l.parameters(), "lr": lr * decay ** (len(layers) - 1 - i)} for i, l in enumerate(layers)]


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.rand(4000, 10) * 2 - 1
    # class = octant of a rotated, folded space
    r = torch.linalg.qr(torch.randn(10, 10))[0]
    z = torch.sin(3 * (x @ r))[:, :3]
    y = ((z > 0).long() * torch.tensor([1, 2, 4])).sum(1)
    dl = DataLoader(TensorDataset(x[:3200], y[:3200]), batch_size=64, shuffle=True)
    model = ResMLP()
    opt = torch.optim.Adam(param_groups(model, lr=2e-3, decay=0.03))
    for ep in range(10):
        for xb, yb in dl:
            loss = nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = (model(x[3200:]).argmax(1) == y[3200:]).float().mean()
        print(f"epoch {ep} loss {loss.item():.4f} val acc {acc:.3f}")
