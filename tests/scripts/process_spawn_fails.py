"""A spawned process fails, and torch raises its traceback again in the parent."""

# exit: 1
# stderr: torch.multiprocessing.spawn.ProcessRaisedException:
# stderr: ValueError: rank 0 has no data
# exception: ProcessRaisedException:
# run: status=crashed steps=2
# when: thorough
# loose: stderr

import torch
import torch.multiprocessing as mp


def train(rank):
    raise ValueError(f"rank {rank} has no data")


if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    print("starting", flush=True)
    mp.spawn(train, nprocs=1)
