"""Mean pooling over tokens: one sentence of the batch is all padding, and is divided by 0."""
# op: aten.div
# phase: forward
# module: pool
# conditions: dict-batch model

import torch
from torch import nn


class MaskedMean(nn.Module):
    def forward(self, hidden, mask):
        mask = mask.unsqueeze(-1).float()
        total = (hidden * mask).sum(1)
        return total / mask.sum(1)  # <-- origin


class Classifier(nn.Module):
    def __init__(self, vocabulary=50, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.pool = MaskedMean()
        self.head = nn.Linear(dim, 2)

    def forward(self, batch):
        hidden, _ = self.encoder(self.embed(batch["tokens"]))
        return self.head(self.pool(hidden, batch["tokens"] != 0))


def batches(count):
    for at in range(count):
        tokens = torch.randint(1, 50, (8, 10))
        tokens[:, 7:] = 0
        if at == 3:
            tokens[5] = 0  # an empty line of the file
        yield {"tokens": tokens, "label": torch.randint(0, 2, (8,))}


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for batch in batches(6):
    optimizer.zero_grad()
    loss = criterion(model(batch), batch["label"])
    loss.backward()
    optimizer.step()
