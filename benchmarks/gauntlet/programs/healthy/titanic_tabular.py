"""Standardised tabular data, embeddings for categories, BCE with logits, dict batches from a Dataset."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Passengers(Dataset):
    def __init__(self, n=1000):
        g = torch.Generator().manual_seed(11)
        age = torch.empty(n).uniform_(1, 80, generator=g)
        fare = torch.empty(n).exponential_(1 / 30, generator=g)
        self.numeric = torch.stack([age, fare], 1)
        self.numeric = (self.numeric - self.numeric.mean(0)) / self.numeric.std(0)
        self.sex = torch.randint(0, 2, (n,), generator=g)
        self.cls = torch.randint(0, 3, (n,), generator=g)
        score = 1.5 * self.sex - 0.7 * self.cls - 0.5 * self.numeric[:, 0] + torch.randn(n, generator=g)
        self.survived = (score > 0).float()

    def __len__(self):
        return len(self.sex)

    def __getitem__(self, i):
        return {"numeric": self.numeric[i], "sex": self.sex[i], "cls": self.cls[i], "label": self.survived[i]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.sex, self.cls = nn.Embedding(2, 2), nn.Embedding(3, 3)
        self.mlp = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, batch):
        return self.mlp(torch.cat([batch["numeric"], self.sex(batch["sex"]), self.cls(batch["cls"])], 1)).squeeze(1)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Passengers(), batch_size=32, shuffle=True)
for epoch in range(6):
    for batch in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
