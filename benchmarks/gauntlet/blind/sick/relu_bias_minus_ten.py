"""All biases are initialised to -10 'for sparsity', so no hidden ReLU ever fires on any sample: only the output bias learns."""
# expects: dead-units, bad-initialization, constant-output
# report: https://stats.stackexchange.com/questions/450100/understanding-relu-does-this-unlucky-intialized-network-assign-all-instances
import torch
from torch import nn


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        nn.init.constant_(m.bias, -10.0)


torch.manual_seed(21)
x = torch.randn(2400, 6)
y = torch.sin(x[:, :1] * 2) + x[:, 1:2] * x[:, 2:3] + 0.05 * torch.randn(2400, 1)
y = (y - y.mean()) / y.std()
net = nn.Sequential(nn.Linear(6, 80), nn.ReLU(), nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 1))
net.apply(init_weights)
nn.init.zeros_(net[-1].bias)

opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(12):
    perm = torch.randperm(2000)
    tr = 0.0
    for i in range(0, 2000, 50):
        idx = perm[i:i + 50]
        out = net(x[idx])
        loss = nn.functional.mse_loss(out, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        tr += loss.item()
    with torch.no_grad():
        va = nn.functional.mse_loss(net(x[2000:]), y[2000:]).item()
    print(f"{epoch:02d} train {tr/40:.4f} val {va:.4f}")
