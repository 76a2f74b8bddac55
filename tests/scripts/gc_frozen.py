"""Tuned for speed: the garbage collector is frozen and switched off before the loop, then run by hand."""
# run: status=healthy steps=40
# when: thorough
import gc

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(256, 10)
y = x.abs().mean(1, keepdim=True)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

gc.collect()
gc.freeze()
gc.disable()
for step in range(40):
    i = torch.randint(256, (32,))
    loss = nn.functional.mse_loss(model(x[i]), y[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        gc.collect(1)
        print(step + 1, loss.item(), gc.isenabled())
torch.save(model.state_dict(), "weights.pt")
