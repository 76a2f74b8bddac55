"""model.train() is called once before the epochs, validate() sets eval() and never restores it: from the second epoch on dropout and batch norm train in eval mode."""
# expects: eval-mode-training
# report: https://github.com/hendrycks/ethics/issues/5
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 30)
w = torch.randn(30)
y = ((x @ w + 2 * torch.randn(2000)) > 0).float()
train = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=30, shuffle=True)
valid = DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=100)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(30, 128)
        self.bn1 = nn.BatchNorm1d(128)
        self.fc2 = nn.Linear(128, 64)
        self.drop = nn.Dropout(0.5)
        self.fc3 = nn.Linear(64, 1)

    def forward(self, x):
        x = self.drop(torch.relu(self.bn1(self.fc1(x))))
        x = self.drop(torch.relu(self.fc2(x)))
        return self.fc3(x).squeeze(1)


def validate(model, loader, criterion):
    model.eval()
    loss, correct, n = 0.0, 0, 0
    with torch.no_grad():
        for xb, yb in loader:
            out = model(xb)
            loss += criterion(out, yb).item() * len(yb)
            correct += ((out > 0).float() == yb).sum().item()
            n += len(yb)
    return loss / n, correct / n


model = Classifier()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
model.train()
for epoch in range(8):
    total = 0.0
    for xb, yb in train:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        total += loss.item()
    vl, va = validate(model, valid, criterion)
    print(f"epoch {epoch} train {total/len(train):.4f} val {vl:.4f} acc {va:.3f}")
