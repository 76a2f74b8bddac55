"""Small trainings on several ranks, healthy and sick, one after another in one launch; what was found is printed.

torchrun --standalone --nproc-per-node 2 cases.py CASE [CASE ...]
"""

import copy
import json
import os
import sys
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import seismograd as sg
from seismograd.sinks import Memory

STEPS = 48
AT = 20
"""The step at which something goes wrong."""


def layers(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), *more, nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))


def batches(steps: int = STEPS, size: int = 16):
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(size, 8, generator=generator)
        yield x, (x[:, 0] > 0).long()
        time.sleep(0.004)  # for the notes of the ranks to be many


class Loop:
    """A plain loop with a hook for what goes wrong."""

    def __init__(self, model: nn.Module, lr: float = 0.05) -> None:
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.rank, self.step = dist.get_rank(), -1

    def run(self, feed=None) -> nn.Module:
        for x, y in batches() if feed is None else feed:
            self.step += 1
            self.optimizer.zero_grad()
            self.backward(self.forward(x), y)
            self.before_step()
            self.optimizer.step()
            self.after_step()
        return self.model

    @property
    def guilty(self) -> bool:
        return self.rank == 1 and self.step >= AT

    def forward(self, x):
        return self.model(x)

    def backward(self, output, y):
        cross_entropy(output, y).backward()

    def before_step(self): ...

    def after_step(self): ...


# -- healthy -------------------------------------------------------------------------------------------------------


class Accumulating(Loop):
    def run(self, feed=None):
        for x, y in batches(STEPS // 2):
            self.step += 1
            self.optimizer.zero_grad()
            with self.model.no_sync():
                (cross_entropy(self.model(x[:8]), y[:8]) / 2).backward()
            (cross_entropy(self.model(x[8:]), y[8:]) / 2).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        return self.model


class ByHand(Loop):
    """Gradients are averaged by plain collectives."""

    def before_step(self):
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


class ShardedOptimizer(ByHand):
    """Each rank steps with some of the parameters only, and then gives them to the others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        own = list(model.parameters())[self.rank :: dist.get_world_size()]
        self.optimizer = torch.optim.SGD(own, lr=0.05)

    def after_step(self):
        self.model.zero_grad()
        with torch.no_grad():
            for at, parameter in enumerate(self.model.parameters()):
                dist.broadcast(parameter, src=at % dist.get_world_size())


class OwnHead(ByHand):
    """What the ranks share is trained together; the last layer is each rank's own."""

    def before_step(self):
        for parameter in self.model[:-1].parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class LocalSGD(Loop):
    def after_step(self):
        if self.step % 8 == 7:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    dist.all_reduce(parameter)
                    parameter.div_(dist.get_world_size())


class ClampedEverywhere(Loop):
    def after_step(self):
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.clamp_(-1, 1)


class Loaded(Loop):
    """A loader with a sampler, as it should be."""

    sets_epoch, length, seed = True, 64, 0

    def run(self, feed=None):
        x = torch.randn(self.length, 8, generator=torch.Generator().manual_seed(3))
        data = TensorDataset(x, (x[:, 0] > 0).long())
        sampler = DistributedSampler(data, seed=self.seed)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        for epoch in range(8):
            if self.sets_epoch:
                sampler.set_epoch(epoch)
            super().run(loader)
            time.sleep(0.05)
        return self.model


def begun_apart() -> nn.Module:
    torch.manual_seed(dist.get_rank())
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def with_own_head() -> nn.Module:
    model = layers()
    torch.manual_seed(dist.get_rank())
    model[-1].reset_parameters()
    return model


def with_own_frozen_part() -> nn.Module:
    """A table of each rank's own, that is not trained."""
    model = layers(own := nn.Linear(32, 32).requires_grad_(False))
    torch.manual_seed(dist.get_rank())
    own.reset_parameters()
    return model


def sharded() -> nn.Module:
    model = layers()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class Checkpointed(Loop):
    """Saved and loaded by torch.distributed.checkpoint, in the middle."""

    def after_step(self):
        if self.step in (10, 30):
            state = {"model": self.model.state_dict()}
            folder = f"checkpoint-{self.step}-{time.time_ns() if dist.get_rank() == 0 else 0}"
            told = [folder]
            dist.broadcast_object_list(told, src=0)
            checkpoint.save(state, checkpoint_id=told[0], no_dist=False)
            checkpoint.load(state, checkpoint_id=told[0], no_dist=False)


def tensor_parallel() -> nn.Module:
    model = layers()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"2": ColwiseParallel(), "4": RowwiseParallel()})


class Alike(Loop):
    """All ranks are fed the same, as ranks of one tensor parallel group are."""

    def run(self, feed=None):
        generator = torch.Generator().manual_seed(100)
        x = torch.randn(STEPS, 16, 8, generator=generator)
        return super().run((each, (each[:, 0] > 0).long()) for each in x)


class Pipelined(Loop):
    """The first rank has the first half of the model, the second the other."""

    def __init__(self) -> None:
        torch.manual_seed(dist.get_rank())
        halves = (nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 2))
        super().__init__(halves[dist.get_rank()])
        stage = PipelineStage(self.model, dist.get_rank(), 2, torch.device("cpu"))
        self._schedule = ScheduleGPipe(stage, 2, loss_fn=cross_entropy)

    def run(self, feed=None):
        generator = torch.Generator().manual_seed(100)
        for _ in range(12):
            x = torch.randn(16, 8, generator=generator)
            self.optimizer.zero_grad()
            if self.rank == 0:
                self._schedule.step(x)
            else:
                self._schedule.step(target=(x[:, 0] > 0).long())
            self.optimizer.step()
        return self.model


HEALTHY = {
    "ddp": lambda: Loop(DistributedDataParallel(layers())),
    "batchnorm": lambda: Loop(DistributedDataParallel(layers(nn.BatchNorm1d(32)))),
    "accumulating": lambda: Accumulating(DistributedDataParallel(layers())),
    "fsdp": lambda: Loop(sharded()),
    "by-hand": lambda: ByHand(layers()),
    "own-head": lambda: OwnHead(with_own_head()),
    "own-frozen-part": lambda: ByHand(with_own_frozen_part()),
    "sharded-optimizer": lambda: ShardedOptimizer(layers()),
    "ensemble": lambda: Loop(begun_apart()),
    "local-sgd": lambda: LocalSGD(layers()),
    "alone": lambda: Loop(layers()),
    "clamped": lambda: ClampedEverywhere(DistributedDataParallel(layers())),
    "loaded": lambda: Loaded(DistributedDataParallel(layers())),
    "checkpointed": lambda: Checkpointed(sharded()),
    "tensor-parallel": lambda: Alike(tensor_parallel()),
    "pipelined": Pipelined,
}


# -- sick ----------------------------------------------------------------------------------------------------------


class Inside(Loop):
    def forward(self, x):
        return self.model.module(x) if self.step >= AT else self.model(x)


class NoSync(Loop):
    """The last micro-batch of a step, too, runs under no_sync()."""

    def forward(self, x):
        if self.step < AT:
            return self.model(x)
        with self.model.no_sync():
            return self.model(x)

    def backward(self, output, y):
        with self.model.no_sync() if self.step >= AT else nullcontext():
            super().backward(output, y)


class Changed(Loop):
    def after_step(self):
        if self.rank == 1 and self.step == AT:
            with torch.no_grad():
                self.model.module[2].weight.mul_(1.01)


class Clipped(Loop):
    def before_step(self):
        if self.guilty:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.01)


class Rates(Loop):
    def before_step(self):
        if self.guilty:
            self.optimizer.param_groups[0]["lr"] = 0.01


class Forgotten(ByHand):
    """From some step on nobody averages the gradients any more."""

    def before_step(self):
        if self.step < AT:
            super().before_step()


class Grown(Loop):
    def after_step(self):
        if self.step == AT:
            torch.manual_seed(0)
            fresh = nn.Linear(2, 2)
            self.model.module.append(fresh)
            self.optimizer.add_param_group({"params": list(fresh.parameters())})


class Branching(ByHand):
    """One rank leaves a layer out, as its data tell it."""

    def forward(self, x):
        first, *others = self.model
        with torch.no_grad() if self.guilty else nullcontext():
            x = first(x)
        for layer in others:
            x = layer(x)
        return x

    def before_step(self):
        for parameter in self.model.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()


class Poisoned(Loop):
    def forward(self, x):
        if self.rank == 1 and self.step == AT:
            x = x.clone()
            x[3, 4] = float("nan")
        return self.model(x)


class Slow(Loop):
    def forward(self, x):
        if self.rank == 1:
            time.sleep(0.06)
        return self.model(x)


class SlowLoader(Loop):
    def run(self, feed=None):
        class Data(TensorDataset):
            def __getitem__(self, at):
                if dist.get_rank() == 1:
                    time.sleep(0.003)
                return super().__getitem__(at)

        x = torch.randn(16 * STEPS, 8, generator=torch.Generator().manual_seed(self.rank))
        return super().run(DataLoader(Data(x, (x[:, 0] > 0).long()), batch_size=16))


class SameData(Loop):
    def run(self, feed=None):
        x = torch.randn(16 * STEPS, 8, generator=torch.Generator().manual_seed(3))
        return super().run(DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16))


class NeverNewEpoch(Loaded):
    sets_epoch = False


class OtherSeeds(Loaded):
    @property
    def seed(self):
        return self.rank


class Uneven(Loop):
    """One rank has more batches; here all stop in time, for the test to end."""

    def run(self, feed=None):
        x = torch.randn(16 * (STEPS + 2 * self.rank), 8, generator=torch.Generator().manual_seed(self.rank))
        loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)
        return super().run(batch for batch, _ in zip(loader, range(STEPS), strict=False))


def unused() -> nn.Module:
    model = layers()
    model.add_module("spare", nn.Identity())
    model.spare.weight = nn.Parameter(torch.zeros(3))
    return model


class Long(Loop):
    def run(self, feed=None):
        return super().run(batches(6 * STEPS))


class Stopped(Loop):
    """DDP refuses to go on."""

    def run(self, feed=None):
        try:
            return super().run(feed)
        except RuntimeError as error:
            self.failed = error
            return self.model


SICK = {
    "inside": lambda: Inside(DistributedDataParallel(layers())),
    "no-sync": lambda: NoSync(DistributedDataParallel(layers())),
    "changed": lambda: Changed(DistributedDataParallel(layers())),
    "clipped": lambda: Clipped(DistributedDataParallel(layers())),
    "rates": lambda: Rates(DistributedDataParallel(layers())),
    "forgotten": lambda: Forgotten(layers()),
    "begun-apart": lambda: ByHand(begun_apart()),
    "grown": lambda: Grown(DistributedDataParallel(layers())),
    "branching": lambda: Branching(layers()),
    "poisoned": lambda: Poisoned(DistributedDataParallel(layers())),
    "slow": lambda: Slow(DistributedDataParallel(layers())),
    "slow-loader": lambda: SlowLoader(DistributedDataParallel(layers())),
    "same-data": lambda: SameData(DistributedDataParallel(layers())),
    "never-new-epoch": lambda: NeverNewEpoch(DistributedDataParallel(layers())),
    "other-seeds": lambda: OtherSeeds(DistributedDataParallel(layers())),
    "searching": lambda: Long(DistributedDataParallel(layers(), find_unused_parameters=True)),
    "unused": lambda: Stopped(DistributedDataParallel(unused())),
    "uneven": lambda: Uneven(DistributedDataParallel(layers())),
}

CASES = {**HEALTHY, **SICK}


def weights(model: nn.Module) -> list[bytes]:
    return [(p.to_local() if hasattr(p, "to_local") else p).detach().numpy().tobytes() for p in model.parameters()]


def main() -> None:
    dist.init_process_group("gloo")
    told = {}
    for case in sys.argv[1:]:
        plain = weights(CASES[case]().run()) if case in HEALTHY else None
        loop, memory = CASES[case](), Memory()
        with sg.watch(loop.model, loop.optimizer, sinks=[memory], strict=True, store="runs", name=case) as watch:
            watched = weights(loop.run())
            if hasattr(loop, "failed"):
                watch.failed(loop.failed)
        told[case] = {
            "same": plain is None or plain == watched,
            "findings": [finding.to_dict() for finding in watch.findings],
            "compared": sum("ranks" in reading.facts for reading in memory.readings),
            "norms": memory.series("ranks/grad/norm")[1],
            "local": memory.series("grad/norm")[1],
        }
        del loop
        dist.barrier()
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, json.loads(json.dumps(copy.deepcopy(told), default=str)))
    if dist.get_rank() == 0:
        print("TOLD " + json.dumps(everyone), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
