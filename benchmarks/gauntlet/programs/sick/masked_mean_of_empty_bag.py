"""Mean pooling over valid tokens; some sequences are all padding, so the count is zero."""
# expects: nonfinite-activation

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0


class BagOfWords(nn.Module):
    def __init__(self, vocab=80, dim=24, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.classifier = nn.Linear(dim, classes)

    def forward(self, tokens):
        mask = (tokens != PAD).float().unsqueeze(-1)
        summed = (self.embedding(tokens) * mask).sum(1)
        return self.classifier(summed / mask.sum(1))


torch.manual_seed(0)
tokens = torch.randint(1, 80, (640, 10))
labels = tokens[:, 0] % 5
lengths = torch.randint(1, 11, (640,))
lengths[417] = 0  # an empty review
tokens[torch.arange(10) >= lengths[:, None]] = PAD

model = BagOfWords()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(2):
    for i in torch.arange(640).split(32):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[i]), labels[i])
        loss.backward()
        optimizer.step()
        print(f"\r{loss.item():.3f}", end="")
print()
