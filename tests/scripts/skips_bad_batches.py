"""A careful loop: a batch with a bad loss is skipped, an error in one batch is caught and reported.

The batches that it skips are worth telling all the same: who reads on would not know why.
"""
# run: status=critical steps=37
# findings: nonfinite-input nonfinite-loss
# when: thorough
import math
import sys

import torch
from torch import nn

torch.manual_seed(9)
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
skipped = failed = 0
for step in range(40):
    x = torch.randn(32, 5)
    y = x.square().mean(1, keepdim=True)
    if step in (13, 27):
        y[3] = math.nan
    if step == 20:
        x = x[:, :4]
    try:
        loss = nn.functional.mse_loss(model(x), y)
    except RuntimeError as e:
        print("batch", step, "failed:", e, file=sys.stderr)
        failed += 1
        continue
    if not torch.isfinite(loss):
        skipped += 1
        opt.zero_grad()
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 8 == 0:
        print(step, loss.item())
print("skipped", skipped, "failed", failed)
torch.save(model.state_dict(), "weights.pt")
