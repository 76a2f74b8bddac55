"""lr=1e-8 left over from a debugging session: nothing is learned."""
# expects: lr-too-low, update-ratio-low, loss-plateau

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--lr", type=float, default=1e-8)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    prototypes = torch.rand(10, 64)
    target = torch.randint(0, 10, (960,))
    data = prototypes[target] + 0.2 * torch.randn(960, 64)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for idx in torch.randperm(960).split(args.batch_size):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data[idx]), target[idx])
            loss.backward()
            optimizer.step()
        print(f"Train Epoch: {epoch}\tLoss: {loss.item():.6f}")


if __name__ == "__main__":
    main()
