"""Plain MNIST-tutorial CNN on drawn digit-like glyphs with NLLLoss after log_softmax and Adadelta lr=1.0: looks odd (lr 1.0) but is the standard example."""
# expects:
# source: https://github.com/pytorch/examples/blob/main/mnist/main.py
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

GLYPHS = ["01110100011001110101110011000101110", "00100011000010000100001000010001110", "01110100010000100010001000100011111",
          "11111000100010000010000011000101110", "00010001100101010010111110001000010", "11111100001111000001000011000101110",
          "00110010001000011110100011000101110", "11111000010001000100010000100001000", "01110100011000101110100011000101110",
          "01110100011000101111000010001001100"]


def make_digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    base = torch.tensor([[int(c) for c in s] for s in GLYPHS]).float().view(10, 1, 7, 5)
    base = F.interpolate(base, size=(14, 10))
    y = torch.randint(0, 10, (n,), generator=g)
    x = torch.zeros(n, 1, 20, 20)
    dx = torch.randint(0, 10, (n,), generator=g)
    dy = torch.randint(0, 6, (n,), generator=g)
    for i in range(n):
        x[i, :, dy[i]:dy[i] + 14, dx[i]:dx[i] + 10] = base[y[i]]
    x += 0.25 * torch.randn(x.shape, generator=g)
    return (x - 0.17) / 0.45, y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(32 * 8 * 8, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(loader.dataset)}]\tLoss: {loss.item():.6f}")


def test(model, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            out = model(data)
            test_loss += F.nll_loss(out, target, reduction="sum").item()
            correct += (out.argmax(1) == target).sum().item()
    n = len(loader.dataset)
    print(f"\nTest set: Average loss: {test_loss / n:.4f}, Accuracy: {correct}/{n} ({100. * correct / n:.1f}%)\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=1.0)
    p.add_argument("--gamma", type=float, default=0.7)
    p.add_argument("--log-interval", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    train_loader = DataLoader(TensorDataset(*make_digits(4000, 0)), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(*make_digits(1000, 1)), batch_size=500)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, train_loader, optimizer, epoch)
        test(model, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
