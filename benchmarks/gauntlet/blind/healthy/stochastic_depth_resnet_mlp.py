"""Residual net with stochastic depth: whole blocks are skipped at random in training, so their gradients are None in those steps; the last norm of each block starts at zero."""
# expects:
# source: https://arxiv.org/abs/1603.09382
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class DropBlock(nn.Module):
    def __init__(self, d, p_drop):
        super().__init__()
        self.norm1, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)
        self.gamma = nn.Parameter(torch.zeros(d))
        self.p = p_drop

    def forward(self, x):
        if self.training and torch.rand(()) < self.p:
            return x
        f = self.gamma * self.fc2(F.gelu(self.fc1(self.norm1(x))))
        return x + (f / (1 - self.p) if self.training else f)


class Net(nn.Module):
    def __init__(self, d=48, depth=6, k=6):
        super().__init__()
        self.stem = nn.Linear(12, d)
        self.blocks = nn.ModuleList(DropBlock(d, 0.4 * i / (depth - 1)) for i in range(depth))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, k)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


g = torch.randn(12, 24)
w = torch.randn(24, 6)
X = torch.randn(5000, 12)
Y = (torch.sin(X @ g / 4) @ w).argmax(1)
loader = DataLoader(TensorDataset(X[:4200], Y[:4200]), batch_size=70, shuffle=True)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.02)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 6 * len(loader))
for epoch in range(6):
    net.train()
    run = 0
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        run += loss.item() / len(loader)
    net.eval()
    with torch.no_grad():
        o = net(X[4200:])
    print(f"epoch {epoch + 1} train {run:.3f} val {F.cross_entropy(o, Y[4200:]):.3f} acc {(o.argmax(1) == Y[4200:]).float().mean():.3f}")
