"""Gradients of 16 micro-batches are added up without dividing the loss by 16, with the lr tuned for the full batch: effective step 16x, training is unstable."""
# expects: accumulation-mismatch, lr-too-high
# report: https://github.com/agokrani/distillKitPlus/issues/5
import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--micro_batch", type=int, default=8)
    ap.add_argument("--grad_accum", type=int, default=16)
    ap.add_argument("--lr", type=float, default=0.3)
    ap.add_argument("--epochs", type=int, default=8)
    return ap.parse_args([])


def main(args):
    torch.manual_seed(0)
    x = torch.randn(4096, 20)
    t = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4))
    with torch.no_grad():
        for p in t.parameters():
            p.mul_(2)
        y = t(x).argmax(1)
    dl = DataLoader(TensorDataset(x[:3840], y[:3840]), batch_size=args.micro_batch, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    crit = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        opt.zero_grad()
        run = 0.0
        for i, (xb, yb) in enumerate(dl):
            loss = crit(model(xb), yb)
            loss.backward()
            run += loss.item()
            if (i + 1) % args.grad_accum == 0:
                opt.step()
                opt.zero_grad()
        with torch.no_grad():
            acc = (model(x[3840:]).argmax(1) == y[3840:]).float().mean()
        print(f"epoch {epoch} loss {run/len(dl):.4f} val acc {acc:.3f}")


main(parse())
