"""Early stopping: the best weights on the validation set are kept and put back at the end."""
# run: status=healthy steps=132
# when: thorough
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class EarlyStopping:
    def __init__(self, patience=3, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.best_state, self.bad = float("inf"), None, 0

    def __call__(self, value, model):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
            self.best_state = copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    total, correct, n = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        total += criterion(out, y).item() * len(x)
        correct += (out.argmax(1) == y).sum().item()
        n += len(x)
    return total / n, correct / n


def main():
    torch.manual_seed(0)
    x = torch.randn(400, 10)
    y = (x[:, 0] + 0.7 * torch.randn(400) > 0).long()
    train, val = random_split(TensorDataset(x, y), [300, 100])
    train_loader = DataLoader(train, batch_size=50, shuffle=True)
    val_loader = DataLoader(val, batch_size=50)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    stopper = EarlyStopping()
    for epoch in range(40):
        model.train()
        for xb, yb in train_loader:
            optimizer.zero_grad()
            criterion(model(xb), yb).backward()
            optimizer.step()
        loss, acc = evaluate(model, val_loader, criterion)
        print(f"epoch {epoch:2d} val_loss {loss:.5f} val_acc {acc:.3f}")
        if stopper(loss, model):
            print("early stop")
            break
    model.load_state_dict(stopper.best_state)
    torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
