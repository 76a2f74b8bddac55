"""A pretrained model is loaded 'for inference' with .eval() and then fine-tuned; its dropout never works."""
# expects: eval-mode-training

import io

import torch
import torch.nn as nn


def build():
    return nn.Sequential(
        nn.Embedding(60, 24), nn.Flatten(), nn.Linear(24 * 8, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 2)
    )


def load_pretrained(buffer):
    model = build()
    buffer.seek(0)
    model.load_state_dict(torch.load(buffer))
    return model.eval()


torch.manual_seed(0)
checkpoint = io.BytesIO()
torch.save(build().state_dict(), checkpoint)
model = load_pretrained(checkpoint)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
tokens = torch.randint(0, 60, (640, 8))
labels = (tokens[:, 0] > tokens[:, 4]).long()
for epoch in range(5):
    for i in torch.randperm(640).split(32):
        loss = nn.functional.cross_entropy(model(tokens[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
