"""Augmentation with a numpy generator created in __init__: every worker draws the same numbers."""
# expects: duplicate-randomness
# report: https://github.com/facebookresearch/fairseq/issues/1383

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, n=256):
        self.rng = np.random.RandomState(7)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        point = self.rng.randn(12).astype(np.float32)
        return torch.from_numpy(point), torch.tensor([np.tanh(point[0] - point[1])], dtype=torch.float32)


def main():
    torch.manual_seed(0)
    loader = DataLoader(Noisy(), batch_size=16, num_workers=2)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
