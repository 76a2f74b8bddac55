"""DistributedDataParallel with a world of one."""
# run: status=healthy steps=24
# when: thorough
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
store = tempfile.mktemp()
dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(128, 8)
y = x.mean(1, keepdim=True)
for step in range(24):
    i = torch.randint(128, (32,))
    opt.zero_grad()
    if step % 2 == 0:
        with model.no_sync():
            (nn.functional.mse_loss(model(x[i]), y[i]) / 2).backward()
    loss = nn.functional.mse_loss(model(x[i]), y[i])
    loss.backward()
    opt.step()
    if step % 6 == 5 and dist.get_rank() == 0:
        print(step + 1, loss.item())
torch.save(model.module.state_dict(), "weights.pt")
dist.destroy_process_group()
os.path.exists(store) and os.remove(store)
