"""LSTM one-step forecaster of a noisy seasonal series with trend, trained on shuffled windows of first differences; the loss floor is the noise variance."""
# expects:
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader

np.random.seed(0)
torch.manual_seed(0)
t = np.arange(2400)
series = 50 + 0.02 * t + 10 * np.sin(2 * np.pi * t / 24) + 4 * np.sin(2 * np.pi * t / 168) + np.random.normal(0, 0.5, len(t))
diff = np.diff(series).astype(np.float32)
mu, sd = diff[:1900].mean(), diff[:1900].std()
z = (diff - mu) / sd
W = 30
X = np.stack([z[i:i + W] for i in range(len(z) - W)])[..., None]
Y = z[W:]
trX, trY, teX, teY = map(torch.from_numpy, (X[:1900], Y[:1900], X[1900:], Y[1900:]))
loader = DataLoader(TensorDataset(trX, trY), batch_size=64, shuffle=True, drop_last=True)


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        o, _ = self.rnn(x)
        return self.head(o[:, -1])[:, 0]


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
sch = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[5, 7], gamma=0.3)
for ep in range(9):
    model.train()
    ls = []
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        ls.append(loss.item())
    sch.step()
    model.eval()
    with torch.no_grad():
        p = model(teX)
        mae = (p - teY).abs().mean().item() * sd
    naive = (teX[:, -1, 0] - teY).abs().mean().item() * sd
    print(f"epoch {ep} train {np.mean(ls):.4f} test MAE {mae:.3f} (persistence {naive:.3f})")
