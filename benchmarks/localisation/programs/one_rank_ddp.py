"""DistributedDataParallel over one process; tokens are weighted by one over their frequency, which is 0 for new ones."""
# op: aten.reciprocal|aten.div
# phase: forward
# module: weigh|module.weigh
# conditions: ddp model

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class InverseFrequency(nn.Module):
    def __init__(self, size):
        super().__init__()
        counts = torch.arange(size).float().clamp(max=5)
        self.register_buffer("counts", counts)

    def forward(self, tokens, h):
        weight = self.counts[tokens].reciprocal()  # <-- origin
        return h * weight.unsqueeze(-1)


class Model(nn.Module):
    def __init__(self, size=20):
        super().__init__()
        self.embed = nn.Embedding(size, 6)
        self.weigh = InverseFrequency(size)
        self.head = nn.Linear(6, 2)

    def forward(self, tokens):
        return self.head(self.weigh(tokens, self.embed(tokens)).sum(1))


def main():
    meeting = os.path.join(tempfile.mkdtemp(), "meeting")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(5):
        tokens = torch.randint(1, 20, (6, 5))
        if step == 3:
            tokens[4, 2] = 0
        loss = nn.functional.cross_entropy(model(tokens), torch.randint(0, 2, (6,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
