"""CosineAnnealingWarmRestarts stepped per batch: the lr jumps back up by design, and the loss bumps a little at each restart before ending lower."""
# expects:
# source: https://arxiv.org/abs/1608.03983
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def gratings(n):
    y = torch.randint(0, 6, (n,))
    ang = y * torch.pi / 6 + 0.06 * torch.randn(n)
    yy, xx = torch.meshgrid(torch.arange(14.), torch.arange(14.), indexing="ij")
    ph = torch.rand(n, 1, 1) * 6.28
    u = ang.cos().view(-1, 1, 1) * xx + ang.sin().view(-1, 1, 1) * yy
    x = torch.sin(u * 1.1 + ph) + 1.2 * torch.randn(n, 14, 14)
    return x.unsqueeze(1), y


net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 6))
dl = DataLoader(TensorDataset(*gratings(2400)), batch_size=40, shuffle=True)
xt, yt = gratings(600)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-4)
for epoch in range(7):
    net.train()
    for x, y in dl:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        sched.step()
    net.eval()
    with torch.no_grad():
        o = net(xt)
    print(f"epoch {epoch + 1} lr {sched.get_last_lr()[0]:.5f} test loss {F.cross_entropy(o, yt):.4f} acc {(o.argmax(1) == yt).float().mean():.4f}")
