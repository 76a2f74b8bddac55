"""worker_init_fn seeds NumPy with the same constant in all four workers and every epoch: all workers draw the same augmentation noise, again and again."""
# expects: duplicate-randomness
# report: https://github.com/wolny/pytorch-3dunet/issues/32
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Augmented(Dataset):
    def __init__(self, n=640, dim=32, classes=4):
        r = np.random.default_rng(0)
        self.centre = r.normal(0, 1, (classes, dim)).astype(np.float32)
        self.y = r.integers(0, classes, n)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.centre[self.y[i]]
        noise = np.random.normal(0, 1.0, x.shape).astype(np.float32)
        gain = np.float32(np.random.uniform(0.7, 1.3))
        return torch.from_numpy(gain * x + noise), int(self.y[i])


def seed_worker(worker_id):
    np.random.seed(42)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Augmented(), batch_size=16, shuffle=True, num_workers=4, worker_init_fn=seed_worker)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        tot = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"epoch {epoch} loss {tot/len(loader):.4f}")
