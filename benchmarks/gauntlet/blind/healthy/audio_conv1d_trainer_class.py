"""1-D conv keyword-like classifier with Trainer class, checkpoints to a temp dir, early stopping and reload of the best weights at the end."""
# expects:
import math
import os
import tempfile
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Tones(Dataset):
    CLASSES = ["up", "down", "flat", "wobble"]

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 1, 256)
        self.items = []
        for i in range(n):
            c = int(torch.randint(0, 4, (1,), generator=g))
            f0 = 10 + 10 * torch.rand(1, generator=g)
            f = {0: f0 * (1 + t), 1: f0 * (2 - t), 2: f0 * 1.5 + 0 * t, 3: f0 * (1.5 + 0.5 * torch.sin(6 * math.pi * t))}[c]
            ph = torch.rand(1, generator=g) * 6.28
            w = torch.sin(2 * math.pi * torch.cumsum(f, 0) / 256 + ph) + 0.7 * torch.randn(256, generator=g)
            self.items.append((w.unsqueeze(0), c))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def block(i, o, s):
    return nn.Sequential(nn.Conv1d(i, o, 7, s, 3), nn.BatchNorm1d(o), nn.ReLU())


class Trainer:
    def __init__(self, model, train_dl, val_dl, lr, patience, ckpt_dir):
        self.model, self.train_dl, self.val_dl = model, train_dl, val_dl
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-5)
        self.loss_fn = nn.CrossEntropyLoss()
        self.patience, self.path = patience, os.path.join(ckpt_dir, "best.pt")
        self.best, self.bad = -1.0, 0

    def train_epoch(self):
        self.model.train()
        tot = 0.0
        for x, y in self.train_dl:
            self.opt.zero_grad()
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            self.opt.step()
            tot += loss.item()
        return tot / len(self.train_dl)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        ok = n = 0
        for x, y in self.val_dl:
            ok += (self.model(x).argmax(1) == y).sum().item()
            n += len(y)
        return ok / n

    def fit(self, epochs):
        for e in range(epochs):
            tr, acc = self.train_epoch(), self.validate()
            print(f"epoch {e} train loss {tr:.4f} val acc {acc:.4f}")
            if acc > self.best:
                self.best, self.bad = acc, 0
                torch.save({"model": self.model.state_dict(), "opt": self.opt.state_dict(), "epoch": e}, self.path)
            else:
                self.bad += 1
                if self.bad >= self.patience:
                    print("early stop")
                    break
        self.model.load_state_dict(torch.load(self.path)["model"])
        print(f"restored best: val acc {self.validate():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(block(1, 12, 2), block(12, 24, 2), block(24, 24, 2), nn.Conv1d(24, 32, 9, 2, 4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 16, 4))
    with tempfile.TemporaryDirectory() as d:
        Trainer(net, DataLoader(Tones(1600, 0), batch_size=32, shuffle=True), DataLoader(Tones(400, 1), batch_size=100), 2e-3, 3, d).fit(6)
