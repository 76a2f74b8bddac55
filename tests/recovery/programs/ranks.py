"""Two ranks, of which one meets bad batches: both have to do the same about them."""

import json
import math
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import seismograd as sg
from seismograd.recovery import Rollback, TrainingStopped

what = sys.argv[1]
RECOVERY = {
    "skip": {"nonfinite-input": "skip"},
    "rollback": {"nonfinite-input": "skip", "nonfinite-parameter": Rollback(every=4)},
    "stop": {"nonfinite-input": "stop"},
    "lower-lr": {"nonfinite-input": "lower-lr"},
    "alone": {"nonfinite-input": "skip"},
    "sharded": {"nonfinite-*": "skip"},
}[what]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
if what == "sharded":
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
else:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watches = what != "alone" or rank == 0
watch = sg.watch(model, optimizer, recovery=RECOVERY, sinks=[], store=False) if watches else None
if what == "alone":
    from seismograd.recovery import agreement

    agreement.FIRST = 3.0
torch.manual_seed(rank)
stopped = None
try:
    for step in range(20):
        x = torch.randn(16, 4)
        if step == 10 and rank == 1:
            if what == "rollback":
                with torch.no_grad():
                    model.module[0].weight[0, 0] = math.nan
            else:
                x[3, 1] = math.nan
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
except TrainingStopped as error:
    stopped = str(error)
if watch is not None:
    watch.close()
told = {
    "weights": [getattr(p, "_local_tensor", p).detach().flatten().tolist() for p in model.parameters()],
    "lr": optimizer.param_groups[0]["lr"],
    "stopped": stopped,
    "summary": watch.get_training_summary() if watch is not None else None,
    "actions": [
        (event["data"]["step"], event["data"]["action"])
        for event in (watch.events if watch is not None else [])
        if event["event_type"] == "recovery"
    ],
    "events": [event["message"] for event in watch.events] if watch is not None else [],
}
gathered = [None, None]
dist.all_gather_object(gathered, told)
if rank == 0:
    print("TOLD " + json.dumps(gathered), flush=True)
dist.barrier()
os._exit(0)  # at a regular end gloo's threads abort the process now and then, an unwatched one too
