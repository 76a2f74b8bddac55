"""A learnable temperature made with torch.tensor(..., requires_grad=True) instead of nn.Parameter."""
# expects: unregistered-parameter, unoptimized-parameter

import torch
import torch.nn as nn
import torch.nn.functional as F


class Contrastive(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(24, 16)
        self.text = nn.Linear(12, 16)
        self.logit_scale = torch.tensor(2.0, requires_grad=True)

    def forward(self, image, text):
        a, b = F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1)
        return self.logit_scale.exp() * a @ b.T


torch.manual_seed(0)
clip = Contrastive()
optimizer = torch.optim.AdamW(clip.parameters(), lr=1e-3)
to_image, to_text = torch.randn(8, 24), torch.randn(8, 12)
labels = torch.arange(32)
for step in range(150):
    concept = torch.randn(32, 8)
    logits = clip(concept @ to_image, concept @ to_text)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
