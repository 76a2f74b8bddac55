"""A training on several ranks that does not go on: `stuck.py HOW RANK`."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

how, who = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)

for step in range(1000):
    if step == 12 and rank == who:
        if how == "sleeps":
            time.sleep(600)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leaves":
            break
    if how == "slow" and step == 12 and rank == who:  # it works, and the others wait for it
        until = time.monotonic() + 8
        while time.monotonic() < until:
            torch.randn(200, 200) @ torch.randn(200, 200)
    if how == "slow" and step == 20:
        break
    x = torch.randn(16, 8)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
print(f"rank {rank} is through", flush=True)
dist.barrier()
os._exit(0)
