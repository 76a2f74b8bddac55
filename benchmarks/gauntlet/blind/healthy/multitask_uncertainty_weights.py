"""Multi-task learning with learned log-variances (Kendall et al.): the total loss goes negative and keeps falling as the sigmas shrink; lives in a separate loss module with its own parameters in the optimizer."""
# expects:
# source: https://arxiv.org/abs/1705.07115
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(0)


class Scenes(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 14)
        h = torch.tanh(self.x @ torch.randn(14, 8, generator=torch.Generator().manual_seed(5)) / 3)
        g = torch.Generator().manual_seed(6)
        self.depth = h @ torch.randn(8, 1, generator=g) * 0.3 + 0.02 * torch.randn(n, 1)
        self.angle = h @ torch.randn(8, 2, generator=g) + 0.2 * torch.randn(n, 2)
        self.cls = (h @ torch.randn(8, 4, generator=g)).argmax(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "depth": self.depth[i], "angle": self.angle[i], "cls": self.cls[i]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleDict({"depth": nn.Linear(64, 1), "angle": nn.Linear(64, 2), "cls": nn.Linear(64, 4)})

    def forward(self, x):
        h = self.trunk(x)
        return {k: m(h) for k, m in self.heads.items()}


class UncertaintyLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in ("depth", "angle", "cls")})

    def forward(self, out, batch):
        ls = {"depth": 0.5 * F.mse_loss(out["depth"], batch["depth"]), "angle": 0.5 * F.mse_loss(out["angle"], batch["angle"]),
              "cls": F.cross_entropy(out["cls"], batch["cls"])}
        total = sum(torch.exp(-self.log_var[k]) * v + 0.5 * self.log_var[k] for k, v in ls.items())
        return total, ls


net, crit = Net(), UncertaintyLoss()
opt = torch.optim.Adam([{"params": net.parameters()}, {"params": crit.parameters(), "lr": 1e-2}], lr=2e-3)
train, test = DataLoader(Scenes(5000), batch_size=100, shuffle=True), DataLoader(Scenes(1000), batch_size=1000)
for epoch in range(8):
    net.train()
    for b in train:
        loss, _ = crit(net(b["x"]), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        b = next(iter(test))
        o = net(b["x"])
        t, ls = crit(o, b)
    print(f"epoch {epoch} train {loss.item():+.3f} test {t.item():+.3f} depth mse {2 * ls['depth']:.4f} angle mse {2 * ls['angle']:.4f} acc {(o['cls'].argmax(1) == b['cls']).float().mean():.3f}")
