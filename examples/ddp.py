"""Two processes that train one model together, each of them watched.

    torchrun --nproc-per-node 2 examples/ddp.py
    torchrun --nproc-per-node 2 examples/ddp.py --sick

Every rank reads its own steps and its own loss; the gradients are those after they were averaged, alike on all ranks.
The first one speaks on the terminal; in the record they are one run. With `--sick` the second rank clips, alone, from
step 20 on: the two are no longer one model, which nothing else would tell.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import seismograd as sg

dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(0)
rule = torch.randn(16, 3)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

torch.manual_seed(1 + rank)  # each rank has data of its own
with sg.watch(model, optimizer, name="ddp", store="runs") as watch:
    for step in range(60):
        inputs = torch.randn(32, 16)
        labels = (inputs @ rule).argmax(dim=1)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        if "--sick" in sys.argv and rank == 1 and step >= 20:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()

status = (
    f"{watch.status}, " if rank == 0 else ""
)  # the first one's is that of all: what is wrong between ranks it knows
print(f"rank {rank}: {status}{watch.report()['run']['steps']} steps, loss {loss.item():.3f}", flush=True)
del model  # it holds the process group, whose threads, alive at the end of Python, abort it now and then (torch's own)
dist.destroy_process_group()
