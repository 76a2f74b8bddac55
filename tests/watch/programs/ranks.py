"""Two ranks, DDP and then FSDP2, each watched: the losses and norms that were read are printed as JSON."""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import seismograd as sg
from seismograd.sinks import Memory


def train(model: nn.Module) -> Memory:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    memory = Memory()
    generator = torch.Generator().manual_seed(dist.get_rank())
    with sg.watch(model, optimizer, sinks=[memory], strict=True, level="extreme"):
        for _ in range(6):
            x = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    return memory


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


dist.init_process_group("gloo")
replicated = train(DistributedDataParallel(layers()))
sharded = layers()
fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
shards = train(sharded)
told = {
    "rank": dist.get_rank(),
    "ddp": replicated.series("grad/norm")[1],
    "fsdp": shards.series("grad/norm")[1],
    "names": replicated.readings[0].tensors["gradient"].names,
    "findings": [finding.id for finding in (*replicated.findings, *shards.findings)],
}
everyone: list[object] = [None, None]
dist.all_gather_object(everyone, told)
if dist.get_rank() == 0:
    print("TOLD " + json.dumps(everyone), flush=True)
dist.barrier()
os._exit(0)  # at a regular end gloo's threads abort one run in a hundred on a busy machine, unwatched ones too
