"""Each step takes next(iter(loader)) from a loader that is re-created with a fixed generator seed: the same 32 samples are trained on for the whole run."""
# expects: repeated-batch, overfitting
# report: folklore
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(3000, 16)
Y = ((X[:, :4] ** 2).sum(1) > 3.4).long()
train_ds = TensorDataset(X[:2500], Y[:2500])


def get_loader():
    # reproducible order
    g = torch.Generator()
    g.manual_seed(1234)
    return DataLoader(train_ds, batch_size=32, shuffle=True, generator=g)


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
max_iters, eval_interval = 400, 50
for it in range(max_iters):
    xb, yb = next(iter(get_loader()))
    loss = F.cross_entropy(model(xb), yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % eval_interval == 0 or it == max_iters - 1:
        with torch.no_grad():
            val = F.cross_entropy(model(X[2500:]), Y[2500:])
            acc = (model(X[2500:]).argmax(1) == Y[2500:]).float().mean()
        print(f"iter {it}: train {loss.item():.4f} val {val:.4f} acc {acc:.3f}")
