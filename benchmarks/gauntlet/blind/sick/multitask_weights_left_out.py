"""Kendall-style log-variances weigh the two task losses, but only model.parameters() go to the optimizer; the log-variances (in the loss module) get gradients and never change."""
# expects: unoptimized-parameter, unregistered-parameter
# report: https://github.com/pytorch/vision/issues/802
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class UncertaintyLoss(nn.Module):
    def __init__(self, n_tasks):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(n_tasks))

    def forward(self, losses):
        losses = torch.stack(losses)
        return (torch.exp(-self.log_var) * losses + self.log_var).sum()


class SharedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.reg = nn.Linear(32, 1)
        self.cls = nn.Linear(32, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.reg(h), self.cls(h)


torch.manual_seed(0)
x = torch.randn(3000, 12)
w = torch.randn(12, 4)
z = torch.tanh(x @ w / 3)
y_reg = z[:, :1] * 2 + 3.0 * torch.randn(3000, 1)  # noisy measurement
y_cls = (z[:, 1:] + 0.05 * torch.randn(3000, 3)).argmax(1)
dl = DataLoader(TensorDataset(x, y_reg, y_cls), batch_size=50, shuffle=True)
net, weigh = SharedNet(), UncertaintyLoss(2)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    tr = tc = 0.0
    for xb, rb, cb in dl:
        r, c = net(xb)
        lr_, lc = F.mse_loss(r, rb), F.cross_entropy(c, cb)
        loss = weigh([lr_, lc])
        opt.zero_grad()
        weigh.zero_grad()
        loss.backward()
        opt.step()
        tr += lr_.item()
        tc += lc.item()
    print(f"epoch {epoch} reg {tr/len(dl):.4f} cls {tc/len(dl):.4f} weights {torch.exp(-weigh.log_var).tolist()}")
