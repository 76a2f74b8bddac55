"""No module at all: a Michaelis-Menten curve fitted to bare tensors; concentration and constant are both 0."""
# op: aten.div
# phase: loss|forward
# module: -
# conditions: no-module

import torch

torch.manual_seed(0)
concentration = torch.linspace(0, 5, 20)
rate = 2.0 * concentration / (0.8 + concentration) + 0.01 * torch.randn(20)
vmax = torch.tensor(1.0, requires_grad=True)
km = torch.tensor(0.1, requires_grad=True)
optimizer = torch.optim.SGD([vmax, km], lr=0.5)
for step in range(8):
    predicted = vmax * concentration / (km.clamp(min=0) + concentration)  # <-- origin
    loss = ((predicted - rate) ** 2).mean() + 0.2 * km
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, vmax.item(), km.item())
