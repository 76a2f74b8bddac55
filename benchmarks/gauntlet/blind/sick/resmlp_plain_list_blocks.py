"""The hidden blocks live in a plain Python list, so model.parameters() has only the first and last layer: the blocks take part and never train."""
# expects: unregistered-parameter, unoptimized-parameter
# report: https://github.com/LianpoWang/SLIIF/issues/13
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class RegressionNet(nn.Module):
    def __init__(self, n_layers=5, dim=24):
        super().__init__()
        self.inp = nn.Linear(2, dim)
        self.blocks = [nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) for _ in range(n_layers)]
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        for block in self.blocks:
            h = block(h)
        return self.out(h)


torch.manual_seed(0)
xy = torch.rand(3000, 2) * 4 - 2
target = (torch.sin(2 * xy[:, 0]) * torch.cos(2 * xy[:, 1])).unsqueeze(1)
loader = DataLoader(TensorDataset(xy, target), batch_size=50, shuffle=True, drop_last=True)
net = RegressionNet()
print("parameters:", sum(p.numel() for p in net.parameters()))
optim = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(1, 11):
    acc = 0.0
    for xb, tb in loader:
        optim.zero_grad()
        loss = nn.functional.mse_loss(net(xb), tb)
        loss.backward()
        optim.step()
        acc += loss.item()
    print(f"epoch {epoch:2d} mse {acc/len(loader):.5f}")
