"""Stochastic weight averaging with AveragedModel, SWALR and update_bn."""
# run: status=healthy steps=80
# when: thorough
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
x = torch.randn(320, 10)
y = x.cumsum(1).argmax(1) % 3
loader = [(x[i:i + 32], y[i:i + 32]) for i in range(0, 320, 32)]

model = nn.Sequential(nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
swa_model = AveragedModel(model)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
swa_start = 4
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)

for epoch in range(8):
    for inp, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inp), target)
        loss.backward()
        optimizer.step()
    if epoch >= swa_start:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(epoch, f"{loss.item():.6f}", f"{optimizer.param_groups[0]['lr']:.6f}")

update_bn(loader, swa_model)
swa_model.eval()
with torch.no_grad():
    print("swa", nn.functional.cross_entropy(swa_model(x), y).item(), "n_averaged", swa_model.n_averaged.item())
torch.save(swa_model.state_dict(), "weights.pt")
