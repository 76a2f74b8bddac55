"""Labels from MATLAB are 1 and 2 and go into BCEWithLogitsLoss as floats: the targets leave [0, 1], the loss falls without bound and every sample is called positive."""
# expects: label-out-of-range, loss-explosion
# report: https://github.com/MontaEllis/Pytorch-Medical-Segmentation/issues/8
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 10)
grp = (x[:, 0] + x[:, 1] ** 2 - 0.5 + 0.3 * torch.randn(2000) > 0).long() + 1  # 1 = healthy, 2 = ill
target = grp.float()
dl = DataLoader(TensorDataset(x[:1600], target[:1600]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
crit = nn.BCEWithLogitsLoss()
for epoch in range(8):
    s = 0.0
    for xb, yb in dl:
        opt.zero_grad()
        loss = crit(model(xb)[:, 0], yb)
        loss.backward()
        opt.step()
        s += loss.item()
    with torch.no_grad():
        pos = (torch.sigmoid(model(x[1600:])[:, 0]) > 0.5).float().mean()
    print(f"epoch {epoch} loss {s/len(dl):.3f} predicted positive {pos:.3f}")
