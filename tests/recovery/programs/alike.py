"""Two ranks of which one knows what the other does not: both have to do the same, one watch after another."""

import json
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import seismograd as sg
from seismograd.recovery import Clip, Rollback

dist.init_process_group("gloo")
rank = dist.get_rank()


class Net(nn.Module):
    """Its root has an infinite derivative, of one row of the first layer, where `sharp`."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)
        self.sharp = False

    def forward(self, x):
        h = self.first(x)
        if self.sharp:
            h = torch.cat([h[:, :7], torch.sqrt(h[:, 7:] * 0.0)], dim=1)
        return self.last(torch.tanh(h))


def only_who_saw_it(trouble):
    return "skip" if "nonfinite-loss" in trouble.ids else None


CASES = {
    "suspected": {"loss-spike": "rollback"},
    "half": {"nonfinite-gradient": Clip(norm=1.0)},
    "asked": {"nonfinite-*": only_who_saw_it},
    "kept": {"nonfinite-parameter": Rollback(every=4, settle=2)},
}
told = {}
for case, recovery in CASES.items():
    torch.manual_seed(0)
    net = Net()
    shards = case == "half"
    model = fully_shard(net, mesh=init_device_mesh("cpu", (2,))) if shards else DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    watch = sg.watch(model, optimizer, recovery=recovery, sinks=[], store=False, replay=False)
    generator = torch.Generator().manual_seed(rank)
    for step in range(80 if case == "suspected" else 24):
        x = torch.randn(16, 4, generator=generator)
        y = x.sum(1, keepdim=True)
        if case == "suspected" and step == 75 and rank == 1:
            y = y + 100.0
        if case == "asked" and step == 10 and rank == 1:
            x[3, 1] = math.nan
        if case == "kept" and step == 20 and rank == 1:
            with torch.no_grad():
                net.first.weight[0, 0] = math.nan
        net.sharp = case == "half" and step == 10
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        if case == "kept" and step in (5, 6) and rank == 1:
            loss = loss + math.inf  # of which the gradient does not know
        loss.backward()
        optimizer.step()
    watch.close()
    told[case] = {
        "weights": [getattr(p, "full_tensor", lambda p=p: p)().detach().flatten().tolist() for p in net.parameters()],
        "actions": [
            (event["data"]["step"], event["data"]["action"], event["data"]["after"].get("step"))
            for event in watch.events
            if event["event_type"] == "recovery"
        ],
    }
gathered = [None, None]
dist.all_gather_object(gathered, told)
if rank == 0:
    print("TOLD " + json.dumps(gathered), flush=True)
dist.barrier()
os._exit(0)
