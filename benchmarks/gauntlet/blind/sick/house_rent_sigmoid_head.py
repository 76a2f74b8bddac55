"""Rents between 3 and 40 (hundreds of euros) are regressed with a sigmoid at the end of the network: the output cannot pass 1."""
# expects: output-range, saturated-units, unnormalized-target
# report: folklore
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n = 3000
area = torch.rand(n) * 120 + 20
rooms = (area / 30).round() + torch.randint(0, 2, (n,))
dist = torch.rand(n) * 20
rent = 3 + 0.2 * area + 1.5 * rooms - 0.4 * dist + torch.randn(n)
X = torch.stack([area, rooms, dist], 1)
X = (X - X.mean(0)) / X.std(0)
loader = DataLoader(TensorDataset(X, rent[:, None].clamp(min=3)), batch_size=60, shuffle=True)


def build_mlp(n_in, hidden, n_out):
    return nn.Sequential(
        nn.Linear(n_in, hidden), nn.ReLU(),
        nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, n_out), nn.Sigmoid(),
    )


net = build_mlp(3, 64, 1)
opt = optim.Adam(net.parameters(), lr=1e-3)
lossf = nn.L1Loss()
for e in range(8):
    tot = 0
    for xb, yb in loader:
        opt.zero_grad()
        l = lossf(net(xb), yb)
        l.backward()
        opt.step()
        tot += l.item()
    print(f"epoch {e}: mae {tot/len(loader):.3f}")
