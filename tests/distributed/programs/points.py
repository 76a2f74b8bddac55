"""Ranks that are delayed, or killed, at some point of a step: `points.py delayed|killed POINT [POINT ...]`."""

import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

how, points = sys.argv[1], sys.argv[2:]
now = [-1]


def reach(point: str, rank: int) -> None:
    """Here it happens, to one rank, at a step of its own for each point."""
    if point not in points:
        return
    at = points.index(point)
    if now[0] == (5 + 3 * at if point not in ("start", "end", "exit") else now[0]) and rank == at % 2:
        if how == "delayed":
            time.sleep(1.0)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


class Data(TensorDataset):
    def __getitem__(self, index):
        reach("data", rank)
        return super().__getitem__(index)


class Layer(nn.Linear):
    def forward(self, x):
        reach("forward", rank)
        return super().forward(x)


def told(gradient):
    reach("backward", rank)
    return gradient


dist.init_process_group("gloo")
rank = dist.get_rank()
reach("start", rank)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(Layer(8, 16), nn.ReLU(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer.register_step_pre_hook(lambda *_: reach("optimizer", rank))
x = torch.randn(40 * 4, 8, generator=torch.Generator().manual_seed(rank))
for inputs, labels in DataLoader(Data(x, (x[:, 0] > 0).long()), batch_size=4):
    now[0] += 1
    output = model(inputs)
    output.register_hook(told)
    loss = nn.functional.cross_entropy(output, labels)
    optimizer.zero_grad()
    loss.backward()
    reach("between", rank)
    optimizer.step()
    time.sleep(0.01)
reach("end", rank)
dist.barrier()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print(f"rank {rank}: {digest}\n", end="", flush=True)  # in one write: ranks print at the same time
reach("exit", rank)
dist.barrier()
os._exit(0)
