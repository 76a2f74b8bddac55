"""TransformerEncoder without batch_first on (batch, time, dim): attention runs over the batch."""
# expects: batch-mixing

import torch
import torch.nn as nn


class Classifier(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(30, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 48, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(dim, 3)

    def forward(self, tokens):
        x = self.encoder(self.embed(tokens))  # (batch, time, dim) taken for (time, batch, dim)
        return self.fc(x.mean(1))


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(100):
    tokens = torch.randint(0, 30, (16, 8))
    labels = tokens.sum(1) % 3
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())
