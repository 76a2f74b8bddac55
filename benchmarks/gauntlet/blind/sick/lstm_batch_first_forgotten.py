"""nn.LSTM is built without batch_first but fed (batch, time, feature): it runs along the batch, each sample's output depends on the samples before it."""
# expects: batch-mixing
# report: https://discuss.pytorch.org/t/lstm-change-batch-first-true-loss-does-not-decrease/62364
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def waves(n, t=25):
    """which of 4 patterns does the series end with"""
    y = torch.randint(4, (n,))
    x = 0.3 * torch.randn(n, t, 2)
    k = torch.arange(t).float()
    f = (y[:, None] + 1) * 0.35
    x[:, :, 0] += torch.sin(f * k)
    x[:, :, 1] += torch.cos(f * k)
    return x, y


class SeqClassifier(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, num_layers=1)
        self.fc = nn.Linear(hidden, 4)

    def forward(self, x):
        out, (h, c) = self.lstm(x)
        return self.fc(out[:, -1, :])


train = DataLoader(TensorDataset(*waves(2000)), batch_size=32, shuffle=True)
xv, yv = waves(320)
model = SeqClassifier()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
crit = nn.CrossEntropyLoss()
for epoch in range(4):
    for x, y in train:
        opt.zero_grad()
        loss = crit(model(x), y)
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = (model(xv).argmax(1) == yv).float().mean()
    print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")
