"""A DataLoader with a spawned worker: the data set's class lives in this file, and is found there again."""

# run: status=healthy steps=8
# when: thorough

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        assert get_worker_info() is not None
        x = torch.tensor([index / self.n])
        return x, x * x


def collate(items):
    x, y = zip(*items)
    return torch.stack(x), torch.stack(y), os.path.basename(sys.modules["__main__"].__file__)


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loader = DataLoader(
        Squares(16),
        batch_size=4,
        num_workers=1,
        collate_fn=collate,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    for epoch in range(2):
        for x, y, file in loader:
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(epoch, file, f"{loss.item():.6f}")
    torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
