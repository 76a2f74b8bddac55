"""Binary cross entropy by hand: a saturated sigmoid is exactly 1, and log(1 - p) is log(0)."""
# op: aten.log
# phase: loss
# module: -
# conditions: loop multiline

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 6)
x[44] *= 400  # an outlier that somebody forgot to clean
y = (x[:, 0] > 0).float()
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=False)

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
with torch.no_grad():
    model[2].bias.fill_(0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(1):
    for inputs, target in loader:
        p = torch.sigmoid(model(inputs).squeeze(1).abs())
        loss = -(
            target * torch.log(p)
            + (1 - target) * torch.log(1 - p)  # <-- origin
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.4f}")
