"""The loop of many fine-tuning scripts: model returns a dict with its loss, linear schedule with warm-up."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, n=640):
        g = torch.Generator().manual_seed(2)
        self.ids = torch.randint(5, 60, (n, 14), generator=g)
        self.labels = (self.ids[:, :3].float().mean(1) > 32).long()
        self.lengths = torch.randint(6, 15, (n,), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        mask = (torch.arange(14) < self.lengths[i]).long()
        return {"input_ids": self.ids[i] * mask, "attention_mask": mask, "labels": self.labels[i]}


class TinyBert(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embeddings, self.position = nn.Embedding(60, dim, padding_idx=0), nn.Embedding(14, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        self.classifier = nn.Linear(dim, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        h = self.embeddings(input_ids) + self.position(torch.arange(input_ids.shape[1]))
        h = self.encoder(h, src_key_padding_mask=attention_mask == 0)
        logits = self.classifier(self.pooler(h[:, 0]))
        out = {"logits": logits}
        if labels is not None:
            out["loss"] = nn.functional.cross_entropy(logits, labels)
        return out


torch.manual_seed(0)
model = TinyBert()
loader = DataLoader(Reviews(), batch_size=16, shuffle=True)
total = 3 * len(loader)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(s / 12, max(0.0, (total - s) / (total - 12))))
for epoch in range(3):
    model.train()
    for batch in loader:
        outputs = model(**batch)
        outputs["loss"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    print(epoch, outputs["loss"].item())
