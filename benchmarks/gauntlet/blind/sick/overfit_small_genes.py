"""120 noisy samples with 400 features, a wide MLP, no regularisation, no early stopping: training loss goes to 0 while validation loss turns up after a few epochs."""
# expects: overfitting
# report: folklore
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 400, generator=g)
    s = x[:, :6].sum(1) * 0.8 + 1.2 * torch.randn(n, generator=g)
    return x, (s > 0).long()


def evaluate(model, dl, crit):
    model.eval()
    tot, ok, n = 0.0, 0, 0
    with torch.no_grad():
        for x, y in dl:
            out = model(x)
            tot += crit(out, y).item() * len(y)
            ok += (out.argmax(1) == y).sum().item()
            n += len(y)
    model.train()
    return tot / n, ok / n


def main():
    torch.manual_seed(0)
    train_dl = DataLoader(TensorDataset(*make(120, 0)), batch_size=20, shuffle=True)
    val_dl = DataLoader(TensorDataset(*make(400, 1)), batch_size=100)
    model = nn.Sequential(nn.Linear(400, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    crit = nn.CrossEntropyLoss()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(60):
        tl = 0.0
        for x, y in train_dl:
            opt.zero_grad()
            loss = crit(model(x), y)
            loss.backward()
            opt.step()
            tl += loss.item()
        vl, va = evaluate(model, val_dl, crit)
        print(f"epoch {epoch:2d} train {tl/len(train_dl):.4f} val {vl:.4f} val acc {va:.3f}")


main()
