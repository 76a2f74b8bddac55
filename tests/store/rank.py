"""A rank that trains, for tests with real launchers:

    torchrun ... programs_rank.py STORE STEPS [what happens, once, in the first attempt]

`kill:RANK:STEP` ends that rank with SIGKILL, `raise:RANK:STEP` with an error, `pause:FILE:STEP` waits on the first rank
until there is such a file. `--early` opens the watch before the process group is made.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import seismograd as sg


def happens(what: str, step: int) -> None:
    kind, where, when = what.split(":")
    if step != int(when) or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return
    if kind == "pause":
        while not Path(where).exists():
            time.sleep(0.02)
    elif dist.get_rank() == int(where):
        watch.flush()
        if kind == "kill":
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("on purpose")


def join() -> None:
    """With keys of this attempt's own: without them gloo now and then finds an address of the attempt before."""
    told = os.environ
    if told["TORCHELASTIC_MAX_RESTARTS"] == "0":
        dist.init_process_group("gloo")
        return
    tcp = dist.TCPStore(told["MASTER_ADDR"], int(told["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore(f"attempt {told['TORCHELASTIC_RESTART_COUNT']}", tcp)
    dist.init_process_group("gloo", store=store, rank=int(told["RANK"]), world_size=int(told["WORLD_SIZE"]))


where, steps, *more = sys.argv[1:]
early = "--early" in more
torch.manual_seed(0)
model = nn.Linear(4, 2)
if not early:
    join()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
watch = sg.watch(model, optimizer, store=where, sinks=[], name="ranks")
if early:
    join()
for step in range(int(steps)):
    for what in more:
        if ":" in what:
            happens(what, step)
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
watch.close()
said = f"DONE {dist.get_rank()} {watch.id} {model.weight.sum().item():.6f}\n"
print(said, end="", flush=True)  # in one write: ranks print at the same time, and torchrun leaves them no buffer
dist.barrier()
os._exit(0)  # at a regular end gloo's threads abort one run in a hundred on a busy machine, unwatched ones too
