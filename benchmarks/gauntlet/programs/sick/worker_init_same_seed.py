"""worker_init_fn seeds every worker with the same number: the random crops come in pairs."""
# expects: duplicate-randomness

import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset


def seed_worker(worker_id):
    random.seed(42)
    torch.manual_seed(42)


class RandomCrops(IterableDataset):
    def __init__(self, signal, crops):
        self.signal, self.crops = signal, crops

    def __iter__(self):
        for _ in range(self.crops):
            at = random.randrange(len(self.signal) - 33)
            piece = self.signal[at : at + 33]
            yield piece[:32], piece[32:]


def main():
    torch.manual_seed(0)
    t = torch.arange(4000) / 10
    signal = torch.sin(t) + torch.sin(1.7 * t) + 0.1 * torch.randn(4000)
    loader = DataLoader(RandomCrops(signal, 200), batch_size=20, num_workers=2, worker_init_fn=seed_worker)
    net = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
