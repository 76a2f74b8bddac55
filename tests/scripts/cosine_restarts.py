"""Linear warm-up, then cosine annealing with warm restarts, chained with SequentialLR."""
# run: status=healthy steps=80
# when: thorough

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, LinearLR, SequentialLR

torch.manual_seed(8)
x = torch.rand(256, 2) * 2 - 1
y = (x.norm(dim=1) < 0.7).float()

net = nn.Sequential(nn.Linear(2, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1), nn.Flatten(0))
optim = torch.optim.AdamW(net.parameters(), lr=5e-3)
warm = LinearLR(optim, start_factor=0.05, total_iters=10)
cosine = CosineAnnealingWarmRestarts(optim, T_0=10, T_mult=2)
scheduler = SequentialLR(optim, [warm, cosine], milestones=[10])

for it in range(80):
    batch = torch.randint(256, (48,))
    loss = nn.functional.binary_cross_entropy_with_logits(net(x[batch]), y[batch])
    optim.zero_grad()
    loss.backward()
    optim.step()
    scheduler.step()
    if it % 10 == 0:
        print(it, "lr=%.6f" % scheduler.get_last_lr()[0], "loss=%.6f" % loss)

torch.save(net.state_dict(), "weights.pt")
