"""A DataLoader with forked workers: seeds, worker_init_fn, persistent workers, an iterable data set."""

# run: status=healthy steps=24

import random

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Augmented(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        x = torch.full((2,), index / 32) + 0.01 * torch.randn(2)
        return x, x.sum() + random.random() / 100, get_worker_info().seed % 1000


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id, 16, info.num_workers):
            yield torch.tensor([i / 16, info.dataset is self]), torch.tensor(i / 8)


def init(worker):
    random.seed(torch.initial_seed() + worker)


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def fit(loader):
    seen = []
    for x, y, *rest in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        seen += rest[0].unique().tolist() if rest else []
    print(f"{loss.item():.6f}", seen)


loader = DataLoader(
    Augmented(), batch_size=4, shuffle=True, num_workers=2, worker_init_fn=init, persistent_workers=True
)
for _ in range(2):
    fit(loader)
fit(DataLoader(Stream(), batch_size=2, num_workers=2))
print(f"{torch.rand(1).item():.6f}")
torch.save(model.state_dict(), "weights.pt")
