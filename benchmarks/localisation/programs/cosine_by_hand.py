"""Cosine similarity by hand between a text and an image, of which one has no features left after ReLU."""
# op: aten.div
# phase: loss
# module: -
# conditions: several-roots loop multiline

import torch
from torch import nn

torch.manual_seed(0)
text_tower = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
image_tower = nn.Sequential(nn.Linear(9, 8), nn.ReLU())
params = [*text_tower.parameters(), *image_tower.parameters()]
opt = torch.optim.Adam(params, lr=1e-3)


def cosine(a, b):
    dot = (a * b).sum(-1)
    return dot / (  # <-- origin
        a.norm(dim=-1) * b.norm(dim=-1)
    )


for step in range(6):
    text, image = torch.rand(8, 6), torch.rand(8, 9)
    if step == 3:
        with torch.no_grad():
            image_tower[0].bias.fill_(-10)
    similarity = cosine(text_tower(text), image_tower(image))
    loss = (1 - similarity).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
